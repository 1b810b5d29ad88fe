//! Clock of the driver, which continues while the machine is suspended.
//!
//! `Instant` (CLOCK_MONOTONIC) stands still during a suspension. CLOCK_BOOTTIME continues, and so
//! does the peer's clock. With this clock one-way delays stay comparable after a suspension. The
//! endpoint learns the length of its suspension, and whether the peer may have abandoned it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

/// Clock in `Instant`s of its own, which are comparable only with one another.
#[derive(Debug, Clone, Copy)]
pub(super) struct DriverClock {
    start: Instant,
    booted: Duration,
}

impl DriverClock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            booted: since_boot(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.start + since_boot().saturating_sub(self.booted)
    }

    /// Returns the present on both clocks, to convert times of day that the kernel stamped on
    /// datagrams.
    pub(super) fn reading(&self) -> ClockReading {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        ClockReading {
            now: self.now(),
            unix: unix.unwrap_or_default(),
        }
    }
}

/// One moment on the driver's clock and by the time of day.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    now: Instant,
    /// Since the Unix epoch.
    unix: Duration,
}

impl ClockReading {
    /// Returns the arrival of a datagram that the kernel stamped at `unix` since the Unix epoch,
    /// and that was not in the socket at `emptied`.
    ///
    /// A stamp in the future means that the time of day was set back. A stamp before the socket was
    /// last empty means that it was set forward. Both count as now.
    pub(super) fn instant(&self, unix: Duration, emptied: Option<Instant>) -> Instant {
        let age = self.unix.saturating_sub(unix);
        let came = self.now.checked_sub(age);
        let is_credible =
            |came: &Instant| emptied.is_none_or(|emptied| *came + STAMP_AGE >= emptied);
        came.filter(is_credible).unwrap_or(self.now)
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// Returns the time of day at `instant`, which has passed.
    pub(super) fn unix(&self, instant: Instant) -> Duration {
        self.unix
            .saturating_sub(self.now.saturating_duration_since(instant))
    }
}

/// Longest time on a busy machine from the kernel's stamp of a datagram until it is in the socket.
const STAMP_AGE: Duration = Duration::from_millis(10);

fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME);
    time.expect("Linux has had this clock since 2.6.39").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_of_the_kernel_is_as_old_here_as_it_is_there() {
        let reading = DriverClock::new().reading();
        let age = Duration::from_micros(700);
        assert_eq!(reading.now - reading.instant(reading.unix - age, None), age);
        let ahead = reading.unix + Duration::from_secs(3600);
        assert_eq!(reading.instant(ahead, None), reading.now);
    }

    #[test]
    fn a_datagram_that_seems_older_than_an_empty_socket_came_now() {
        let clock = DriverClock::new();
        let mut reading = clock.reading();
        let emptied = reading.now;
        reading.now += Duration::from_millis(50);
        let came = |age_ms| {
            let age = Duration::from_millis(age_ms);
            reading.now - reading.instant(reading.unix - age, Some(emptied))
        };
        assert_eq!(came(45), Duration::from_millis(45));
        assert_eq!(came(55), Duration::from_millis(55), "it took a while");
        assert_eq!(came(3_600_000), Duration::ZERO, "the clock has jumped");
    }

    /// The following tests measure real time: `cargo xtask test` runs them alone.
    mod real_time {
        use super::*;

        #[test]
        fn while_nothing_is_suspended_it_runs_as_others_do() {
            let clock = DriverClock::new();
            let (before, other) = (clock.now(), Instant::now());
            std::thread::sleep(Duration::from_millis(20));
            let (passed, by_other) = (clock.now() - before, other.elapsed());
            assert!(passed >= Duration::from_millis(20));
            assert!(passed.abs_diff(by_other) < Duration::from_millis(5));
        }
    }
}
