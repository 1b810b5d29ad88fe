//! How fast the receiver of a stream takes what few bytes on the link stand for, and how much of it may be on its way.

use std::time::{Duration, Instant};

/// Measured over short windows, of which the newest count most. What may be on its way at most doubles from one to the next: a slow
/// receiver's first bytes go into buffers, at once.
#[derive(Debug)]
pub(super) struct Pace {
    bounds: Bounds,
    window: Option<Window>,
    /// Of late: bytes, and the seconds that the receiver took for them.
    recent: (f64, f64),
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
    taking: Duration,
}

impl Pace {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            window: None,
            recent: (0.0, 0.0),
            bound_bytes: FIRST_BYTES,
        }
    }

    /// So much has been taken since the last call, in so much time for which it was not waited for.
    pub(super) fn taken(&mut self, now: Instant, bytes: u64, taking: Duration) {
        let window = self.window.get_or_insert(Window {
            begin: now,
            bytes: 0,
            taking: Duration::ZERO,
        });
        window.bytes = window.bytes.saturating_add(bytes);
        window.taking = window.taking.saturating_add(taking);
        if now.saturating_duration_since(window.begin) >= WINDOW {
            let (all, took_s) = &mut self.recent;
            *all = *all * RECENT + window.bytes as f64;
            *took_s = *took_s * RECENT + window.taking.as_secs_f64().max(TAKING_LEAST_S);
            let bound = (self.bounds.ahead_s * *all / *took_s) as usize;
            let bound = bound.min(self.bound_bytes.saturating_mul(2));
            self.bound_bytes = bound.clamp(BOUND_LEAST_BYTES, self.bounds.most_bytes);
            self.window = Some(Window {
                begin: now,
                bytes: 0,
                taking: Duration::ZERO,
            });
        }
    }

    /// What may be on its way to the receiver.
    pub(super) fn bound_bytes(&self) -> usize {
        self.bound_bytes
    }

    /// How fast the receiver takes; `None` if that is not known yet.
    pub(super) fn bytes_per_s(&self) -> Option<f64> {
        let (bytes, taking_s) = self.recent;
        (taking_s > 0.0).then(|| bytes / taking_s)
    }
}

/// Longer than the receiver's own buffers last, shorter than clients wait.
const WINDOW: Duration = Duration::from_millis(100);

/// What was before a window counts so much of it.
const RECENT: f64 = 0.5;

/// A window in which the receiver was never waited for.
const TAKING_LEAST_S: f64 = 1e-3;

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
            pace.taken(now, bytes_per_s as u64 / 50, Duration::from_millis(20));
        }
        pace.bound_bytes()
    }

    #[test]
    fn a_slow_receiver_has_two_seconds_on_the_way() {
        let bound = bound_at(5_000_000);
        assert!((9_500_000..11_500_000).contains(&bound), "{bound}");
        assert_eq!(bound_at(100_000), BOUND_LEAST_BYTES);
        assert_eq!(bound_at(500_000_000), BOUNDS.most_bytes);
        assert_eq!(bound_at(0), BOUND_LEAST_BYTES);
        assert_eq!(Pace::new(BOUNDS).bound_bytes(), FIRST_BYTES);
    }

    #[test]
    fn a_receiver_that_is_waited_for_a_tenth_of_the_time_is_ten_times_as_fast() {
        let (mut pace, begin) = (Pace::new(BOUNDS), Instant::now());
        assert_eq!(pace.bytes_per_s(), None);
        for turn in 0..100 {
            let now = begin + turn * Duration::from_millis(20);
            pace.taken(now, 10_000, Duration::from_millis(2));
        }
        let pace = pace.bytes_per_s().expect("it is known");
        assert!((4.5e6..5.5e6).contains(&pace), "{pace}");
    }

    #[test]
    fn what_no_receiver_takes_is_no_bound_either() {
        let unbounded = Bounds {
            most_bytes: usize::MAX,
            ..BOUNDS
        };
        let (mut pace, begin) = (Pace::new(unbounded), Instant::now());
        for turn in 0..200 {
            pace.taken(begin + turn * WINDOW, u64::MAX, Duration::ZERO);
        }
        assert_eq!(pace.bound_bytes(), usize::MAX);
    }
}
