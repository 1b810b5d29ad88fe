//! What does the path pass?
//!
//! In: arrivals and byte counts of the peer. Out: the rate at which the bottleneck passes packets, by three measures:
//! the packet-number rate of arrivals, which random loss does not touch; the [trains](train), which show it before
//! the path is full; and the [`delivered`] rate. Also what the path passed when it was last full. How fast
//! to send is the caller's business.
//!
//! Capacities are bytes per second in the sending domain: lost packets count as passed.

use crate::congestion::knee::Mechanism;
mod delivered;
mod train;

use std::collections::VecDeque;

use self::delivered::Delivered;
pub(super) use self::train::{TRAIN_PACKETS_MAX, TRAIN_PACKETS_MIN, Trains, packets_to_time};
use super::extremes::{WindowedMax, path_window_s};
use crate::congestion::{Arrival, Digest};

/// Capacity of the path.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    /// Arrivals that the packet-number rate is measured on, oldest first.
    points: VecDeque<Arrival>,
    /// The packet-number rate. In company it is only our share.
    pub(super) measured: Option<f64>,
    /// When the first packet was sent that the packet-number rate was measured on.
    measured_from_s: f64,
    /// When a packet was sent before the application paused, if it has. Where reports overtake each other, the first one
    /// on a burst may come long after the last one on the pause.
    paused_after_s: Option<f64>,
    /// The highest of the recent past.
    peak: WindowedMax,
    /// What the path passed when it was last full; zero before that.
    pub(super) known: f64,
    pub(super) trains: Trains,
    delivered: Delivered,
}

impl Capacity {
    /// What is left to measure with after a pause.
    pub(super) fn after_pause(self) -> Self {
        Self {
            known: self.known,
            ..Self::default()
        }
    }

    /// Takes in an arrival that says something of the path.
    pub(super) fn on_arrival(&mut self, arrival: &Arrival, base_s: f64) {
        let paused_s = |last: &Arrival| arrival.sent_s - last.sent_s;
        let pause_s = self.points.back().map_or(0.0, paused_s);
        if pause_s > POINTS_PAUSE_S.max(base_s) {
            // A rate over the pause would be the application's.
            self.points.clear();
        }
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(*arrival);
    }

    /// Measures anew, after the arrivals of a report.
    pub(super) fn on_report(&mut self, digest: &Digest<'_>, base_s: f64) {
        self.trains.measure(digest.arrivals);
        self.measure(base_s);
        if digest.app_limited {
            let resolved_s = digest.resolved.last().map(|packet| packet.sent_s);
            self.paused_after_s = resolved_s.or(self.paused_after_s);
            // What arrived is what the application sent.
            self.delivered = Delivered::default();
        } else {
            self.delivered.measure(digest.received, base_s);
        }
    }

    fn measure(&mut self, base_s: f64) {
        let span_min_s = (SPAN * base_s).max(SPAN_MIN_S);
        let Some(last) = self.points.back().copied() else {
            return;
        };
        // Keep one point that is old enough, and all newer ones.
        while self.points.get(1).is_some_and(|point| {
            last.received_s - point.received_s >= span_min_s
                && last.number >= point.number + PACKETS_MIN
        }) {
            self.points.pop_front();
        }
        let first = self.points[0];
        let span_s = last.received_s - first.received_s;
        if span_s >= span_min_s && last.number >= first.number + PACKETS_MIN {
            let bytes = last.sent_bytes_before - first.sent_bytes_before;
            self.measured = Some(bytes as f64 / span_s);
            self.measured_from_s = first.sent_s;
        }
    }

    /// Takes what was measured for a rate that the path passes, if all of it was sent after the last cut, at `cut_s`.
    /// Where the path drops packets it does not: those count as passed, too.
    pub(super) fn remember(&mut self, cut_s: f64, base_s: f64, now_s: f64) {
        let is_since_cut = |first: &Arrival| first.sent_s > cut_s;
        if let Some(capacity) = self.measured
            && self.points.front().is_some_and(is_since_cut)
        {
            self.peak.insert(capacity, now_s, path_window_s(base_s));
        }
    }

    /// What is worth to be known by another connection: what the path passed when it was last full. What little traffic shows
    /// since is the application's rate.
    pub(super) fn lasting(&self) -> Option<f64> {
        if self.known > 0.0 {
            Some(self.known)
        } else {
            self.measured
        }
    }

    /// The highest capacity of the recent past.
    pub(super) fn peak(&self) -> Option<f64> {
        self.peak.get()
    }

    /// Delivered bytes per second. Lost packets do not count.
    pub(super) fn delivered(&self) -> Option<f64> {
        self.delivered.rate()
    }

    /// The capacity, where the last round trip was sent at `sent` bytes per second: never far below that.
    ///
    /// `passed` is the fraction that the bottleneck does not drop. `was_app_limited`: the application paused of late.
    pub(super) fn estimate(&self, sent: f64, passed: f64, was_app_limited: bool) -> f64 {
        let least = Mechanism::EstimateMin.value(ESTIMATE_MIN, 0.01) * sent;
        let mut capacity = self.measured.unwrap_or(least);
        // What was dropped before the bottleneck makes the measured rate the sender's own.
        capacity *= passed;
        let spans_pause = self
            .paused_after_s
            .is_some_and(|paused_s| self.measured_from_s <= paused_s);
        if Mechanism::PeakAfterPause.acts(was_app_limited || spans_pause) {
            // The measured rate spans the pause and is too low, since what was sent did build a queue.
            let peak = self.peak().unwrap_or(capacity);
            capacity = capacity.max(peak.min(AFTER_PAUSE_MAX * sent));
        }
        capacity.max(least)
    }

    /// As if it had measured this.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, capacity: f64, now_s: f64) {
        self.measured = Some(capacity);
        self.peak.insert(capacity, now_s, path_window_s(0.0));
    }
}

/// The capacity is measured over this part of a round trip, this time and this many packet numbers at
/// least. Longer spans are less noisy and follow changes later.
const SPAN: f64 = 1.0 / 4.0;
const SPAN_MIN_S: f64 = 0.002;
const PACKETS_MIN: u64 = 16;
/// The capacity is measured anew after so long without packets, or after a round trip if that is longer.
const POINTS_PAUSE_S: f64 = 1.0;
/// Arrivals that the capacity is measured on at most.
const POINTS_MAX: usize = 4096;

/// The capacity is taken for this fraction of the rate of the last round trip at least: a rate measured
/// over a gap (an outage, a change of route) is far too low.
const ESTIMATE_MIN: f64 = 0.5;
/// After a pause of the application the recent peak counts instead, up to this fraction of the rate of
/// the last round trip: a queue shows that the rate was too high, so the capacity lies below it.
const AFTER_PAUSE_MAX: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::knee::resolved_at;

    #[test]
    fn what_a_path_passed_when_it_was_full_outlasts_what_little_traffic_shows() {
        let mut capacity = Capacity {
            measured: Some(1e5),
            ..Capacity::default()
        };
        assert_eq!(capacity.lasting(), Some(1e5), "it was never full");
        capacity.known = 15e6;
        assert_eq!(capacity.lasting(), Some(15e6));
    }

    /// Packets of 1500 bytes, one each `spacing_s`, of which each third was lost.
    fn measured(spacing_s: f64) -> Capacity {
        let mut capacity = Capacity::default();
        for number in (0..200).filter(|number| number % 3 != 0) {
            let sent_s = number as f64 * spacing_s;
            let arrival = Arrival {
                number,
                sent_s,
                received_s: sent_s + 0.05,
                sent_bytes_before: number * 1500,
                in_train: false,
            };
            capacity.on_arrival(&arrival, 0.1);
        }
        capacity.on_report(&Digest::default(), 0.1);
        capacity
    }

    #[test]
    fn loss_does_not_touch_the_packet_number_rate() {
        let capacity = measured(1e-3).measured.expect("there were enough");
        assert!((capacity - 1.5e6).abs() < 1.0, "{capacity}");
    }

    #[test]
    fn an_estimate_is_no_less_than_half_of_what_was_sent() {
        let capacity = measured(1e-3);
        assert!((capacity.estimate(1.5e6, 1.0, false) - 1.5e6).abs() < 1.0);
        assert!((capacity.estimate(1.5e6, 0.8, false) - 1.2e6).abs() < 1.0);
        assert_eq!(capacity.estimate(9e6, 1.0, false), 4.5e6);
    }

    #[test]
    fn after_a_pause_the_peak_counts() {
        let mut capacity = measured(1e-3);
        capacity.pretend(3e6, 0.0);
        capacity.measured = Some(1e6);
        assert_eq!(capacity.estimate(2e6, 1.0, false), 1e6);
        assert_eq!(capacity.estimate(2e6, 1.0, true), 1.8e6, "0.9 of the rate");
        assert_eq!(capacity.estimate(5e6, 1.0, true), 3e6, "the peak");
    }

    /// The first report on a burst told of a queue, long after the last report on the pause before it. The capacity was
    /// taken for half of the rate: a transfer of the bench's row of 10 % that overtake took a third longer.
    #[test]
    fn a_rate_over_a_pause_is_no_capacity_however_late_the_report_comes() {
        let mut capacity = measured(1e-3);
        capacity.pretend(3e6, 0.0);
        let before_pause = resolved_at(0.199, 1, |_| false);
        let limited = Digest {
            app_limited: true,
            resolved: &before_pause,
            ..Digest::default()
        };
        capacity.on_report(&limited, 0.1);
        let in_burst = |number: u64| Arrival {
            number: 200 + number,
            sent_s: 0.9 + number as f64 * 5e-4,
            received_s: 0.95 + number as f64 * 5e-4,
            sent_bytes_before: (200 + number) * 1500,
            in_train: false,
        };
        for number in 0..20 {
            capacity.on_arrival(&in_burst(number), 0.1);
        }
        capacity.on_report(&Digest::default(), 0.1);
        let over_pause = capacity.measured.expect("there were enough");
        assert!(over_pause < 0.1 * 3e6, "{over_pause}");
        assert_eq!(capacity.estimate(3e6, 1.0, false), 0.9 * 3e6);
        for number in 20..200 {
            capacity.on_arrival(&in_burst(number), 0.1);
        }
        capacity.on_report(&Digest::default(), 0.1);
        assert!((capacity.estimate(3e6, 1.0, false) - 3e6).abs() < 1.0);
    }

    #[test]
    fn what_was_sent_before_a_cut_is_not_remembered() {
        let mut capacity = measured(1e-3);
        capacity.remember(0.5, 0.1, 1.0);
        assert_eq!(capacity.peak(), None);
        capacity.remember(0.0, 0.1, 1.0);
        assert_eq!(capacity.peak(), capacity.measured);
    }
}
