//! Model of an application that reads at a limited rate.

use std::time::{Duration, Instant};

use units::ByteCount;

/// Reading schedule of one application.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadingSchedule {
    bytes_per_s: f64,
    /// Bytes that the application may read at the time `at`.
    allowance: f64,
    at: Instant,
    /// Bytes that the application still reads without a rate limit.
    swallows: f64,
    /// Whether unread bytes wait for the application.
    pub(super) is_behind: bool,
}

impl ReadingSchedule {
    pub(super) fn new(bytes_per_s: f64, now: Instant) -> Self {
        Self {
            bytes_per_s,
            allowance: 0.0,
            at: now,
            swallows: 0.0,
            is_behind: true,
        }
    }

    /// Lets the application read the next `size` bytes without a rate limit.
    pub(super) fn swallow(&mut self, size: ByteCount) {
        self.swallows = size.bytes() as f64;
    }

    /// Returns the number of bytes that the application reads now: zero, or the size of one read.
    pub(super) fn take(&mut self, now: Instant) -> usize {
        let elapsed_s = now.duration_since(self.at).as_secs_f64();
        self.at = now;
        if self.swallows > 0.0 {
            return LUMP_BYTES_MAX as usize;
        }
        // Because of the limit, the allowance stops growing while no bytes wait.
        self.allowance = (self.allowance + elapsed_s * self.bytes_per_s).min(2.0 * self.lump());
        if self.allowance < self.lump() {
            return 0;
        }
        self.lump() as usize
    }

    /// Records that the application has read `bytes` bytes.
    pub(super) fn took(&mut self, bytes: usize) {
        let swallowed = self.swallows.min(bytes as f64);
        self.swallows -= swallowed;
        self.allowance -= bytes as f64 - swallowed;
    }

    /// Returns the time at which the application reads the waiting bytes. Returns `None` if no
    /// bytes wait.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let wait_s = (self.lump() - self.allowance).max(0.0) / self.bytes_per_s;
        let is_waiting = self.is_behind && wait_s < 3600.0;
        is_waiting.then(|| self.at + Duration::from_secs_f64(wait_s) + Duration::from_micros(1))
    }

    fn lump(&self) -> f64 {
        (self.bytes_per_s * LUMP_S).clamp(LUMP_BYTES_MIN, LUMP_BYTES_MAX)
    }
}

/// Size of one read, as a time at the application's reading rate. One read is at least one slot and
/// at most 64 KiB.
const LUMP_S: f64 = 0.005;
const LUMP_BYTES_MIN: f64 = 1448.0;
const LUMP_BYTES_MAX: f64 = 65536.0;
