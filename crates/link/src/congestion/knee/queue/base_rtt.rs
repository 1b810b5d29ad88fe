//! Base round-trip time: the round-trip time without queueing delay.
//!
//! The input is round-trip times. The output is the minimum of the recent past, the minimum since
//! the last cut, and whether the path has changed. The module [`delays`](super::delays) measures
//! one-way delays.

use super::super::extremes::{WindowedMin, path_window_s};
use crate::overtaking_detector::FirstSamples;

/// Base round-trip time, and detection of its changes.
#[derive(Debug, Default)]
pub(super) struct BaseRtt {
    first: FirstSamples,
    least: WindowedMin,
    /// Least round-trip time of packets sent after the last cut, in seconds. `None` if there was no
    /// such packet.
    since_cut_s: Option<f64>,
    /// Base round-trip time at the previous sample, in seconds. `None` before the first sample.
    before_s: Option<f64>,
}

impl BaseRtt {
    /// Adds the round-trip time `rtt_s`. `own_queue_max_s` is the longest queueing delay that
    /// packets of this sender can cause.
    ///
    /// `cut_s` is the time of the last cut. Packets sent before the cut do not count for the
    /// minimum since the cut.
    pub(super) fn insert(&mut self, rtt_s: f64, own_queue_max_s: f64, cut_s: f64, now_s: f64) {
        match self.first.base_with(rtt_s, own_queue_max_s) {
            Some(base_s) => self.least.reset(base_s, now_s),
            None => self.least.insert(rtt_s, now_s, path_window_s(rtt_s)),
        }
        let was_sent_after_cut = now_s - rtt_s > cut_s;
        if was_sent_after_cut {
            let least_s = self.since_cut_s.unwrap_or(rtt_s);
            self.since_cut_s = Some(least_s.min(rtt_s));
        }
    }

    /// Returns the base round-trip time in seconds. Returns [`GUESS_S`] before the first sample.
    pub(super) fn get_s(&self) -> f64 {
        self.least.get().unwrap_or(GUESS_S).max(MIN_S)
    }

    pub(super) fn is_known(&self) -> bool {
        self.least.get().is_some()
    }

    pub(super) fn forget_cut(&mut self) {
        self.since_cut_s = None;
    }

    /// Replaces the base round-trip time by the least round-trip time since the last cut. If no
    /// round-trip time was measured since the cut, the function adds the queueing delay `queue_s`
    /// to the old base.
    pub(super) fn rebase(&mut self, queue_s: f64, now_s: f64) {
        let before_s = self.least.get().unwrap_or(GUESS_S);
        let least_s = self.since_cut_s.unwrap_or(before_s + queue_s);
        self.least.reset(least_s, now_s);
    }

    /// Returns the base round-trip times at the previous sample and now, in seconds. Returns `None`
    /// if the difference of the two times does not prove a change of the path.
    pub(super) fn change_s(&mut self) -> Option<(f64, f64)> {
        let now_s = self.get_s();
        let before_s = self.before_s.replace(now_s)?;
        let is_another = now_s > ANOTHER * before_s || now_s * ANOTHER < before_s;
        is_another.then_some((before_s, now_s))
    }

    /// Stores the present base round-trip time, so that the next sample shows no change.
    pub(super) fn accept_change(&mut self) {
        self.before_s = Some(self.get_s());
    }

    /// Returns the state that stays valid after a pause.
    pub(super) fn after_pause(&self) -> Self {
        Self {
            before_s: self.before_s,
            ..Self::default()
        }
    }

    /// Sets the base round-trip time as if it had been measured.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, base_s: f64, now_s: f64) {
        self.first = FirstSamples::over();
        self.least.insert(base_s, now_s, path_window_s(base_s));
    }
}

/// Assumed round-trip time in seconds before the first sample: the round-trip time of a path across
/// a continent.
const GUESS_S: f64 = 0.1;
/// Least base round-trip time, in seconds.
///
/// Reports are at least a millisecond apart, and the timers of both gateways can add half a
/// millisecond. The rate should hardly depend on such errors.
///
/// A report states for how long the peer has delayed the report. If a peer states the whole
/// round-trip time as its delay, the base must not fall to zero.
const MIN_S: f64 = 0.008;
/// Least factor of a sudden change of the base round-trip time. A change by this factor shows that
/// the path has changed.
const ANOTHER: f64 = 1.25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_is_shorter_than_the_timers_of_both_sides() {
        let mut base = BaseRtt::default();
        assert_eq!(base.get_s(), GUESS_S, "before any sample");
        base.pretend(0.02, 0.0);
        assert_eq!(base.get_s(), 0.02);
        base.pretend(0.0, 1.0);
        assert_eq!(base.get_s(), MIN_S);
    }

    #[test]
    fn a_quarter_more_or_less_at_once_is_another_path() {
        let mut base = BaseRtt::default();
        base.pretend(0.1, 0.0);
        assert_eq!(base.change_s(), None, "there was none before");
        base.pretend(0.09, 1.0);
        assert_eq!(base.change_s(), None);
        base.pretend(0.06, 2.0);
        assert_eq!(base.change_s(), Some((0.09, 0.06)));
        base.rebase(0.1, 3.0);
        assert_eq!(base.change_s(), Some((0.06, 0.16)));
        assert_eq!(base.change_s(), None);
    }

    #[test]
    fn what_was_sent_before_a_cut_does_not_count_as_after_it() {
        let mut base = BaseRtt::default();
        base.pretend(0.1, 0.0);
        base.insert(0.2, 0.0, 0.9, 1.0);
        base.rebase(0.5, 1.0);
        assert_eq!(base.get_s(), 0.6, "the old base and the queue");
        base.insert(0.7, 0.0, 0.2, 1.0);
        base.rebase(0.5, 1.0);
        assert_eq!(base.get_s(), 0.7);
    }
}
