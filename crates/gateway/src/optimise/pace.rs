//! How fast the receiver of a stream takes the chunks that are referred to.

use std::time::{Duration, Instant};

/// Measured over short windows; the newest one counts. What may be on its way at most doubles from one to the next: a slow
/// receiver's first bytes go into buffers, at once.
#[derive(Debug)]
pub(super) struct Pace {
    window: Option<Window>,
    bound_bytes: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            window: None,
            bound_bytes: FIRST_BYTES,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Window {
    begin: Instant,
    bytes: u64,
}

impl Pace {
    /// So much has been taken since the last call.
    pub(super) fn taken(&mut self, now: Instant, bytes: usize) {
        let window = self.window.get_or_insert(Window {
            begin: now,
            bytes: 0,
        });
        window.bytes += bytes as u64;
        let elapsed = now.saturating_duration_since(window.begin);
        if elapsed >= WINDOW {
            let taken = AHEAD_S * window.bytes as f64 / elapsed.as_secs_f64();
            let bound = (taken as usize).min(2 * self.bound_bytes);
            self.bound_bytes = bound.clamp(BOUND_LEAST_BYTES, BOUND_MOST_BYTES);
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

/// What is on its way is taken in so many seconds: a round trip over a satellite, and some of the five seconds in which an
/// upload has to drain.
const AHEAD_S: f64 = 2.0;

/// Before anything is known: three lists or so.
const FIRST_BYTES: usize = 4 * 1024 * 1024;

/// Less would be less than a list.
const BOUND_LEAST_BYTES: usize = 1024 * 1024;

/// A list more may follow, which fits what a stream may lend.
const BOUND_MOST_BYTES: usize = 48 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn bound_at(bytes_per_s: usize) -> usize {
        let (mut pace, begin) = (Pace::default(), Instant::now());
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
        assert_eq!(bound_at(500_000_000), BOUND_MOST_BYTES);
        assert_eq!(Pace::default().bound_bytes(), FIRST_BYTES);
    }
}
