//! State shared by all modes: the window, and the measurements behind the choice of its size.
//!
//! The input is reports, packets sent, and cuts. The output is figures that need more than one
//! measurement: the rate, the length of a round, the threshold of queueing delay, and the capacity.
//! The [modes](super::mode) decide which of them matters.

use super::{
    capacity::CapacityEstimate,
    competing_flows::{CompetingFlows, KneePolicy},
    floor::LossFloor,
    policer_detector::PolicerDetector,
    queue::QueueEstimate,
    report_times::ReportTimes,
};
use crate::congestion::knee::Mechanism;
use crate::congestion::{Digest, PathMemory};

/// Window and measurements of the path.
#[derive(Debug)]
pub(super) struct PathModel {
    pub(super) queue: QueueEstimate,
    pub(super) capacity: CapacityEstimate,
    pub(super) floor: LossFloor,
    pub(super) competing_flows: CompetingFlows,
    pub(super) policer: PolicerDetector,
    pub(super) reports: ReportTimes,
    /// Target of bytes in flight. It fills the path and no queue, except beside competing flows:
    /// there it is CUBIC's window.
    pub(super) window_bytes: f64,
    /// Size of a packet on the wire, moving average, in bytes.
    pub(super) packet_bytes: f64,
    /// Whether the last cut was for loss, so that growth is gentle.
    pub(super) is_gentle: bool,
    round_began_s: f64,
    /// Bytes in flight, according to reports.
    pub(super) in_flight_bytes: f64,
    /// Bytes sent until the last report.
    bytes_sent: u64,
    /// Arrival of the last report.
    reported_s: f64,
}

impl PathModel {
    /// Creates a model with a window of `window_bytes` bytes and earlier measurements of the path.
    pub(super) fn new(policy: KneePolicy, window_bytes: f64, memory: Option<PathMemory>) -> Self {
        Self {
            queue: QueueEstimate::new(),
            capacity: CapacityEstimate::default(),
            floor: LossFloor::new(memory.map(|memory| memory.loss_floor)),
            competing_flows: CompetingFlows::new(policy),
            policer: PolicerDetector::default(),
            reports: ReportTimes::default(),
            window_bytes,
            packet_bytes: PACKET_GUESS,
            is_gentle: false,
            round_began_s: 0.0,
            in_flight_bytes: 0.0,
            bytes_sent: 0,
            reported_s: 0.0,
        }
    }

    /// Adds the delays and rates of a report. The queue was `queue_s` long.
    ///
    /// Returns the factor by which the product of a rate and the base round-trip time changes, if
    /// the path has become another one.
    pub(super) fn measure(&mut self, digest: &Digest<'_>, queue_s: f64, now_s: f64) -> f64 {
        if let Some(rtt_s) = digest.rtt_s {
            // Time that the packets in flight take at the rate of a train.
            let used = (digest.bytes_in_flight + digest.resolved_bytes()) as f64;
            let own_queue_max_s = used / self.capacity.trains.shown_max();
            self.queue.on_rtt(rtt_s, own_queue_max_s, now_s);
        }
        let base_s = self.base_s();
        self.reports.on_report(digest, base_s, now_s);
        for arrival in digest.arrivals {
            if self.queue.on_arrival(arrival, base_s, now_s) {
                self.capacity.on_arrival(arrival, base_s);
            }
        }
        self.capacity.on_report(digest, base_s);
        self.in_flight_bytes = digest.bytes_in_flight as f64;
        self.bytes_sent = digest.bytes_sent;
        self.reported_s = now_s;
        match digest.rtt_s {
            Some(_) => self.queue.follow_base_rtt(queue_s, now_s),
            None => 1.0,
        }
    }

    /// Counts the losses of a report.
    pub(super) fn count_losses(&mut self, digest: &Digest<'_>, now_s: f64) {
        self.floor.update(digest.resolved, digest.late_sent_s);
        if !self.floor.is_exceeded() {
            self.capacity
                .remember(self.queue.cut_s(), self.base_s(), now_s);
        }
    }

    /// Records a sent packet of `bytes` bytes.
    pub(super) fn on_sent(&mut self, bytes: usize, now_s: f64) {
        self.in_flight_bytes += bytes as f64;
        let is_first = self.reports.on_sent(now_s);
        if is_first {
            self.begin_round(now_s);
        }
        if bytes > FULL_PACKET_MIN_BYTES {
            self.packet_bytes += (bytes as f64 - self.packet_bytes) * PACKET_WEIGHT;
        }
    }

    /// Discards measurements that are too old. Only the window stays, as a guess.
    pub(super) fn look_again(&mut self, now_s: f64) {
        let queue = std::mem::replace(&mut self.queue, QueueEstimate::new());
        self.queue = queue.after_pause();
        self.capacity = std::mem::take(&mut self.capacity).after_pause();
        self.reports.forget_gaps();
        self.policer = PolicerDetector::default();
        self.mark_cut(now_s);
    }

    pub(super) fn base_s(&self) -> f64 {
        self.queue.base_rtt_s()
    }

    pub(super) fn rtt_s(&self) -> f64 {
        self.queue.rtt_s()
    }

    /// Returns the rate of the window, in bytes per second.
    pub(super) fn rate_bytes_per_s(&self) -> f64 {
        self.window_bytes / self.rtt_s()
    }

    /// Returns the queueing delay that a packet sent now will meet in front of `capacity` bytes per
    /// second, in seconds.
    pub(super) fn queue_ahead_s(&self, capacity: f64) -> f64 {
        self.queue
            .expected_s(capacity, self.bytes_sent, self.reported_s)
    }

    /// Whether a path of this capacity is short: a few packets fill it, so that measurements are
    /// mostly chance.
    pub(super) fn is_short(&self, capacity: f64) -> bool {
        Mechanism::ShortPath.acts(capacity * self.base_s() < SHORT_PACKETS * self.packet_bytes)
    }

    /// Whether a test can distinguish a queue in front of `capacity` from a longer route.
    ///
    /// A flow that has never seen the queue empty may have begun in a queue of others. On a path
    /// with jitter, however, drains may have failed because of jitter alone. On a short path the
    /// packets of a test would be a queue themselves.
    pub(super) fn can_test_route(&self, capacity: f64) -> bool {
        let is_queue_known = self.queue.has_emptied || self.queue.jitters(self.threshold_s());
        is_queue_known && !self.is_short(capacity.max(self.capacity.known_bytes_per_s))
    }

    /// Returns the time between two packets at the present rate.
    pub(super) fn packet_time_s(&self) -> f64 {
        self.packet_bytes * self.rtt_s() / self.window_bytes.max(self.packet_bytes)
    }

    /// Returns the queueing delay that ends growth at the present rate.
    pub(super) fn threshold_s(&self) -> f64 {
        self.threshold_at_s(self.rate_bytes_per_s())
    }

    /// Returns the same at a given rate, in bytes per second.
    pub(super) fn threshold_at_s(&self, rate: f64) -> f64 {
        self.queue.threshold_s(rate, self.packet_bytes)
    }

    /// Whether packets sent since the last cut show a queue that ends growth.
    pub(super) fn queue_shows(&self) -> bool {
        self.queue.shows(self.threshold_s())
    }

    /// Whether packets sent since the last cut show a queue that ends start-up.
    pub(super) fn queue_shows_in_start(&self) -> bool {
        let threshold_s = self.queue.start_threshold_s(self.threshold_s());
        self.queue.shows(threshold_s)
    }

    /// Whether packets sent since the last cut show no queue.
    pub(super) fn queue_is_seen_empty(&self) -> bool {
        self.queue.is_seen_empty(self.threshold_s())
    }

    /// Whether the queue counts as empty, measured on any packets.
    pub(super) fn queue_is_empty(&self) -> bool {
        self.queue.is_empty(self.threshold_s())
    }

    /// Returns the capacity of the path in the sending domain, never far below the rate of the last
    /// round trip.
    pub(super) fn capacity(&self) -> f64 {
        self.capacity_at(self.rate_bytes_per_s())
    }

    /// Returns the same where the last round trip was sent at `sent` bytes per second.
    pub(super) fn capacity_at(&self, sent: f64) -> f64 {
        let passed = if Mechanism::PassedPart.acts(self.floor.is_exceeded()) {
            self.floor.passed()
        } else {
            1.0
        };
        let was_app_limited = self.reports.were_app_limited_of_late(self.rtt_s());
        self.capacity.estimate(sent, passed, was_app_limited)
    }

    /// Returns the length of a round: a round trip, or longer if that has too few packets or too
    /// little time for a measurement.
    pub(super) fn round_s(&self) -> f64 {
        let delivered = (1.0 - self.floor.loss()).max(ROUND_DELIVERED_MIN);
        let packets_s =
            Mechanism::RoundPackets.value(ROUND_PACKETS * self.packet_time_s() / delivered, 0.0);
        self.rtt_s()
            .max(Mechanism::RoundTime.value(ROUND_MIN_S, 0.0))
            .max(packets_s)
    }

    pub(super) fn begin_round(&mut self, now_s: f64) {
        self.round_began_s = now_s;
    }

    pub(super) fn round_is_over(&self, now_s: f64) -> bool {
        now_s - self.round_began_s >= self.round_s()
    }

    /// Restricts counts of losses and measurements of the queue to packets sent from now on.
    pub(super) fn mark_cut(&mut self, now_s: f64) {
        self.floor.begin_count(now_s);
        self.queue.forget(now_s);
        self.begin_round(now_s);
    }

    /// Acts as if it had measured these values.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, base_s: f64, capacity: f64, now_s: f64) {
        self.queue.pretend(base_s, now_s);
        self.capacity.pretend(capacity, now_s);
    }
}

/// Bytes of a packet before any measurement: the size on Ethernet.
pub(super) const PACKET_GUESS: f64 = 1500.0;
/// Least bytes of a packet that shows the usual size. A smaller packet carries control frames or a
/// stream's end.
const FULL_PACKET_MIN_BYTES: usize = 1000;
/// Weight of one packet in the average of packet sizes. The average follows a new MTU within a few
/// hundred packets, and a few odd packets do not move it.
const PACKET_WEIGHT: f64 = 1.0 / 64.0;
/// Number of packets below which a path is short: its queue is larger than its other content.
const SHORT_PACKETS: f64 = 16.0;

/// Window that empties a queue, as a fraction of the window that fills the path.
///
/// It is low enough that the queue empties. One round in eight to ten at 5 % less costs under 1 %
/// of the rate. A lower window would empty a queue that others built, too, and prove nothing.
pub(super) const DRAINED: f64 = 0.95;
/// Least pacing rate until the queue is empty, as a fraction of the capacity.
///
/// The measured queue may be many times a tiny base round-trip time, and window / RTT would then
/// stop the flow. A lower rate drains faster, and a higher one wastes less.
pub(super) const DRAIN_RATE_MIN: f64 = 0.6;

/// Packets that must arrive in a round, so that it can be judged.
const ROUND_PACKETS: f64 = 8.0;
/// Least delivered fraction assumed for the length of a round. Otherwise a floor near one would
/// make rounds endless.
const ROUND_DELIVERED_MIN: f64 = 0.1;
/// Least length of a round. Reports are a millisecond apart or more, so a round of one short round
/// trip would be over before it was measured.
pub(super) const ROUND_MIN_S: f64 = 0.010;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::PacketArrival;

    fn path() -> PathModel {
        let mut path = PathModel::new(KneePolicy::Fair, 1_500_000.0, None);
        path.pretend(0.1, 15e6, 0.0);
        path
    }

    #[test]
    fn a_round_is_a_round_trip_or_as_long_as_eight_packets_take() {
        let mut path = path();
        assert_eq!(path.round_s(), 0.1);
        path.window_bytes = 1500.0;
        assert!((path.round_s() - 0.8).abs() < 1e-9);
        path.floor.learn_experiment(0.5, 3000.0);
        assert!((path.round_s() - 1.6).abs() < 1e-9, "half of them arrive");
    }

    #[test]
    fn a_flow_that_never_saw_the_queue_empty_can_test_its_route_only_if_delays_jitter() {
        let can_test = |delay_s: &dyn Fn(u64) -> f64| {
            let mut path = path();
            for number in 1..400 {
                let sent_s = number as f64 * 1e-3;
                let arrival = PacketArrival {
                    number,
                    sent_s,
                    received_s: sent_s + delay_s(number),
                    sent_bytes_before: number * 1500,
                    in_train: false,
                };
                path.queue.on_arrival(&arrival, 0.1, sent_s);
            }
            path.can_test_route(15e6)
        };
        assert!(!can_test(&|_| 0.06));
        assert!(!can_test(&|number| 0.3 - number as f64 * 5e-4));
        assert!(can_test(&|number| 0.06 + (number % 2) as f64 * 0.01));
    }

    #[test]
    fn small_packets_do_not_make_the_usual_size() {
        let mut path = path();
        for _ in 0..1000 {
            path.on_sent(100, 0.0);
        }
        assert_eq!(path.packet_bytes, PACKET_GUESS);
        for _ in 0..1000 {
            path.on_sent(1200, 0.0);
        }
        assert!((path.packet_bytes - 1200.0).abs() < 1.0);
    }
}
