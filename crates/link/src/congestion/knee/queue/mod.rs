//! How long is the queue now, is it empty, does it show, and what is the base RTT?
//!
//! In: round-trip times, arrivals, and the times of cuts. Out: the queueing delay, whether it was measured on packets
//! sent since the last cut, how it compares with the threshold that ends growth, and whether the path jitters. What to do
//! about a queue is for the [`mode`](super::mode) to say.
//!
//! The queueing delay is the least one-way delay of the newest few packets, less the least of the recent past, where the
//! fastest of the few are set aside ([`delays`]).

use crate::congestion::knee::Mechanism;
mod base_rtt;
mod delays;
mod ramp;

use self::{base_rtt::BaseRtt, delays::Delays, ramp::Ramp};
use super::extremes::{WindowedMax, path_window_s};
use crate::congestion::Arrival;

/// The queue of the path, and the path's round-trip time without it.
#[derive(Debug)]
pub(super) struct Queue {
    base: BaseRtt,
    delays: Delays,
    /// Queueing delay, one way, in seconds.
    pub(super) delay_s: f64,
    /// When the last of the packets was sent that it was measured on.
    pub(super) sent_s: f64,
    /// Bytes sent before that packet.
    sent_bytes_before: u64,
    /// It was measured on packets sent after the last cut.
    pub(super) is_fresh: bool,
    /// Packets sent before this time measured the queue as it was before the last cut.
    cut_s: f64,
    /// The longest queueing delay of the recent past.
    peak: WindowedMax,
    /// Whether the delay grows over packets of a span of time, while that is of interest.
    ramp: Option<Ramp>,
    /// Upper bound of the threshold of queueing delay: a shallow queue drops before the usual one.
    pub(super) threshold_cap_s: f64,
    /// A drain has emptied the queue at least once: the base delay is the path's.
    pub(super) has_emptied: bool,
    /// The route has become longer, and nobody has asked yet.
    is_rerouted: bool,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            base: BaseRtt::default(),
            delays: Delays::new(),
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

    /// What is left to measure with after a pause.
    pub(super) fn after_pause(self) -> Self {
        Self {
            base: self.base.after_pause(),
            delays: self.delays.after_pause(),
            threshold_cap_s: self.threshold_cap_s,
            is_rerouted: self.is_rerouted,
            ..Self::new()
        }
    }

    /// The least round-trip time of the recent past, in seconds.
    pub(super) fn base_rtt_s(&self) -> f64 {
        self.base.get_s()
    }

    /// The queue that a packet sent now will meet in front of `capacity` bytes per second, in seconds: what was measured,
    /// and what was sent since beyond what the path passes. `bytes_sent`: in all.
    pub(super) fn expected_s(&self, capacity: f64, bytes_sent: u64, now_s: f64) -> f64 {
        let bytes = bytes_sent.saturating_sub(self.sent_bytes_before);
        let since_s = now_s - self.sent_s;
        (self.delay_s + bytes as f64 / capacity - since_s).max(0.0)
    }

    /// The round-trip time with the present queue, in seconds.
    pub(super) fn rtt_s(&self) -> f64 {
        self.base_rtt_s() + self.delay_s
    }

    /// When the last cut was. Only packets sent later show what came of it.
    pub(super) fn cut_s(&self) -> f64 {
        self.cut_s
    }

    /// Takes in a round-trip time. A queue of our own packets may be `own_queue_max_s` long.
    pub(super) fn on_rtt(&mut self, rtt_s: f64, own_queue_max_s: f64, now_s: f64) {
        self.base.insert(rtt_s, own_queue_max_s, self.cut_s, now_s);
    }

    /// Takes in the arrival of a packet on a path with the base RTT `base_s`. Returns whether it says something of the
    /// path.
    pub(super) fn on_arrival(&mut self, arrival: &Arrival, base_s: f64, now_s: f64) -> bool {
        let is_telling = self.delays.is_telling(arrival, base_s);
        if is_telling && !arrival.in_train {
            self.measure(arrival, base_s, now_s);
        }
        is_telling
    }

    fn measure(&mut self, arrival: &Arrival, base_s: f64, now_s: f64) {
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

    /// Follows the base RTT to that of another path, where the queue was `queue_s` long before. Returns by which
    /// factor that changes the product of a rate and the round-trip time.
    pub(super) fn follow_base_rtt(&mut self, queue_s: f64, now_s: f64) -> f64 {
        let Some((before_s, base_s)) = self.base.change_s() else {
            return 1.0;
        };
        if base_s < before_s {
            return base_s / before_s;
        }
        // What was the least before is too old to count.
        self.delays.forget_base();
        self.forget(now_s);
        self.delay_s = 0.0;
        base_s / (before_s + queue_s)
    }

    /// A cut: from now on only packets sent after `now_s` show whether the queue empties.
    pub(super) fn forget(&mut self, now_s: f64) {
        self.cut_s = now_s;
        self.is_fresh = false;
        self.base.forget_cut();
        self.delays.forget_bucket();
    }

    /// Takes what seemed a queue for a longer route.
    pub(super) fn adopt_longer_route(&mut self, now_s: f64) {
        if self.delays.base_is_known() && self.base.is_known() {
            self.delays.rebase(self.delay_s, now_s);
            // The way back may have become longer, too.
            self.base.rebase(self.delay_s, now_s);
            self.forget(now_s);
            self.delay_s = 0.0;
        }
        self.base.accept_change();
        self.is_rerouted = true;
    }

    /// Whether the route has become longer since the last call.
    pub(super) fn take_longer_route(&mut self) -> bool {
        std::mem::take(&mut self.is_rerouted)
    }

    /// Queueing delay that ends growth at `rate` bytes per second in packets of `packet` bytes: visible over jitter,
    /// yet within a queue of a tenth of the bandwidth-delay product. Packets that are farther apart vary more.
    pub(super) fn threshold_s(&self, rate: f64, packet: f64) -> f64 {
        let packets_s = THRESHOLD_PACKETS * packet / rate.max(packet / self.rtt_s());
        let packets_s = Mechanism::ThresholdPackets.value(packets_s, 0.0);
        // Within what delays jitter by, a queue cannot be told, however shallow it is.
        let cap_s = self
            .threshold_cap_s
            .max(Mechanism::CapAboveJitter.value(ABOVE_JITTER * self.delays.jitter_s(), 0.0));
        visible_delay_s(self.base_rtt_s()).max(packets_s).min(cap_s)
    }

    /// Whether the path jitters by more than what counts as an empty queue, however shallow queues are.
    pub(super) fn jitters(&self, threshold_s: f64) -> bool {
        let threshold_s = threshold_s.max(visible_delay_s(self.base_rtt_s()));
        self.delays.jitter_s() >= EMPTY_PART * threshold_s
    }

    /// The threshold of start-up, where the usual one is `threshold_s`. The base delay is what a few packets at a low rate had
    /// at best: on a path that jitters others take longer, the more of them the longer, and wait in no queue.
    pub(super) fn start_threshold_s(&self, threshold_s: f64) -> f64 {
        // The jitter counts for twice the usual part of the base RTT at most.
        let jitter_max_s = 2.0 * VISIBLE_PART * self.base_rtt_s();
        let jitter_s = self.delays.jitter_s().min(jitter_max_s);
        threshold_s + Mechanism::StartJitter.value(jitter_s, 0.0)
    }

    /// Whether packets sent since the last cut show a queue beyond the threshold.
    pub(super) fn shows(&self, threshold_s: f64) -> bool {
        self.is_fresh && self.delay_s > threshold_s
    }

    /// Whether the queue counts as empty, by whatever packets it was measured on.
    pub(super) fn is_empty(&self, threshold_s: f64) -> bool {
        self.delay_s <= EMPTY_PART * threshold_s
    }

    /// Whether packets sent since the last cut show no queue.
    pub(super) fn is_seen_empty(&self, threshold_s: f64) -> bool {
        self.is_fresh && self.is_empty(threshold_s)
    }

    /// Whether there is any queue at all: a loss without one comes from a limit that has none.
    pub(super) fn is_there(&self) -> bool {
        self.delay_s > NO_QUEUE_S
    }

    /// Whether the queue is about as long as it was at its longest of late.
    pub(super) fn is_at_peak(&self) -> bool {
        self.peak
            .get()
            .is_some_and(|peak_s| self.delay_s >= AT_PEAK * peak_s)
    }

    /// Packets that take `packet_s` each were lost before the queue reached the threshold: it is shallower than that.
    pub(super) fn lower_threshold(&mut self, packet_s: f64) {
        // Half of the packets that the usual threshold allows for.
        let least_s = SHALLOWEST_S.max(THRESHOLD_PACKETS / 2.0 * packet_s);
        self.threshold_cap_s = (SHALLOW_PART * self.delay_s).max(least_s);
    }

    /// The queue reached the threshold without loss: it is deeper than the one that dropped.
    pub(super) fn raise_threshold(&mut self) {
        if Mechanism::DeeperQueue.acts(self.threshold_cap_s.is_finite()) {
            self.threshold_cap_s *= THRESHOLD_CAP_GROWTH;
        }
    }

    /// Watches the delays of the packets that are sent in a span of time.
    pub(super) fn watch_ramp(&mut self, from_s: f64, until_s: f64) {
        self.ramp = Some(Ramp::new(from_s, until_s));
    }

    /// How much longer the last of those packets took than the first, once that is known.
    pub(super) fn ramp_rise_s(&self) -> Option<f64> {
        self.ramp?.rise_s()
    }

    pub(super) fn forget_ramp(&mut self) {
        self.ramp = None;
    }

    /// As if it had measured this.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, base_s: f64, now_s: f64) {
        self.base.pretend(base_s, now_s);
        self.base.accept_change();
        self.delays.pretend(base_s / 2.0, now_s);
    }
}

/// Queueing delay that shows over jitter, on a path with the base RTT `base_s`.
fn visible_delay_s(base_s: f64) -> f64 {
    (VISIBLE_PART * base_s).max(VISIBLE_MIN_S)
}

/// A delay of this part of the round-trip time shows: large enough to be seen over jitter, small enough to
/// fit, with its overshoot, a queue of a tenth of the bandwidth-delay product.
const VISIBLE_PART: f64 = 1.0 / 16.0;
/// ... and of this much at least: timers and reports are no more precise.
const VISIBLE_MIN_S: f64 = 0.002;
/// The threshold of queueing delay is this many packets' sending times at least: on a slow line a
/// queue of a few packets is there by chance. At 10 Mbit/s that makes 7 ms.
const THRESHOLD_PACKETS: f64 = 6.0;
/// Up to this part of the threshold the queue counts as empty. The rest keeps jitter from turning a drain
/// that ends into growth that ends.
const EMPTY_PART: f64 = 0.5;
/// Queueing delay up to this is none. It is the sending time of one packet at 60 Mbit/s.
const NO_QUEUE_S: f64 = 0.000_2;
/// A queue of this part of the longest of late is at its peak.
const AT_PEAK: f64 = 0.9;

/// Loss before the threshold lowers it to this part of the queue that there was: growth must end before
/// the queue is as long again.
const SHALLOW_PART: f64 = 0.5;
/// The threshold of queueing delay never goes below this: a shorter queue cannot be told from the noise of
/// receive times.
const SHALLOWEST_S: f64 = 0.000_3;
/// A bound of the threshold is no lower than this multiple of the jitter. Growth would end at every jump of a delay, and a path
/// that has dropped packets once would lose its rate drain by drain.
const ABOVE_JITTER: f64 = 1.25;
/// A queue that shows without loss widens the bound of the threshold by this factor. The bound doubles in 35 drains.
const THRESHOLD_CAP_GROWTH: f64 = 1.02;

#[cfg(test)]
mod tests {
    use super::*;

    /// The queue seen after a packet each millisecond, `delay_ms` late each.
    fn queue(count: u64, delay_ms: impl Fn(u64) -> f64) -> Queue {
        let mut queue = Queue::new();
        for number in 0..count {
            let sent_s = number as f64 * 1e-3;
            let arrival = Arrival {
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
        // These were sent before the others, and come in after a pause.
        let mut queue = Queue::new();
        queue.on_rtt(0.02, 0.0, 1.2);
        for number in (20..1000).chain(1..20_u64) {
            let sent_s = number as f64 * 1e-3;
            let delay_s = if number < 20 { 1.1 } else { 0.01 };
            let arrival = Arrival {
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
    fn a_longer_route_is_told_of_once_and_has_no_queue() {
        let waits = |number| if number < 500 { 10.0 } else { 60.0 };
        let mut queue = queue(1000, waits);
        queue.adopt_longer_route(1.0);
        assert_eq!(queue.delay_s, 0.0);
        assert!(queue.take_longer_route() && !queue.take_longer_route());
        assert_eq!(queue.follow_base_rtt(0.0, 1.1), 1.0, "it is known already");
    }
}
