//! Capacity of the path, measured in three ways.
//!
//! The input is packet arrivals and byte counts that the peer reports. The output is the rate at
//! which the bottleneck passes packets.
//!
//! - The packet-number rate counts lost packets as passed, so random loss does not change it.
//! - Packet [trains](train) show the capacity before the sender fills the path.
//! - The [delivery rate](delivery_rate) counts only bytes that arrived.
//!
//! The module also stores the capacity that was measured when the path was last full. The caller
//! chooses the sending rate.

use crate::congestion::knee::Mechanism;
mod delivery_rate;
mod train;

use std::collections::VecDeque;

use self::delivery_rate::DeliveryRate;
pub(super) use self::train::{PacketTrains, TRAIN_PACKETS_MAX, TRAIN_PACKETS_MIN, packets_to_time};
use super::extremes::{WindowedMax, path_window_s};
use crate::congestion::{Digest, PacketArrival};

/// Estimate of the path's capacity.
#[derive(Debug, Default)]
pub(super) struct CapacityEstimate {
    /// Packet arrivals from which the packet-number rate is computed, oldest first.
    points: VecDeque<PacketArrival>,
    /// Packet-number rate: bytes sent between two arrived packets, divided by the time between
    /// their arrivals. While competing flows share the path, the rate shows only our share.
    pub(super) measured: Option<f64>,
    /// Sending time of the oldest packet from which the packet-number rate is computed.
    measured_from_s: f64,
    /// Sending time of the newest packet that was reported while the application paused. `None` if
    /// the application never paused.
    ///
    /// If reports overtake each other, the first report about a burst may arrive long after the
    /// last report about the pause.
    paused_after_s: Option<f64>,
    /// Highest packet-number rate within [`path_window_s`].
    peak: WindowedMax,
    /// Capacity measured when the path was last full. The value is zero until the path is full for
    /// the first time.
    pub(super) known_bytes_per_s: f64,
    pub(super) trains: PacketTrains,
    delivered: DeliveryRate,
}

impl CapacityEstimate {
    /// Returns an estimate that keeps only the measurements that stay valid after a pause.
    pub(super) fn after_pause(self) -> Self {
        Self {
            known_bytes_per_s: self.known_bytes_per_s,
            ..Self::default()
        }
    }

    /// Adds an arrival. The caller has excluded packets that arrived out of order.
    pub(super) fn on_arrival(&mut self, arrival: &PacketArrival, base_s: f64) {
        let paused_s = |last: &PacketArrival| arrival.sent_s - last.sent_s;
        let pause_s = self.points.back().map_or(0.0, paused_s);
        if pause_s > POINTS_PAUSE_S.max(base_s) {
            // A rate measured across the pause would be the application's rate.
            self.points.clear();
        }
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(*arrival);
    }

    /// Updates all measurements after a report. The caller has already added the arrivals of the
    /// report.
    pub(super) fn on_report(&mut self, digest: &Digest<'_>, base_s: f64) {
        self.trains.measure(digest.arrivals);
        self.measure(base_s);
        if digest.app_limited {
            let resolved_s = digest.resolved.last().map(|packet| packet.sent_s);
            self.paused_after_s = resolved_s.or(self.paused_after_s);
            // The application, not the path, limits the rate at which packets arrive.
            self.delivered = DeliveryRate::default();
        } else {
            self.delivered.measure(digest.received, base_s);
        }
    }

    fn measure(&mut self, base_s: f64) {
        let span_min_s = (SPAN * base_s).max(SPAN_MIN_S);
        let Some(last) = self.points.back().copied() else {
            return;
        };
        // Keep one point that is old enough, and all newer points.
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

    /// Updates the recent peak with the measured rate, if all packets of the measurement were sent
    /// after the last cut.
    ///
    /// `cut_s` is the time of that cut. Before the cut the path dropped packets. The measured rate
    /// counted these packets as passed, and exceeded the path's capacity.
    pub(super) fn remember(&mut self, cut_s: f64, base_s: f64, now_s: f64) {
        let is_since_cut = |first: &PacketArrival| first.sent_s > cut_s;
        if let Some(capacity) = self.measured
            && self.points.front().is_some_and(is_since_cut)
        {
            self.peak.insert(capacity, now_s, path_window_s(base_s));
        }
    }

    /// Returns the capacity to store for a later connection: the capacity measured when the path
    /// was last full.
    ///
    /// If the path was never full, the function returns the newest measurement. Otherwise the
    /// newest measurement is ignored, since light traffic shows only the application's rate.
    pub(super) fn lasting(&self) -> Option<f64> {
        if self.known_bytes_per_s > 0.0 {
            Some(self.known_bytes_per_s)
        } else {
            self.measured
        }
    }

    /// Returns the highest packet-number rate of the recent past.
    pub(super) fn peak(&self) -> Option<f64> {
        self.peak.get()
    }

    /// Returns the delivery rate in bytes per second. Lost packets do not count.
    pub(super) fn delivered(&self) -> Option<f64> {
        self.delivered.rate_bytes_per_s()
    }

    /// Returns the estimated capacity in bytes per second, at least [`ESTIMATE_MIN`] times `sent`.
    ///
    /// `sent` is the sending rate of the last round trip in bytes per second. `passed` is the
    /// fraction of packets that are not dropped before the bottleneck. `was_app_limited` is set if
    /// the application paused recently.
    pub(super) fn estimate(&self, sent: f64, passed: f64, was_app_limited: bool) -> f64 {
        let least = Mechanism::EstimateMin.value(ESTIMATE_MIN, 0.01) * sent;
        let mut capacity = self.measured.unwrap_or(least);
        // If packets are dropped before the bottleneck, the measured rate is the sender's rate.
        capacity *= passed;
        let spans_pause = self
            .paused_after_s
            .is_some_and(|paused_s| self.measured_from_s <= paused_s);
        if Mechanism::PeakAfterPause.acts(was_app_limited || spans_pause) {
            // The measurement includes the pause, so the measured rate is too low. The queue shows
            // that the sender exceeded the capacity.
            let peak = self.peak().unwrap_or(capacity);
            capacity = capacity.max(peak.min(AFTER_PAUSE_MAX * sent));
        }
        capacity.max(least)
    }

    /// Sets the capacity as if the estimator had measured it.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, capacity: f64, now_s: f64) {
        self.measured = Some(capacity);
        self.peak.insert(capacity, now_s, path_window_s(0.0));
    }
}

/// Least span of the measurement, as a fraction of the base round-trip time. The span has at least
/// `SPAN_MIN_S` seconds and `PACKETS_MIN` packets.
///
/// A longer span is less noisy, but detects a change of the capacity with more delay.
const SPAN: f64 = 1.0 / 4.0;
const SPAN_MIN_S: f64 = 0.002;
const PACKETS_MIN: u64 = 16;
/// Time without packets after which the measurement discards all older arrivals. If the base
/// round-trip time is longer, it applies instead.
const POINTS_PAUSE_S: f64 = 1.0;
/// Maximum number of arrivals from which the capacity is computed.
const POINTS_MAX: usize = 4096;

/// Least estimate of the capacity, as a fraction of the sending rate of the last round trip.
///
/// A rate measured across an outage or a change of route is far too low.
const ESTIMATE_MIN: f64 = 0.5;
/// Upper limit of the recent peak, as a fraction of the sending rate of the last round trip. The
/// limit applies if the application paused recently.
///
/// The controller estimates the capacity because a queue has formed. The queue shows that the
/// sending rate was above the capacity.
const AFTER_PAUSE_MAX: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::knee::resolved_at;

    #[test]
    fn what_a_path_passed_when_it_was_full_outlasts_what_little_traffic_shows() {
        let mut capacity = CapacityEstimate {
            measured: Some(1e5),
            ..CapacityEstimate::default()
        };
        assert_eq!(capacity.lasting(), Some(1e5), "it was never full");
        capacity.known_bytes_per_s = 15e6;
        assert_eq!(capacity.lasting(), Some(15e6));
    }

    /// Returns a measurement of 200 packets of 1500 bytes. The sender sent one packet each
    /// `spacing_s` seconds, and every third packet was lost.
    fn measured(spacing_s: f64) -> CapacityEstimate {
        let mut capacity = CapacityEstimate::default();
        for number in (0..200).filter(|number| number % 3 != 0) {
            let sent_s = number as f64 * spacing_s;
            let arrival = PacketArrival {
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

    /// Regression test: after a pause, the first report about a burst showed a queue. This report
    /// arrived long after the last report about the pause.
    ///
    /// The estimator then assumed half of the sending rate as the capacity. In the bench with 10 %
    /// overtaking packets, a transfer took a third longer.
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
        let in_burst = |number: u64| PacketArrival {
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
