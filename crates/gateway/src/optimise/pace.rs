//! How fast the receiver of a stream takes what few bytes on the link stand for, and how much of it may be on its way.

use std::time::{Duration, Instant};

/// Measured over short windows, of which the newest count most. What may be on its way at most doubles, and only once so much was on its
/// way and has been taken: a slow receiver's first bytes go into buffers, at once, and a line that is slower than the receiver
/// does not show its pace.
#[derive(Debug)]
pub(super) struct Pace {
    bounds: Bounds,
    window: Option<Window>,
    /// Of late: bytes, and the seconds that the receiver took for them.
    recent: (f64, f64),
    bound_bytes: usize,
    /// What has been taken in all.
    taken_bytes: u64,
    /// What will have been taken when all that was on its way has been that exceeded the bound first.
    flight: Option<u64>,
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
            taken_bytes: 0,
            flight: None,
        }
    }

    /// So much has been taken since the last call, in so much time, without that in which the receiver waited for bytes.
    pub(super) fn taken(&mut self, now: Instant, bytes: u64, taking: Duration) {
        self.taken_bytes = self.taken_bytes.saturating_add(bytes);
        let Some(window) = &mut self.window else {
            if self.taken_bytes >= SWALLOWED_BYTES {
                self.window = Some(Window::beginning(now));
            }
            return;
        };
        window.bytes = window.bytes.saturating_add(bytes);
        window.taking = window.taking.saturating_add(taking);
        let elapsed = now.saturating_duration_since(window.begin);
        if elapsed < WINDOW {
            return;
        }
        // Who is always busy shows his pace; what buffers swallowed before does not.
        let share = if window.taking > elapsed / 2 {
            0.0
        } else {
            RECENT
        };
        let (all, took_s) = &mut self.recent;
        *all = *all * share + window.bytes as f64;
        *took_s = *took_s * share + window.taking.as_secs_f64().max(TAKING_LEAST_S);
        let bound = (self.bounds.ahead_s * *all / *took_s) as usize;
        let was_tried = self
            .flight
            .take_if(|end| *end <= self.taken_bytes)
            .is_some();
        let growth = if was_tried { 2 } else { 1 };
        let bound = bound.min(self.bound_bytes.saturating_mul(growth));
        self.bound_bytes = bound.clamp(BOUND_LEAST_BYTES, self.bounds.most_bytes);
        self.window = Some(Window::beginning(now));
    }

    /// Whether so much on its way to the receiver is more than there may be.
    pub(super) fn is_exceeded(&mut self, bytes: u64) -> bool {
        let is_exceeded = bytes > self.bound_bytes as u64;
        if is_exceeded {
            let end = self.taken_bytes.saturating_add(bytes);
            self.flight.get_or_insert(end);
        }
        is_exceeded
    }

    /// How fast the receiver takes; `None` if that is not known yet.
    pub(super) fn bytes_per_s(&self) -> Option<f64> {
        let (bytes, taking_s) = self.recent;
        (taking_s > 0.0).then(|| bytes / taking_s)
    }
}

impl Window {
    fn beginning(now: Instant) -> Self {
        Self {
            begin: now,
            bytes: 0,
            taking: Duration::ZERO,
        }
    }
}

/// Longer than the receiver's own buffers last, shorter than clients wait.
const WINDOW: Duration = Duration::from_millis(100);

/// What was before a window counts so much of it.
const RECENT: f64 = 0.5;

/// Buffers take so much at once: the link's queues, and the kernels' on both ends of a connection.
const SWALLOWED_BYTES: u64 = 256 * 1024;

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

    /// What may be on its way to a receiver that takes so much a second, in 200 spans of 20 ms, `taking` of them.
    fn bound_at(bytes_per_s: u64, taking: Duration, is_reached: bool) -> usize {
        let (mut pace, begin) = (Pace::new(BOUNDS), Instant::now());
        for turn in 0..200 {
            let on_its_way = if is_reached {
                pace.bound_bytes as u64 + 1
            } else {
                0
            };
            pace.is_exceeded(on_its_way);
            let now = begin + turn * Duration::from_millis(20);
            pace.taken(now, bytes_per_s / 50, taking);
        }
        pace.bound_bytes
    }

    const ALWAYS: Duration = Duration::from_millis(20);

    #[test]
    fn a_slow_receiver_has_two_seconds_on_the_way() {
        let bound = bound_at(5_000_000, ALWAYS, true);
        assert!((9_500_000..11_500_000).contains(&bound), "{bound}");
        assert_eq!(bound_at(100_000, ALWAYS, true), BOUND_LEAST_BYTES);
        assert_eq!(bound_at(500_000_000, ALWAYS, true), BOUNDS.most_bytes);
        assert_eq!(Pace::new(BOUNDS).bound_bytes, FIRST_BYTES);
    }

    #[test]
    fn what_a_receiver_could_take_is_known_only_as_far_as_it_was_tried() {
        let now_and_then = Duration::from_micros(200);
        assert_eq!(bound_at(20_000_000, now_and_then, false), FIRST_BYTES);
        // 80 MB are taken: 4 MiB, 8, 16, and 32.
        assert_eq!(bound_at(20_000_000, now_and_then, true), BOUNDS.most_bytes);
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
    fn what_buffers_swallow_is_forgotten_once_the_receiver_is_busy() {
        let (mut pace, begin) = (Pace::new(BOUNDS), Instant::now());
        // 4 MB at once, then 200 kB/s.
        pace.taken(begin, 128 * 1024, Duration::ZERO);
        pace.taken(begin + WINDOW, 4_000_000, Duration::ZERO);
        pace.taken(begin + 2 * WINDOW, 20_000, WINDOW);
        let pace = pace.bytes_per_s().expect("it is known");
        assert!((190e3..210e3).contains(&pace), "{pace}");
    }

    #[test]
    fn what_no_receiver_takes_is_no_bound_either() {
        let unbounded = Bounds {
            most_bytes: usize::MAX,
            ..BOUNDS
        };
        let (mut pace, begin) = (Pace::new(unbounded), Instant::now());
        for turn in 0..200 {
            pace.is_exceeded(u64::MAX);
            pace.taken(begin + turn * WINDOW, u64::MAX, Duration::ZERO);
        }
        assert_eq!(pace.bound_bytes, usize::MAX);
    }
}
