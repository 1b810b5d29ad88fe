//! How fast the receiver of a stream takes what few bytes on the link stand for, and how much of it may be on its way.

use std::time::{Duration, Instant};

/// Measured over short windows; the newest one counts. What may be on its way at most doubles from one to the next: a slow
/// receiver's first bytes go into buffers, at once.
#[derive(Debug)]
pub(super) struct Pace {
    bounds: Bounds,
    window: Option<Window>,
    bound_bytes: usize,
}

/// What may be on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// It is taken in so many seconds.
    pub(super) ahead_s: f64,
    /// But no more than that.
    pub(super) most_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    begin: Instant,
    bytes: u64,
}

impl Pace {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            window: None,
            bound_bytes: FIRST_BYTES,
        }
    }

    /// So much has been taken since the last call.
    pub(super) fn taken(&mut self, now: Instant, bytes: usize) {
        let window = self.window.get_or_insert(Window {
            begin: now,
            bytes: 0,
        });
        window.bytes += bytes as u64;
        let elapsed = now.saturating_duration_since(window.begin);
        if elapsed >= WINDOW {
            let taken = self.bounds.ahead_s * window.bytes as f64 / elapsed.as_secs_f64();
            let bound = (taken as usize).min(self.bound_bytes.saturating_mul(2));
            self.bound_bytes = bound.clamp(BOUND_LEAST_BYTES, self.bounds.most_bytes);
            self.window = Some(Window {
                begin: now,
                bytes: 0,
            });
        }
    }

    /// What may be on its way to the receiver.
    pub(super) fn bound_bytes(&self) -> usize {
        self.bound_bytes
    }
}

/// Longer than the receiver's own buffers last, shorter than clients wait.
const WINDOW: Duration = Duration::from_millis(200);

/// Before anything is known: three lists or so.
const FIRST_BYTES: usize = 4 * 1024 * 1024;

/// Less would be less than a list.
const BOUND_LEAST_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        ahead_s: 2.0,
        most_bytes: 48 * 1024 * 1024,
    };

    fn bound_at(bytes_per_s: usize) -> usize {
        let (mut pace, begin) = (Pace::new(BOUNDS), Instant::now());
        for turn in 0..100 {
            let now = begin + turn * Duration::from_millis(20);
            pace.taken(now, bytes_per_s / 50);
        }
        pace.bound_bytes()
    }

    #[test]
    fn a_slow_receiver_has_two_seconds_on_the_way() {
        let bound = bound_at(5_000_000);
        assert!((9_500_000..11_500_000).contains(&bound), "{bound}");
        assert_eq!(bound_at(100_000), BOUND_LEAST_BYTES);
        assert_eq!(bound_at(500_000_000), BOUNDS.most_bytes);
        assert_eq!(Pace::new(BOUNDS).bound_bytes(), FIRST_BYTES);
    }
}
