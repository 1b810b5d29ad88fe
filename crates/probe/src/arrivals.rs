//! Start times of tasks. Tasks start one after another, or as a Poisson process, which models
//! independent users.

use std::{rc::Rc, time::Duration};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use tokio::{
    task::LocalSet,
    time::{Instant, sleep_until},
};

use super::ProbeError;

/// The number, the rate and the concurrency of tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    /// Number of tasks. The smallest value is 1.
    pub count: u64,
    /// Mean number of arrivals per second, with exponentially distributed intervals. If `None`,
    /// each task starts as soon as the limit on concurrent tasks permits the start.
    pub rate_per_s: Option<f64>,
    /// Seed of the random intervals. The same seed gives the same intervals.
    pub seed: u64,
    /// Maximum number of concurrent tasks. While this number of tasks is running, further tasks
    /// wait. The measured time of a task begins after its wait.
    pub at_once: usize,
}

impl Default for Arrivals {
    /// Returns the arrivals of a single task.
    fn default() -> Self {
        Self {
            count: 1,
            rate_per_s: None,
            seed: 1,
            at_once: 1,
        }
    }
}

impl Arrivals {
    /// Returns the arrival times in order. Each time is counted from the beginning of the run.
    /// Without a rate, all times are zero.
    pub fn times(&self) -> impl Iterator<Item = Duration> + use<> {
        let (count, rate) = (self.count, self.rate_per_s);
        let mut random = Pcg64::seed_from_u64(self.seed);
        let mut at_s = 0.0;
        (0..count).map(move |_| {
            if let Some(rate) = rate {
                at_s += exponential(&mut random) / rate;
            }
            Duration::from_secs_f64(at_s)
        })
    }

    /// Checks that the settings are within their limits.
    ///
    /// # Errors
    /// [`ProbeError::Invalid`] with the name of the setting that is outside its limits.
    pub fn validate(&self) -> Result<(), ProbeError> {
        let invalid = |what: &str| Err(ProbeError::Invalid(what.to_owned()));
        if self.count == 0 {
            return invalid("the count is 0; at least 1 is needed");
        }
        if self.at_once == 0 || self.at_once > AT_ONCE_MAX {
            return invalid(&format!("from 1 to {AT_ONCE_MAX} can be under way at once"));
        }
        match self.rate_per_s {
            Some(rate) if !(rate > RATE_MIN_PER_S && rate < RATE_MAX_PER_S) => invalid(&format!(
                "arrivals per second lie between {RATE_MIN_PER_S} and {RATE_MAX_PER_S}"
            )),
            _ => Ok(()),
        }
    }

    /// Starts `task(probe, n)` for each arrival. The probes take turns, and each probe runs `count`
    /// tasks. Calls `on_record` with each record as soon as it exists. Returns all records in the
    /// order of their numbers.
    pub(crate) fn drive_by_turns<P, R, F>(
        &self,
        probes: &[&P],
        task: impl Fn(Rc<P>, u64) -> F,
        mut on_record: impl FnMut(&R),
    ) -> Result<Vec<R>, ProbeError>
    where
        P: Clone,
        R: 'static,
        F: Future<Output = R> + 'static,
    {
        let turns = probes.len() as u64;
        let all = Self {
            count: self.count * turns,
            ..self.clone()
        };
        let probes: Vec<_> = probes.iter().map(|&probe| Rc::new(probe.clone())).collect();
        let start = |arrival: u64| {
            let work = task(probes[(arrival % turns) as usize].clone(), arrival / turns);
            async move { (arrival, work.await) }
        };
        let mut records = Vec::new();
        all.drive(start, |(arrival, record)| {
            on_record(&record);
            records.push((arrival / turns, record));
        })?;
        records.sort_by_key(|(number, _)| *number);
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// Starts `task(n)` on this thread for each arrival. Calls `on_result` with each result as soon
    /// as it exists.
    pub(crate) fn drive<T, F>(
        &self,
        mut task: impl FnMut(u64) -> F,
        mut on_result: impl FnMut(T),
    ) -> Result<(), ProbeError>
    where
        T: 'static,
        F: Future<Output = T> + 'static,
    {
        self.validate()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ProbeError::system("starting to measure"))?;
        let (sender, mut results) = tokio::sync::mpsc::unbounded_channel();
        let all = async {
            let start = Instant::now();
            let mut under_way = 0;
            for (number, at) in self.times().enumerate() {
                let due = start + at;
                loop {
                    tokio::select! {
                        Some(result) = results.recv() => {
                            under_way -= 1;
                            on_result(result);
                        }
                        () = sleep_until(due), if under_way < self.at_once => break,
                    }
                }
                under_way += 1;
                let (work, sender) = (task(number as u64), sender.clone());
                tokio::task::spawn_local(async move {
                    // The receiver outlives all tasks.
                    let _ = sender.send(work.await);
                });
            }
            while under_way > 0 {
                if let Some(result) = results.recv().await {
                    on_result(result);
                }
                under_way -= 1;
            }
        };
        LocalSet::new().block_on(&runtime, all);
        Ok(())
    }
}

/// Returns a random number from the exponential distribution with mean 1.
pub(crate) fn exponential(random: &mut Pcg64) -> f64 {
    // 53 bits give a number below 1, so the logarithm is finite.
    let uniform = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    -(1.0 - uniform).ln()
}

/// Upper limit on concurrent tasks. Each task uses several file descriptors of this process.
const AT_ONCE_MAX: usize = 10_000;
/// Lowest rate in arrivals per second: one arrival in eleven days.
const RATE_MIN_PER_S: f64 = 1e-6;
const RATE_MAX_PER_S: f64 = 1e6;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn arrivals_come_at_their_rate_and_again_by_their_seed() {
        let arrivals = Arrivals {
            count: 10_000,
            rate_per_s: Some(50.0),
            ..Arrivals::default()
        };
        let times: Vec<_> = arrivals.times().collect();
        let last = times.last().expect("some").as_secs_f64();
        // The sum of 10,000 intervals has a standard error of 1 %.
        assert!((194.0..206.0).contains(&last), "{last}");
        assert!(times.is_sorted());
        assert!(arrivals.times().eq(times.iter().copied()));
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|w| (w[1] - w[0]).as_secs_f64())
            .collect();
        let short = gaps.iter().filter(|gap| **gap < 0.02).count() as f64 / gaps.len() as f64;
        assert!((short - 0.632).abs() < 0.02, "exponential gaps: {short}");
    }

    #[test]
    fn no_more_are_under_way_than_there_are_places() {
        let arrivals = Arrivals {
            count: 20,
            at_once: 3,
            ..Arrivals::default()
        };
        let (now, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let mut done = 0;
        let task = |_| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                now.set(now.get() + 1);
                most.set(most.get().max(now.get()));
                tokio::time::sleep(Duration::from_millis(1)).await;
                now.set(now.get() - 1);
            }
        };
        arrivals.drive(task, |()| done += 1).expect("a runtime");
        assert_eq!((done, most.get(), now.get()), (20, 3, 0));
    }

    #[test]
    fn there_is_at_least_one_task() {
        let arrivals = Arrivals {
            count: 0,
            ..Arrivals::default()
        };
        assert!(arrivals.validate().is_err());
    }

    #[test]
    fn a_rate_must_be_one() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let arrivals = Arrivals {
                rate_per_s: Some(rate),
                ..Arrivals::default()
            };
            assert!(arrivals.validate().is_err(), "{rate}");
        }
    }
}
