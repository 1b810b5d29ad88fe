//! Time inside the core: nanoseconds since the endpoint was made.
//!
//! Callers pass `Instant`s; the endpoint turns them into [`Time`] once, at its edge, so that records
//! of packets stay small and arithmetic on them is plain integer arithmetic.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// A point in time, in nanoseconds since the endpoint's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Time(pub(crate) u64);

impl Time {
    /// Later than anything that happens.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The time since `earlier`, zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time since `earlier` in seconds, zero if `earlier` is later.
    pub(crate) fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 * 1e-9
    }

    /// Whole microseconds since the epoch.
    pub(crate) fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// This time moved by `seconds`, which may be fractional but not negative.
    pub(crate) fn after_seconds(self, seconds: f64) -> Self {
        Self(self.0.saturating_add((seconds * 1e9) as u64))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}
