//! Window that a reader needs. It is computed from the slots read in a round trip and the slots
//! behind gaps.
//!
//! Input: the number of slots that have been read or wait behind a gap, and the time. Output: a
//! window in slots, which is smaller if less memory is free. The stream table decides whether the
//! stream keeps a larger window.

/// Measured window need of one stream.
#[derive(Debug, Default)]
pub(super) struct WindowNeed {
    /// Start of the present measuring span. `span_read` is the number of slots read before the
    /// span.
    span_began_s: f64,
    span_read: u64,
    /// Number of slots that were read per round trip, for each of the last two measuring spans.
    /// `None` until a span has ended.
    read: [Option<f64>; 2],
    /// Largest number of slots behind a gap, in the present period and in the previous period.
    behind_gap: [u64; 2],
    period_began_s: f64,
}

impl WindowNeed {
    pub(super) fn new(now_s: f64) -> Self {
        Self {
            span_began_s: now_s,
            period_began_s: now_s,
            ..Self::default()
        }
    }

    /// Records that the application has read all slots below index `read`.
    pub(super) fn on_read(&mut self, read: u64, now_s: f64, rtt_s: f64) {
        let rtt_s = rtt_s.max(SPAN_MIN_S);
        let elapsed_s = now_s - self.span_began_s;
        if elapsed_s < rtt_s {
            return;
        }
        let per_round_trip = (read - self.span_read) as f64 * rtt_s / elapsed_s;
        self.read = [Some(per_round_trip), self.read[0]];
        (self.span_began_s, self.span_read) = (now_s, read);
        if now_s - self.period_began_s >= PERIOD_ROUND_TRIPS * rtt_s {
            self.behind_gap = [0, self.behind_gap[0]];
            self.period_began_s = now_s;
        }
    }

    /// Records that `slots` slots wait behind a gap.
    pub(super) fn on_gap(&mut self, slots: u64) {
        self.behind_gap[0] = self.behind_gap[0].max(slots);
    }

    /// Returns the window in slots that the reader needs if the fraction `free` of memory is free.
    /// Returns `None` until two measuring spans have ended.
    pub(super) fn window(&self, free: f64) -> Option<u64> {
        let read = self.read[0]?.max(self.read[1]?) * round_trips(free);
        Some((read as u64).max(self.gap_window(gap_share(free))))
    }

    /// Returns the smallest window in slots with which the reader can double its drain rate in each
    /// round trip.
    pub(super) fn paced_window(&self) -> u64 {
        let read = self.read.into_iter().flatten().fold(0.0, f64::max) * PACED_ROUND_TRIPS;
        (read as u64)
            .max(self.gap_window(PACED_GAP_SHARE))
            .max(PACED_MIN)
    }

    /// Returns the window, in slots, that lets new slots arrive while a gap is being filled.
    /// `share` is the ratio of the window to the number of slots behind the gap.
    fn gap_window(&self, share: f64) -> u64 {
        let behind_gap = self.behind_gap[0].max(self.behind_gap[1]);
        (behind_gap as f64 * share) as u64
    }
}

/// Returns the number of round trips for which a window covers the reader's need. `free` is the
/// free fraction of memory.
pub(super) fn round_trips(free: f64) -> f64 {
    ROUND_TRIPS_MIN + (ROUND_TRIPS_MAX - ROUND_TRIPS_MIN) * free.powi(12)
}

/// Returns the ratio of a window to the number of slots behind a gap.
pub(super) fn gap_share(free: f64) -> f64 {
    GAP_SHARE_MIN + (GAP_SHARE_MAX - GAP_SHARE_MIN) * free.powi(12)
}

/// Number of round trips for which a window covers the reader's need while memory is short. The
/// value is one round trip, plus a margin until new credit is sent.
const ROUND_TRIPS_MIN: f64 = 1.25;
/// Number of round trips for which a window covers the reader's need while all memory is free.
const ROUND_TRIPS_MAX: f64 = 8.0;
/// Number of round trips for which the window of a paced stream covers the reader's need.
const PACED_ROUND_TRIPS: f64 = 2.0;
/// Minimum window of a paced stream in slots: 384 KiB, the initial grant of version 2.
const PACED_MIN: u64 = 271;
/// Ratio of a window to the slots behind a gap, while memory is short.
const GAP_SHARE_MIN: f64 = 1.25;
/// Ratio of a window to the slots behind a gap, while all memory is free. The window widens when a
/// quarter of it waits behind a gap. If the window holds at least 4/3 of the slots of one round
/// trip, the new credit reaches the sender in time.
const GAP_SHARE_MAX: f64 = 4.0;
/// Ratio of the window of a paced stream to the slots behind a gap. A gateway of the previous
/// release limits its queues to this window.
const PACED_GAP_SHARE: f64 = 2.0;
/// Minimum measuring span in seconds. On a path with a shorter round trip, one read of an
/// application covers bytes of more than one round trip.
const SPAN_MIN_S: f64 = 0.005;
/// Minimum number of round trips for which the slots behind a gap are remembered.
const PERIOD_ROUND_TRIPS: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the need of a reader that reads 100 slots per round trip of 0.1 s.
    fn steady() -> WindowNeed {
        let mut need = WindowNeed::new(0.0);
        for step in 1..=100 {
            need.on_read(step * 10, step as f64 * 0.01, 0.1);
        }
        need
    }

    #[test]
    fn a_window_holds_more_round_trips_the_more_memory_is_free() {
        let need = steady();
        let windows = [0.0, 0.9, 1.0].map(|free| need.window(free).expect("it is known"));
        assert!((120..=140).contains(&windows[0]), "{windows:?}");
        assert!(windows[0] < windows[1] && windows[1] < windows[2]);
        assert!((780..=880).contains(&windows[2]), "{windows:?}");
    }

    #[test]
    fn the_need_is_unknown_for_two_round_trips() {
        let mut need = WindowNeed::new(0.0);
        need.on_read(100, 0.1, 0.1);
        assert_eq!(need.window(0.0), None);
        need.on_read(200, 0.2, 0.1);
        assert!(need.window(0.0).is_some());
    }

    #[test]
    fn slots_behind_a_gap_are_needed_for_some_round_trips_more() {
        let mut need = steady();
        need.on_gap(1000);
        assert_eq!(need.window(0.0), Some(1250));
        for step in 1..=30 {
            need.on_read(1000 + step * 100, 1.0 + step as f64 * 0.1, 0.1);
        }
        assert!(need.window(0.0).is_some_and(|window| window < 200));
    }

    /// Regression: the window widened when half of it waited behind a gap. On a long path, the new
    /// credit reached the sender too late.
    #[test]
    fn slots_behind_a_gap_need_four_times_their_number_while_all_memory_is_free() {
        let mut need = steady();
        need.on_gap(1000);
        assert_eq!(need.window(1.0), Some(4000));
        assert_eq!(need.window(0.0), Some(1250));
        assert_eq!(need.paced_window(), 2000);
    }
}
