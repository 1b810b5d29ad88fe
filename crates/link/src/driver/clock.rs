//! The driver's clock, which runs on while the machine is suspended.
//!
//! `Instant` (CLOCK_MONOTONIC) stands still during a suspend; CLOCK_BOOTTIME runs on, and so does
//! the peer's clock. With this clock one-way delays stay comparable after a suspend, and the
//! endpoint learns how long it slept, and whether the peer may have given up.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Tells the time in `Instant`s of its own: compare them with one another only.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start: Instant,
    booted: Duration,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            booted: since_boot(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.start + since_boot().saturating_sub(self.booted)
    }
}

fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME);
    time.expect("Linux has had this clock since 2.6.39").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These measure real time: `cargo xtask test` runs them alone.
    mod real_time {
        use super::*;

        #[test]
        fn while_nothing_is_suspended_it_runs_as_others_do() {
            let clock = Clock::new();
            let (before, other) = (clock.now(), Instant::now());
            std::thread::sleep(Duration::from_millis(20));
            let (passed, by_other) = (clock.now() - before, other.elapsed());
            assert!(passed >= Duration::from_millis(20));
            assert!(passed.abs_diff(by_other) < Duration::from_millis(5));
        }
    }
}
