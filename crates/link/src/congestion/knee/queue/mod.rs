//! Queueing delay of the path, and the base round-trip time.
//!
//! The input is round-trip times, packet arrivals, and the times of cuts. The output is the
//! queueing delay, the threshold that ends growth, and the jitter of the path. The output also
//! states whether the delay was measured since the last cut. The [`mode`](super::mode) decides how
//! to react to a queue.
//!
//! The queueing delay is a difference: the least one-way delay of the newest packets, minus the
//! least one-way delay of the recent past. The fastest of the newest packets do not count
//! ([`delays`]).

use crate::congestion::knee::Mechanism;
mod base_rtt;
mod delays;
mod ramp;

use self::{base_rtt::BaseRtt, delays::OneWayDelays, ramp::DelayRamp};
use super::extremes::{WindowedMax, path_window_s};
use crate::congestion::PacketArrival;

/// Measured queue of the path, and the round-trip time without the queue.
#[derive(Debug)]
pub(super) struct QueueEstimate {
    base: BaseRtt,
    delays: OneWayDelays,
    /// One-way queueing delay, in seconds.
    pub(super) delay_s: f64,
    /// Sending time of the last packet that measured the queueing delay.
    pub(super) sent_s: f64,
    /// Total of bytes sent before the last packet that measured the queueing delay.
    sent_bytes_before: u64,
    /// Whether packets sent after the last cut measured the queueing delay.
    pub(super) is_fresh: bool,
    /// Time of the last cut. Packets sent earlier measured the queue before the cut.
    cut_s: f64,
    /// Longest queueing delay within [`path_window_s`].
    peak: WindowedMax,
    /// Growth of the delay over the packets of a route test. `None` while no route test runs.
    ramp: Option<DelayRamp>,
    /// Upper limit of the queue threshold, in seconds. The limit is finite if a shallow queue has
    /// dropped packets before the usual threshold.
    pub(super) threshold_cap_s: f64,
    /// Whether a drain has emptied the queue at least once. The base delay is then free of queueing
    /// delay.
    pub(super) has_emptied: bool,
    /// Whether a longer route was adopted since the last call of
    /// [`take_longer_route`](Self::take_longer_route).
    is_rerouted: bool,
}

impl QueueEstimate {
    pub(super) fn new() -> Self {
        Self {
            base: BaseRtt::default(),
            delays: OneWayDelays::new(),
            delay_s: 0.0,
            sent_s: 0.0,
            sent_bytes_before: 0,
            is_fresh: false,
            cut_s: 0.0,
            peak: WindowedMax::default(),
            ramp: None,
            threshold_cap_s: f64::INFINITY,
            has_emptied: false,
            is_rerouted: false,
        }
    }

    /// Returns the measurements that stay valid after a pause.
    pub(super) fn after_pause(self) -> Self {
        Self {
            base: self.base.after_pause(),
            delays: self.delays.after_pause(),
            threshold_cap_s: self.threshold_cap_s,
            is_rerouted: self.is_rerouted,
            ..Self::new()
        }
    }

    /// Returns the base round-trip time in seconds: the least round-trip time of the recent past.
    pub(super) fn base_rtt_s(&self) -> f64 {
        self.base.get_s()
    }

    /// Returns the expected queueing delay of a packet sent now, in seconds. `capacity` is the
    /// capacity of the path in bytes per second.
    ///
    /// The result is the measured queueing delay plus the effect of the bytes sent since that
    /// measurement. `bytes_sent` is the total of bytes sent.
    pub(super) fn expected_s(&self, capacity: f64, bytes_sent: u64, now_s: f64) -> f64 {
        let bytes = bytes_sent.saturating_sub(self.sent_bytes_before);
        let since_s = now_s - self.sent_s;
        (self.delay_s + bytes as f64 / capacity - since_s).max(0.0)
    }

    /// Returns the base round-trip time plus the present queueing delay, in seconds.
    pub(super) fn rtt_s(&self) -> f64 {
        self.base_rtt_s() + self.delay_s
    }

    /// Returns the time of the last cut. Only packets sent later show the effect of the cut.
    pub(super) fn cut_s(&self) -> f64 {
        self.cut_s
    }

    /// Adds the round-trip time `rtt_s`. `own_queue_max_s` is the longest queueing delay that
    /// packets of this sender can cause.
    pub(super) fn on_rtt(&mut self, rtt_s: f64, own_queue_max_s: f64, now_s: f64) {
        self.base.insert(rtt_s, own_queue_max_s, self.cut_s, now_s);
    }

    /// Adds the arrival of a packet. `base_s` is the base round-trip time.
    ///
    /// Returns whether the arrival is evidence about the path. A packet that overtook other
    /// packets, or arrived after later packets, is no evidence.
    pub(super) fn on_arrival(&mut self, arrival: &PacketArrival, base_s: f64, now_s: f64) -> bool {
        let is_telling = self.delays.is_telling(arrival, base_s);
        if is_telling && !arrival.in_train {
            self.measure(arrival, base_s, now_s);
        }
        is_telling
    }

    fn measure(&mut self, arrival: &PacketArrival, base_s: f64, now_s: f64) {
        if let Some(ramp) = &mut self.ramp {
            ramp.on_arrival(arrival);
        }
        let is_fresh = arrival.sent_s > self.cut_s;
        if let Some(excess_s) = self.delays.insert(arrival, is_fresh, base_s, now_s) {
            self.sent_s = arrival.sent_s;
            self.sent_bytes_before = arrival.sent_bytes_before;
            self.delay_s = excess_s;
            self.is_fresh = is_fresh;
            self.peak.insert(self.delay_s, now_s, path_window_s(base_s));
        }
    }

    /// Adopts the newest base round-trip time if it has changed suddenly. `queue_s` is the queueing
    /// delay before the change.
    ///
    /// Returns the factor by which the window must change to keep the rate. Returns 1 if nothing
    /// has changed.
    pub(super) fn follow_base_rtt(&mut self, queue_s: f64, now_s: f64) -> f64 {
        let Some((before_s, base_s)) = self.base.change_s() else {
            return 1.0;
        };
        if base_s < before_s {
            return base_s / before_s;
        }
        // The former least delay is too old to count.
        self.delays.forget_base();
        self.forget(now_s);
        self.delay_s = 0.0;
        base_s / (before_s + queue_s)
    }

    /// Marks a cut. From now on, only packets sent after `now_s` show whether the queue is empty.
    pub(super) fn forget(&mut self, now_s: f64) {
        self.cut_s = now_s;
        self.is_fresh = false;
        self.base.forget_cut();
        self.delays.forget_bucket();
    }

    /// Adds the present queueing delay to the base delay, because the apparent queue is a longer
    /// route.
    pub(super) fn adopt_longer_route(&mut self, now_s: f64) {
        if self.delays.base_is_known() && self.base.is_known() {
            self.delays.rebase(self.delay_s, now_s);
            // The route of the reports may have become longer, too.
            self.base.rebase(self.delay_s, now_s);
            self.forget(now_s);
            self.delay_s = 0.0;
        }
        self.base.accept_change();
        self.is_rerouted = true;
    }

    /// Returns whether the route has become longer since the last call.
    pub(super) fn take_longer_route(&mut self) -> bool {
        std::mem::take(&mut self.is_rerouted)
    }

    /// Returns the queueing delay at which growth ends, in seconds. The sender sends `rate` bytes
    /// per second in packets of `packet_bytes` bytes.
    ///
    /// The threshold is above the jitter, but small enough for a buffer of a tenth of the
    /// bandwidth-delay product. At low rates the threshold is longer, because the delays of packets
    /// sent far apart vary more.
    pub(super) fn threshold_s(&self, rate: f64, packet_bytes: f64) -> f64 {
        let packets_s = THRESHOLD_PACKETS * packet_bytes / rate.max(packet_bytes / self.rtt_s());
        let packets_s = Mechanism::ThresholdPackets.value(packets_s, 0.0);
        // A queue within the jitter of delays cannot be detected, however shallow it is.
        let cap_s = self
            .threshold_cap_s
            .max(Mechanism::CapAboveJitter.value(ABOVE_JITTER * self.delays.jitter_s(), 0.0));
        visible_delay_s(self.base_rtt_s()).max(packets_s).min(cap_s)
    }

    /// Whether the jitter of the path exceeds the largest delay that counts as an empty queue. The
    /// result does not depend on a threshold that was lowered for a shallow queue.
    pub(super) fn jitters(&self, threshold_s: f64) -> bool {
        let threshold_s = threshold_s.max(visible_delay_s(self.base_rtt_s()));
        self.delays.jitter_s() >= EMPTY_PART * threshold_s
    }

    /// Returns the queueing delay at which start-up ends, in seconds. `threshold_s` is the usual
    /// threshold.
    ///
    /// The base delay is the least delay of a few packets at a low rate. On a path with jitter,
    /// later packets have longer delays even without a queue.
    pub(super) fn start_threshold_s(&self, threshold_s: f64) -> f64 {
        // The jitter adds at most twice the least visible fraction of the base round-trip time.
        let jitter_max_s = 2.0 * VISIBLE_PART * self.base_rtt_s();
        let jitter_s = self.delays.jitter_s().min(jitter_max_s);
        threshold_s + Mechanism::StartJitter.value(jitter_s, 0.0)
    }

    /// Whether the queueing delay is above the threshold. Returns false until packets sent after
    /// the last cut have measured the queue.
    pub(super) fn shows(&self, threshold_s: f64) -> bool {
        self.is_fresh && self.delay_s > threshold_s
    }

    /// Whether the queue counts as empty. The measurement may come from packets sent before the
    /// last cut.
    pub(super) fn is_empty(&self, threshold_s: f64) -> bool {
        self.delay_s <= EMPTY_PART * threshold_s
    }

    /// Whether the queue is empty. Returns false until packets sent after the last cut have
    /// measured the queue.
    pub(super) fn is_seen_empty(&self, threshold_s: f64) -> bool {
        self.is_fresh && self.is_empty(threshold_s)
    }

    /// Whether any queueing delay was measured. If not, losses come from a limit without a queue,
    /// such as a policer.
    pub(super) fn is_there(&self) -> bool {
        self.delay_s > NO_QUEUE_S
    }

    /// Whether the queueing delay is near its maximum of the recent past.
    pub(super) fn is_at_peak(&self) -> bool {
        self.peak
            .get()
            .is_some_and(|peak_s| self.delay_s >= AT_PEAK * peak_s)
    }

    /// Lowers the queue threshold, because the bottleneck drops packets before the queue reaches
    /// it. `packet_s` is the sending time of one packet.
    pub(super) fn lower_threshold(&mut self, packet_s: f64) {
        // Half of the packets that the usual threshold permits.
        let least_s = SHALLOWEST_S.max(THRESHOLD_PACKETS / 2.0 * packet_s);
        self.threshold_cap_s = (SHALLOW_PART * self.delay_s).max(least_s);
    }

    /// Raises a lowered queue threshold after the queue has reached the threshold without loss.
    pub(super) fn raise_threshold(&mut self) {
        if Mechanism::DeeperQueue.acts(self.threshold_cap_s.is_finite()) {
            self.threshold_cap_s *= THRESHOLD_CAP_GROWTH;
        }
    }

    /// Starts to measure whether the delay grows over the packets sent between `from_s` and
    /// `until_s`.
    pub(super) fn watch_ramp(&mut self, from_s: f64, until_s: f64) {
        self.ramp = Some(DelayRamp::new(from_s, until_s));
    }

    /// Returns the delay of the last watched packets minus the delay of the first watched packets,
    /// in seconds. Returns `None` until both delays are known.
    pub(super) fn ramp_rise_s(&self) -> Option<f64> {
        self.ramp?.rise_s()
    }

    pub(super) fn forget_ramp(&mut self) {
        self.ramp = None;
    }

    /// Sets the base delay and the base round-trip time as if they had been measured.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, base_s: f64, now_s: f64) {
        self.base.pretend(base_s, now_s);
        self.base.accept_change();
        self.delays.pretend(base_s / 2.0, now_s);
    }
}

/// Returns the least queueing delay that can be distinguished from jitter, in seconds. `base_s` is
/// the base round-trip time.
fn visible_delay_s(base_s: f64) -> f64 {
    (VISIBLE_PART * base_s).max(VISIBLE_MIN_S)
}

/// Least visible queueing delay, as a fraction of the base round-trip time.
///
/// The value is large enough to exceed usual jitter. It is small enough that growth ends before a
/// buffer of a tenth of the bandwidth-delay product overflows.
const VISIBLE_PART: f64 = 1.0 / 16.0;
/// Least visible queueing delay, in seconds. Timers and reports are not more precise.
const VISIBLE_MIN_S: f64 = 0.002;
/// Least queue threshold, in sending times of a packet. On a slow path, a queue of a few packets
/// forms by chance. At 10 Mbit/s the threshold is 7 ms.
const THRESHOLD_PACKETS: f64 = 6.0;
/// Fraction of the threshold up to which the queue counts as empty. With a larger fraction, jitter
/// alone could end growth directly after a drain.
const EMPTY_PART: f64 = 0.5;
/// Largest queueing delay in seconds that does not count as a queue: the sending time of one packet
/// at 60 Mbit/s.
const NO_QUEUE_S: f64 = 0.000_2;
/// Fraction of the longest recent queueing delay. A queue of at least this length is at its peak.
const AT_PEAK: f64 = 0.9;

/// New queue threshold, as a fraction of the present queueing delay. The value applies if packets
/// are lost before the queue reaches the old threshold. Growth must end before the queue becomes
/// that long again.
const SHALLOW_PART: f64 = 0.5;
/// Least queue threshold in seconds after losses. A shorter queueing delay cannot be distinguished
/// from the noise of receive times.
const SHALLOWEST_S: f64 = 0.000_3;
/// Minimum for the upper limit of the queue threshold, as a multiple of the jitter.
///
/// Without this minimum, every change of the delay would end growth. After one loss at a shallow
/// queue, each further drain would then reduce the rate.
const ABOVE_JITTER: f64 = 1.25;
/// Factor by which the upper limit of the threshold grows after a queue without loss. The limit
/// doubles in 35 drains.
const THRESHOLD_CAP_GROWTH: f64 = 1.02;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the measured queue after `count` packets, one per millisecond. The packet `n` is
    /// late by `delay_ms(n)`.
    fn queue(count: u64, delay_ms: impl Fn(u64) -> f64) -> QueueEstimate {
        let mut queue = QueueEstimate::new();
        for number in 0..count {
            let sent_s = number as f64 * 1e-3;
            let arrival = PacketArrival {
                number: number + 1,
                sent_s,
                received_s: sent_s + delay_ms(number) * 1e-3,
                sent_bytes_before: number * 1500,
                in_train: false,
            };
            queue.on_rtt(0.02, 0.0, sent_s + 0.02);
            queue.on_arrival(&arrival, queue.base_rtt_s(), sent_s + 0.02);
        }
        queue
    }

    fn queue_ms(count: u64, delay_ms: impl Fn(u64) -> f64) -> f64 {
        queue(count, delay_ms).delay_s * 1e3
    }

    #[test]
    fn a_base_is_believed_when_two_buckets_have_seen_it() {
        let hiccup = |number| if number == 500 { 9.0 } else { 10.0 };
        assert!(queue_ms(1000, hiccup) < 0.001);
        let shorter = |number| {
            if (500..600).contains(&number) {
                9.0
            } else {
                10.0
            }
        };
        assert!((queue_ms(1000, shorter) - 1.0).abs() < 0.001);
    }

    #[test]
    fn the_fast_quarter_of_a_bucket_is_neither_the_base_nor_an_empty_queue() {
        let fast = |number: u64| if number % 16 == 3 { 2.0 } else { 10.0 };
        assert!(queue_ms(1000, fast) < 0.001, "as a queue");
        let waits = |number: u64| fast(number) + if number < 500 { 0.0 } else { 8.0 };
        assert!(
            (queue_ms(1000, waits) - 8.0).abs() < 0.001,
            "not an empty one"
        );
    }

    #[test]
    fn packets_that_come_in_last_and_late_are_no_queue() {
        let grows = |number| if number < 990 { 10.0 } else { 110.0 };
        assert!(queue_ms(1000, grows) > 90.0, "those sent last do show one");
        // These packets were sent before the other packets, and arrive after a pause.
        let mut queue = QueueEstimate::new();
        queue.on_rtt(0.02, 0.0, 1.2);
        for number in (20..1000).chain(1..20_u64) {
            let sent_s = number as f64 * 1e-3;
            let delay_s = if number < 20 { 1.1 } else { 0.01 };
            let arrival = PacketArrival {
                number,
                sent_s,
                received_s: sent_s + delay_s,
                sent_bytes_before: number * 1500,
                in_train: false,
            };
            queue.on_arrival(&arrival, 0.02, 1.2);
        }
        assert!(queue.delay_s < 1e-6);
    }

    #[test]
    fn only_what_was_sent_since_the_cut_shows_a_queue_or_an_empty_one() {
        let waits = |number| if number < 500 { 10.0 } else { 18.0 };
        let mut queue = queue(1000, waits);
        let threshold_s = queue.threshold_s(1.5e6, 1500.0);
        assert!((threshold_s - 0.006).abs() < 1e-9, "six packets");
        assert!(queue.shows(threshold_s) && queue.is_at_peak());
        queue.forget(1.0);
        assert!(!queue.shows(threshold_s) && !queue.is_seen_empty(threshold_s));
    }

    #[test]
    fn a_queue_that_drops_early_lowers_the_threshold_and_one_that_does_not_raises_it() {
        let mut queue = queue(1000, |number| if number < 500 { 10.0 } else { 13.0 });
        queue.raise_threshold();
        assert_eq!(queue.threshold_cap_s, f64::INFINITY);
        queue.lower_threshold(1e-4);
        assert!((queue.threshold_s(15e6, 1500.0) - 0.001_5).abs() < 1e-6);
        queue.raise_threshold();
        assert!(queue.threshold_s(15e6, 1500.0) > 0.001_5);
    }

    #[test]
    fn start_up_leaves_an_eighth_of_the_base_rtt_to_jitter_at_most() {
        let added_ms = |jitter_ms: f64| {
            let queue = queue(1000, |number| 10.0 + (number % 2) as f64 * jitter_ms);
            (queue.start_threshold_s(0.0) * 1e3 * 100.0).round() / 100.0
        };
        assert_eq!(added_ms(1.5), 1.5);
        assert_eq!(added_ms(4.0), 2.5);
    }

    #[test]
    fn a_longer_route_is_reported_once_and_has_no_queue() {
        let waits = |number| if number < 500 { 10.0 } else { 60.0 };
        let mut queue = queue(1000, waits);
        queue.adopt_longer_route(1.0);
        assert_eq!(queue.delay_s, 0.0);
        assert!(queue.take_longer_route() && !queue.take_longer_route());
        assert_eq!(queue.follow_base_rtt(0.0, 1.1), 1.0, "it is known already");
    }
}
