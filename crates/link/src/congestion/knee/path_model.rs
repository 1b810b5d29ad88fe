//! State that all modes share: the window, and the measurements of the path.
//!
//! The input is reports, sent packets and cuts. The output is values that need several
//! measurements: the rate, the length of a round, the queue threshold, and the capacity. The
//! [modes](super::mode) decide how to use these values.

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
    /// Intended number of bytes in flight. The window fills the path but builds no queue. While
    /// competing flows keep the queue full, the value is CUBIC's window.
    pub(super) window_bytes: f64,
    /// Moving average of the size of a packet on the wire, in bytes.
    pub(super) packet_bytes: f64,
    /// Whether the last cut was a cut for loss. If so, the window grows slowly.
    pub(super) is_gentle: bool,
    round_began_s: f64,
    /// Bytes in flight: the value of the last report, plus the bytes sent since.
    pub(super) in_flight_bytes: f64,
    /// Total of bytes sent when the last report arrived.
    bytes_sent: u64,
    /// Arrival time of the last report.
    reported_s: f64,
}

impl PathModel {
    /// Creates a model with a window of `window_bytes` bytes. `memory` holds measurements of the
    /// path from an earlier connection.
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

    /// Adds the delays and rates of a report. `queue_s` is the queueing delay before the report.
    ///
    /// If the base round-trip time has changed suddenly, the function returns the factor by which
    /// the window must change to keep the rate. Otherwise the function returns 1.
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

    /// Counts the losses of a report. Without excess losses, the measured rate also updates the
    /// recent peak of the capacity.
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

    /// Discards all measurements of the path that are too old. The window stays as an estimate.
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

    /// Returns the sending rate that the window permits, in bytes per second.
    pub(super) fn rate_bytes_per_s(&self) -> f64 {
        self.window_bytes / self.rtt_s()
    }

    /// Returns the expected queueing delay of a packet sent now, in seconds. `capacity` is the
    /// capacity of the path in bytes per second.
    pub(super) fn queue_ahead_s(&self, capacity: f64) -> f64 {
        self.queue
            .expected_s(capacity, self.bytes_sent, self.reported_s)
    }

    /// Whether a path of this capacity is short. A few packets fill a short path, so chance affects
    /// the measurements too much.
    pub(super) fn is_short(&self, capacity: f64) -> bool {
        Mechanism::ShortPath.acts(capacity * self.base_s() < SHORT_PACKETS * self.packet_bytes)
    }

    /// Whether a route test can distinguish a queue from a longer route, at the capacity
    /// `capacity`.
    ///
    /// If the queue was never empty, other flows may have filled it from the start. The test then
    /// has no result. A path with jitter is an exception, because jitter alone may make drains
    /// fail. On a short path the test packets themselves would build a queue.
    pub(super) fn can_test_route(&self, capacity: f64) -> bool {
        let is_queue_known = self.queue.has_emptied || self.queue.jitters(self.threshold_s());
        is_queue_known && !self.is_short(capacity.max(self.capacity.known_bytes_per_s))
    }

    /// Returns the time between two packets at the present rate, in seconds.
    pub(super) fn packet_time_s(&self) -> f64 {
        self.packet_bytes * self.rtt_s() / self.window_bytes.max(self.packet_bytes)
    }

    /// Returns the queueing delay at which growth ends, in seconds, for the present rate.
    pub(super) fn threshold_s(&self) -> f64 {
        self.threshold_at_s(self.rate_bytes_per_s())
    }

    /// Returns the queueing delay at which growth ends, in seconds, for a rate of `rate` bytes per
    /// second.
    pub(super) fn threshold_at_s(&self, rate: f64) -> f64 {
        self.queue.threshold_s(rate, self.packet_bytes)
    }

    /// Whether the queue is long enough to end growth. Returns false until packets sent after the
    /// last cut have measured the queue.
    pub(super) fn queue_shows(&self) -> bool {
        self.queue.shows(self.threshold_s())
    }

    /// Whether the queue is long enough to end start-up. Returns false until packets sent after the
    /// last cut have measured the queue.
    pub(super) fn queue_shows_in_start(&self) -> bool {
        let threshold_s = self.queue.start_threshold_s(self.threshold_s());
        self.queue.shows(threshold_s)
    }

    /// Whether the queue is empty. Returns false until packets sent after the last cut have
    /// measured the queue.
    pub(super) fn queue_is_seen_empty(&self) -> bool {
        self.queue.is_seen_empty(self.threshold_s())
    }

    /// Whether the queue counts as empty. The measurement may come from packets sent before the
    /// last cut.
    pub(super) fn queue_is_empty(&self) -> bool {
        self.queue.is_empty(self.threshold_s())
    }

    /// Returns the capacity of the path in bytes per second. Lost packets count as passed. The
    /// result is never far below the present rate.
    pub(super) fn capacity(&self) -> f64 {
        self.capacity_at(self.rate_bytes_per_s())
    }

    /// Returns the capacity of the path in bytes per second, for a sending rate of `sent` bytes per
    /// second in the last round trip.
    pub(super) fn capacity_at(&self, sent: f64) -> f64 {
        let passed = if Mechanism::PassedPart.acts(self.floor.is_exceeded()) {
            self.floor.passed()
        } else {
            1.0
        };
        let was_app_limited = self.reports.were_app_limited_of_late(self.rtt_s());
        self.capacity.estimate(sent, passed, was_app_limited)
    }

    /// Returns the length of a round in seconds. A round is a round trip, or longer if a round trip
    /// has too few packets or is too short for a measurement.
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

    /// Marks a cut. From now on, loss counts and measurements of the queue include only packets
    /// sent later.
    pub(super) fn mark_cut(&mut self, now_s: f64) {
        self.floor.begin_count(now_s);
        self.queue.forget(now_s);
        self.begin_round(now_s);
    }

    /// Sets the base round-trip time and the capacity as if they had been measured.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, base_s: f64, capacity: f64, now_s: f64) {
        self.queue.pretend(base_s, now_s);
        self.capacity.pretend(capacity, now_s);
    }
}

/// Assumed size of a packet in bytes before any measurement: the size of a full Ethernet packet.
pub(super) const PACKET_GUESS: f64 = 1500.0;
/// Size in bytes above which a packet counts for the usual packet size. A smaller packet carries
/// control frames or the end of a stream.
const FULL_PACKET_MIN_BYTES: usize = 1000;
/// Weight of one packet in the moving average of packet sizes.
///
/// With this weight, the average follows a new MTU within a few hundred packets. Single packets of
/// an unusual size hardly change the average.
const PACKET_WEIGHT: f64 = 1.0 / 64.0;
/// Number of packets in the bandwidth-delay product. A path with fewer packets is short. The queue
/// of a short path is longer than the path itself.
const SHORT_PACKETS: f64 = 16.0;

/// Window during a drain, as a fraction of the bandwidth-delay product.
///
/// With this value the queue becomes empty. In one of eight to ten rounds, a drain lowers the rate
/// by 5 %. It therefore costs less than 1 % of the rate. A smaller window would also empty a queue
/// that other flows built. An empty queue would then prove nothing about competing flows.
pub(super) const DRAINED: f64 = 0.95;
/// Least pacing rate of a drain, as a fraction of the capacity.
///
/// The queueing delay may be many times a very short base round-trip time. The rate (window / RTT)
/// would then be nearly zero. A lower minimum would drain the queue faster, and a higher minimum
/// would waste less capacity.
pub(super) const DRAIN_RATE_MIN: f64 = 0.6;

/// Least number of packets that must arrive in a round, so that the round can be measured.
const ROUND_PACKETS: f64 = 8.0;
/// Least delivered fraction in the formula for the length of a round. Without this limit, a loss
/// floor near 1 would make rounds endless.
const ROUND_DELIVERED_MIN: f64 = 0.1;
/// Least length of a round. Reports are at least a millisecond apart, so a shorter round could end
/// before any measurement.
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
