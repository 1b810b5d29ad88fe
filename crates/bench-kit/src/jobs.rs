//! Execution of independent jobs on several threads.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::machine;

/// Runs the jobs in parallel, on all processors. Returns the results in the order of the jobs.
pub fn map<J: Sync, T: Send>(jobs: &[J], work: impl Fn(&J) -> T + Sync) -> Vec<T> {
    map_on(machine::processors(), jobs, work)
}

/// Runs all jobs on `threads` threads, which start the jobs in order. Returns the results in the
/// order of the jobs.
///
/// # Panics
/// If a job panics. The panic has the job's message, and occurs after the other threads have ended.
pub fn map_on<J: Sync, T: Send>(
    threads: usize,
    jobs: &[J],
    work: impl Fn(&J) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else {
                return results;
            };
            results.push((index, work(job)));
        }
    };
    let mut results: Vec<(usize, T)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
        let results = workers.into_iter().map(thread::ScopedJoinHandle::join);
        results
            .flat_map(|results| results.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        let squares: Vec<u64> = jobs.iter().map(|job| job * job).collect();
        for threads in [0, 1, 3] {
            assert_eq!(map_on(threads, &jobs, |job| job * job), squares);
        }
        assert_eq!(map(&jobs, |job| job * job), squares);
    }
}
