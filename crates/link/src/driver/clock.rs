//! Clock of the driver. It continues to run while the machine is suspended.
//!
//! `Instant` (CLOCK_MONOTONIC) stops during a suspension, but CLOCK_BOOTTIME and the peer's clock
//! continue. With this clock, one-way delays remain comparable after a suspension. The endpoint can
//! measure how long it was suspended, and whether the peer may have ended the connection meanwhile.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

/// Clock that returns `Instant`s. They are comparable only with other `Instant`s of this clock.
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

    /// Reads this clock and the system time at the same moment. The pair is used to convert the
    /// kernel's time stamps on datagrams to this clock.
    pub(super) fn reading(&self) -> ClockReading {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        ClockReading {
            now: self.now(),
            unix: unix.unwrap_or_default(),
        }
    }
}

/// One moment in two forms: the time of the driver's clock, and the system time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    now: Instant,
    /// System time, as a duration since the Unix epoch.
    unix: Duration,
}

impl ClockReading {
    /// Returns the arrival time of a datagram on the driver's clock. The kernel stamped the
    /// datagram with system time `unix`. The socket was empty at `emptied`, so the datagram arrived
    /// later.
    ///
    /// If the stamp is in the future, or before `emptied`, the system time was changed meanwhile.
    /// The method then returns the present time.
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

    /// Returns the system time at `instant`, which must be in the past.
    pub(super) fn unix(&self, instant: Instant) -> Duration {
        self.unix
            .saturating_sub(self.now.saturating_duration_since(instant))
    }
}

/// Maximum time between the kernel's time stamp on a datagram and the arrival of the datagram in
/// the socket. The machine may be busy.
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

    /// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
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
