//! Independent work on all processors.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

/// `work` of each job, in the order of the jobs.
pub fn map<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, job)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(index).map(|job| (index, job))
                } {
                    let result = work(job);
                    let mut results = results.lock().expect("no job panics");
                    results.push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no job panics");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The median and the worst of some figures of which more is better.
pub fn median_and_worst(figures: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    (figures[figures.len() / 2], figures[0])
}
