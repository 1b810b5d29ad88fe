//! Time inside the core, in nanoseconds since the creation of the endpoint.
//!
//! Callers pass `Instant`s, and the endpoint converts them to [`Time`] at its interface. Records of
//! packets thus need less memory, and calculations with times are integer arithmetic.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// Point in time, in nanoseconds since the endpoint's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Time(pub(crate) u64);

impl Time {
    /// Time that is later than any event.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time since `earlier` in seconds, or zero if `earlier` is later.
    pub(crate) fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 * 1e-9
    }

    /// Returns the time since the epoch in microseconds, rounded down.
    pub(crate) fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the time `seconds` seconds later. `seconds` may have a fraction but must not be
    /// negative.
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
