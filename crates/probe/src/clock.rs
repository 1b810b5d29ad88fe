//! Clock times for records and datagrams.

use std::time::{Duration, SystemTime};

/// Returns the time of the system clock, in microseconds since 1970.
pub(super) fn unix_us() -> u64 {
    since_1970().as_micros() as u64
}

/// Returns the time of the system clock, in nanoseconds since 1970.
pub(super) fn unix_ns() -> u64 {
    since_1970().as_nanos() as u64
}

/// Returns the time since 1970, or zero if the system clock is set to an earlier time.
fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}
