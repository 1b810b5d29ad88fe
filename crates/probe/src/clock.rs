//! Wall-clock times for records and datagrams.

use std::time::{Duration, SystemTime};

/// Microseconds since 1970 by the system clock.
pub(super) fn unix_us() -> u64 {
    since_1970().as_micros() as u64
}

/// Nanoseconds since 1970 by the system clock.
pub(super) fn unix_ns() -> u64 {
    since_1970().as_nanos() as u64
}

/// Zero if the system clock is set before 1970.
fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}
