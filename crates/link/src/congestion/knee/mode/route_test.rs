//! Mode that tests whether an apparent queue is in fact a longer route.
//!
//! Queues and longer routes both delay all packets. If the sender slows down, the delay of a longer
//! route stays. If other flows fill a queue, the queueing delay stays, too.
//!
//! The test therefore sends at nearly the capacity for a short time. In a queue, the delay of the
//! test packets grows, or the queue drops packets. On a longer route, the delay stays constant.
//!
//! A test far below the capacity would show no growing delay even if other flows fill the path. A
//! packet train shows the capacity, and thus whether the test was fast enough. If jitter spreads
//! the train, the result needs a second test.
//!
//! The input is the delays of the test packets, and the train. The next mode is growth with a
//! longer base round-trip time, or a drain.

use super::{
    super::{
        capacity::{TRAIN_PACKETS_MAX, TRAIN_PACKETS_MIN, packets_to_time},
        path_model::{DRAIN_RATE_MIN, PathModel},
    },
    transition::{ApparentQueue, DrainSeries, RouteFinding, Transition},
};
use crate::congestion::knee::Mechanism;

#[derive(Debug)]
pub(in super::super) struct RouteTest {
    queue: ApparentQueue,
    /// Sending rate of the test, in bytes per second.
    rate_bytes_per_s: f64,
    /// Number of bytes of the test. `bytes_left` is the number of bytes not sent yet.
    bytes: f64,
    bytes_left: f64,
    /// Bytes in flight when the test began. The value may exceed the window.
    in_flight_before_bytes: f64,
    began_s: f64,
    /// Time at which the last byte of the test was sent. `None` before that.
    sent_s: Option<f64>,
}

impl RouteTest {
    pub(super) fn begin(queue: ApparentQueue, path: &mut PathModel, now_s: f64) -> Self {
        let rate = TEST_RATE * line(path, &queue);
        let train = train_packets(path, rate);
        // The packets whose delay is watched add at most half of the path's earlier load.
        let known = path.capacity.known_bytes_per_s.max(queue.capacity);
        let borne = path
            .window_bytes
            .max(path.competing_flows.window_before_bytes());
        let watched = (rate.min(known) * path.base_s()).min(borne) * TEST_LENGTH;
        let watched = watched.max(TEST_PACKETS * path.packet_bytes);
        let bytes = train as f64 * path.packet_bytes + watched;
        path.mark_cut(now_s);
        path.queue.watch_ramp(now_s, now_s + watched / rate);
        path.capacity.trains.forget_newest();
        path.capacity.trains.ask_for(train);
        Self {
            queue,
            rate_bytes_per_s: rate,
            bytes,
            bytes_left: bytes,
            in_flight_before_bytes: path.in_flight_bytes,
            began_s: now_s,
            sent_s: None,
        }
    }

    pub(super) fn rate_bytes_per_s(&self, path: &PathModel) -> f64 {
        if self.bytes_left > 0.0 {
            self.rate_bytes_per_s
        } else {
            path.rate_bytes_per_s()
                .max(DRAIN_RATE_MIN * self.queue.capacity)
        }
    }

    /// Returns the number of bytes that the test sends.
    pub(super) fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Returns the number of bytes that may be in flight, even if the window is smaller.
    ///
    /// The test does not wait for room in the window. A delayed train would arrive late and look
    /// like a queue.
    pub(super) fn in_flight_min_bytes(&self) -> f64 {
        self.in_flight_before_bytes + self.bytes
    }

    pub(super) fn on_sent(&mut self, bytes: usize, now_s: f64) {
        self.bytes_left -= bytes as f64;
        if self.bytes_left <= 0.0 {
            self.sent_s.get_or_insert(now_s);
        }
    }

    /// Ends the test without a result.
    pub(super) fn abandon(path: &mut PathModel) -> Transition {
        path.queue.forget_ramp();
        Transition::Grow
    }

    pub(super) fn step(&self, path: &mut PathModel, now_s: f64) -> Transition {
        let rise_s = path.queue.ramp_rise_s();
        if rise_s.is_none() && !self.is_overdue(path, now_s) {
            return Transition::Stay;
        }
        if !self.was_sent_at_its_rate() || path.capacity.trains.lacked_data() {
            return Self::abandon(path);
        }
        let finding = match rise_s {
            Some(rise_s) if self.is_flat(path, rise_s) => self.judge_by_train(path),
            _ => Some(RouteFinding::Queue),
        };
        self.end(path, finding, now_s)
    }

    /// Whether the packets of the test were sent at the intended rate. Gaps come from the
    /// application or from missing credit. Gaps after the last byte of the test do not count.
    fn was_sent_at_its_rate(&self) -> bool {
        let took_max_s = GAPS_MAX * self.bytes / self.rate_bytes_per_s + GAP_MAX_S;
        self.sent_s
            .is_some_and(|sent_s| sent_s - self.began_s <= took_max_s)
    }

    fn is_overdue(&self, path: &PathModel, now_s: f64) -> bool {
        let timeout_s =
            TIMEOUT_ROUND_TRIPS * path.rtt_s() + self.bytes / self.rate_bytes_per_s + TIMEOUT_S;
        now_s - self.began_s > timeout_s
    }

    /// Whether the test found no queue. `rise_s` is the growth of the delay of the test packets, in
    /// seconds.
    fn is_flat(&self, path: &PathModel, rise_s: f64) -> bool {
        // If the delay fell when we reduced our rate, our own packets had formed the queue.
        let is_first = self.queue.series.failed <= 1 && !self.found_no_queue_before();
        let unmoved = if is_first { UNMOVED_AT_FIRST } else { UNMOVED };
        rise_s <= path.threshold_at_s(self.rate_bytes_per_s)
            && !Mechanism::RouteUnmoved.acts(path.queue.delay_s <= unmoved * self.queue.delay_s)
            && !path.floor.is_exceeded()
    }

    fn found_no_queue_before(&self) -> bool {
        self.queue.series.tested == Some(RouteFinding::NoQueue)
    }

    /// Returns the finding of a test in which the delay did not grow. Returns `None` if the route
    /// has become longer.
    ///
    /// A test far below the capacity shows no growing delay, even if other flows fill a queue.
    fn judge_by_train(&self, path: &PathModel) -> Option<RouteFinding> {
        match path.capacity.trains.newest() {
            Some(train)
                if Mechanism::RouteTrain
                    .acts(train.rate_bytes_per_s > LINE_MAX * self.rate_bytes_per_s) =>
            {
                Some(RouteFinding::Queue)
            }
            Some(train) if !train.is_lower_bound => None,
            _ if !path.capacity.trains.newest_is_seen() => Some(RouteFinding::Queue),
            // Jitter has spread the train. Other flows that keep a queue do not leave capacity
            // unused in two consecutive tests by chance.
            _ if Mechanism::RouteTwice.acts(self.found_no_queue_before()) => None,
            _ => Some(RouteFinding::NoQueue),
        }
    }

    fn end(&self, path: &mut PathModel, finding: Option<RouteFinding>, now_s: f64) -> Transition {
        path.queue.forget_ramp();
        let Some(finding) = finding else {
            adopt_longer_route(path, self.rate_bytes_per_s, now_s);
            return Transition::Grow;
        };
        let series = DrainSeries {
            tested: Some(finding),
            ..self.queue.series
        };
        if series.failed == 0 {
            let capacity = path.capacity().min(self.queue.capacity);
            Transition::Drain { capacity, series }
        } else {
            Transition::DrainFailed(series)
        }
    }
}

/// Returns the estimated capacity of the path, in bytes per second, from all measurements so far.
fn line(path: &PathModel, queue: &ApparentQueue) -> f64 {
    let capacity = queue.capacity;
    let peak = path.capacity.peak().unwrap_or(capacity);
    let known = peak.max(path.capacity.known_bytes_per_s).max(capacity);
    // The train of an earlier test also shows whether the path has become slower. A train of
    // start-up does not show this change.
    let train = path.capacity.trains.newest();
    let line = match train.filter(|_| queue.series.tested.is_some()) {
        // If a train overflows the queue, the packets that arrive seem faster than the path.
        Some(train) if !train.is_lower_bound => known.min(train.rate_bytes_per_s),
        // The capacity exceeds the rate of the earlier test, so that test had no result.
        Some(train) => known.max(train.rate_bytes_per_s.min(LINE_GROWTH * known)),
        None => known,
    };
    // A stall may have stretched the train. The test must still be at least as fast as a drain.
    line.max(capacity * DRAIN_RATE_MIN)
}

/// Returns the number of packets in the train that shows the capacity.
///
/// The train is long enough to be measured at `rate`. The receiver reports the arrival of at least
/// three of its packets.
fn train_packets(path: &PathModel, rate: f64) -> usize {
    let stride = (rate * path.base_s() / path.packet_bytes / STRIDE_PACKETS).min(STRIDE_MAX);
    packets_to_time(rate, path.packet_bytes)
        .max(TRAIN_STRIDES * stride)
        .clamp(TRAIN_PACKETS_MIN, TRAIN_PACKETS_MAX) as usize
}

/// Adopts a longer base round-trip time. The new window fits the lower of `rate` and the rate of
/// the newest train.
fn adopt_longer_route(path: &mut PathModel, rate: f64, now_s: f64) {
    path.queue.adopt_longer_route(now_s);
    path.window_bytes = rate.min(path.capacity.trains.shown_max()) * path.base_s();
    path.competing_flows.forget();
    path.mark_cut(now_s);
}

/// Sending rate of a test, as a fraction of the estimated capacity.
///
/// A path without other flows passes this rate without a queue. If other flows fill the path, the
/// delay grows by a large fraction of the test's duration.
const TEST_RATE: f64 = 0.9;
/// Duration of a test, as a fraction of the base round-trip time.
///
/// The delay is measured over two thirds of the test. If other flows use the whole path, the delay
/// grows by 0.3 RTT in that time. If other flows use 0.3 of the path, the delay still grows by more
/// than the threshold.
///
/// A test at twice the rate takes half as long. The test adds at most half of the known
/// bandwidth-delay product to the bytes in flight. The bytes of its train are additional.
const TEST_LENGTH: f64 = 0.5;
/// Least number of packets in a test: nearly three times the packets of the queue threshold.
const TEST_PACKETS: f64 = 16.0;
/// Sampling of arrivals at the receiver: about 128 samples per round trip, and at least one packet
/// in 16. [`TRAIN_STRIDES`] samples must fall into the train that starts a test.
const STRIDE_PACKETS: f64 = 128.0;
const STRIDE_MAX: f64 = 16.0;
const TRAIN_STRIDES: f64 = 3.0;
/// Largest ratio of the train's rate to the test's rate in a conclusive test. A larger ratio can
/// occur if two senders drain the queue at the same time and leave capacity unused.
const LINE_MAX: f64 = 1.5;
/// Upper limit of the assumed capacity after a test that was too slow, as a multiple of the known
/// capacity. The limit is 2, because start-up without a measured train doubles the rate per round
/// trip.
const LINE_GROWTH: f64 = 2.0;
/// Fraction of an apparent queue. If no more than this fraction remains after a drain, packets of
/// this sender formed the queue.
///
/// `UNMOVED_AT_FIRST` applies to the first test. In that test, the delay of a longer and slower
/// route may include a queue of this sender's packets.
const UNMOVED_AT_FIRST: f64 = 0.5;
const UNMOVED: f64 = 0.9;
/// Longest time in which the packets of a test may be sent: this multiple of the intended time,
/// plus [`GAP_MAX_S`]. The addition allows for the timer that releases a burst.
const GAPS_MAX: f64 = 1.1;
const GAP_MAX_S: f64 = 0.003;
/// Number of round trips without reports about the test packets. After this time, the test has
/// failed. `TIMEOUT_S` is an additional time.
const TIMEOUT_ROUND_TRIPS: f64 = 3.0;
const TIMEOUT_S: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{
        Controller, Digest, PacketArrival,
        knee::{Knee, KneePolicy, mode::KneeMode},
    };

    const BASE_S: f64 = 0.1;
    const RATE: f64 = 10e6;
    const TRAIN: u32 = 16;

    /// Returns a controller in the drain mode, on a path of 10 MB/s and 100 ms. The drain fails,
    /// because the queueing delay stays at 100 ms.
    fn draining(policy: KneePolicy) -> Knee {
        let mut knee = Knee::new(policy, None);
        knee.path.pretend(BASE_S, RATE, 1.0);
        knee.path.queue.has_emptied = true;
        knee.path.window_bytes = 2e6;
        knee.path.queue.delay_s = 0.1;
        let drain = Transition::Drain {
            capacity: RATE,
            series: DrainSeries::default(),
        };
        knee.follow(drain, 1.0);
        knee
    }

    /// Starts a route test after `failed` failed drains. The finding of an earlier test stays
    /// stored.
    fn test_route(knee: &mut Knee, failed: u32, now_s: f64) {
        let tested = match &knee.mode {
            KneeMode::Drain(drain) => drain.series.tested,
            _ => None,
        };
        let queue = ApparentQueue {
            capacity: RATE,
            delay_s: 0.1,
            series: DrainSeries { failed, tested },
        };
        knee.follow(Transition::TestRoute(queue), now_s);
    }

    /// Runs a test on a path with a capacity of `line` bytes per second. The argument of `delay_s`
    /// is the sending time of a packet within the test, and the result is the packet's additional
    /// delay.
    fn run_test(knee: &mut Knee, began_s: f64, line: f64, delay_s: impl Fn(f64) -> f64) {
        let behind_s = |place| place * 1500.0 / line;
        run_test_with(knee, began_s, TRAIN, behind_s, delay_s);
    }

    /// Returns the delay of a train's packet relative to the first packet, on a path with jitter.
    /// `place` is the index of the packet.
    fn jitters_s(place: f64) -> f64 {
        place * 1500.0 / RATE + place * 0.7 % 1.0 * 5e-3
    }

    /// Runs a test in which only `seen` packets of the train arrive. `behind_s` returns the delay
    /// of a train's packet relative to the first packet.
    fn run_test_with(
        knee: &mut Knee,
        began_s: f64,
        seen: u32,
        behind_s: impl Fn(f64) -> f64,
        delay_s: impl Fn(f64) -> f64,
    ) {
        let arrival = |number: u32, since_s: f64, delay_s: f64| PacketArrival {
            number: 1000 * began_s as u64 + u64::from(number),
            sent_s: began_s + since_s,
            received_s: began_s + since_s + BASE_S / 2.0 + delay_s,
            sent_bytes_before: u64::from(number) * 1500,
            in_train: number < TRAIN,
        };
        let train = (0..seen)
            .map(|number| arrival(number, 0.0, delay_s(0.0) + behind_s(f64::from(number))));
        let others = (0..200_u32).map(|place| {
            let since_s = f64::from(place) * 0.5e-3;
            arrival(TRAIN + place, since_s, delay_s(since_s))
        });
        let arrivals: Vec<PacketArrival> = train.chain(others).collect();
        knee.on_train_begun(TRAIN as usize, began_s);
        for number in 0..1000 {
            knee.on_sent(number, 1500, began_s);
        }
        let digest = Digest {
            arrivals: &arrivals,
            rtt_s: Some(BASE_S + delay_s(0.0)),
            bytes_in_flight: 1_000_000,
            ..Digest::default()
        };
        knee.on_report(&digest, began_s + 0.3);
    }

    #[test]
    fn a_test_whose_train_the_data_never_filled_says_nothing() {
        for packets in [0, TRAIN as usize - 1] {
            let mut knee = draining(KneePolicy::Fair);
            test_route(&mut knee, 1, 2.0);
            if packets > 0 {
                knee.on_train_begun(packets, 2.0);
            }
            for number in 0..1000 {
                knee.on_sent(number, 1500, 2.0);
            }
            let digest = Digest {
                bytes_in_flight: 1_000_000,
                ..Digest::default()
            };
            knee.on_report(&digest, 5.0);
            assert_eq!(knee.state(), "grow", "{packets} packets");
        }
    }

    #[test]
    fn what_arrives_as_it_was_sent_is_on_a_longer_route() {
        let mut knee = draining(KneePolicy::Fair);
        test_route(&mut knee, 1, 2.0);
        assert!((knee.rate_bytes_per_s() / (TEST_RATE * RATE) - 1.0).abs() < 0.01);
        run_test(&mut knee, 2.0, RATE, |_| 0.1);
        assert_eq!(knee.state(), "grow");
        assert!(knee.take_longer_route() && !knee.take_longer_route());
        assert!(
            (knee.path.base_s() - 0.2).abs() < 1e-6,
            "{}",
            knee.path.base_s()
        );
        assert!((knee.rate_bytes_per_s() / (TEST_RATE * RATE) - 1.0).abs() < 0.01);
    }

    #[test]
    fn three_queues_that_grow_under_the_test_show_competing_flows() {
        let mut knee = draining(KneePolicy::Fair);
        for fails in 1..=3_u32 {
            assert_ne!(knee.state(), "compete", "{fails} failures");
            let at_s = 2.0 * f64::from(fails);
            test_route(&mut knee, fails, at_s);
            run_test(&mut knee, at_s, RATE, |since_s| 0.1 + 0.5 * since_s);
        }
        assert_eq!(knee.state(), "compete");
        assert_eq!(knee.path.window_bytes, 2e6);
        assert!((knee.path.base_s() - BASE_S).abs() < 1e-6);
    }

    #[test]
    fn where_jitter_spreads_each_train_the_second_test_without_a_queue_shows_a_longer_route() {
        let mut knee = draining(KneePolicy::Fair);
        for fails in 1..=2_u32 {
            assert_eq!(knee.state(), "drain");
            let at_s = 2.0 * f64::from(fails);
            test_route(&mut knee, fails, at_s);
            run_test_with(&mut knee, at_s, TRAIN, jitters_s, |_| 0.1);
            let train = knee.path.capacity.trains.newest();
            assert!(train.is_some_and(|train| train.is_lower_bound));
        }
        assert_eq!(knee.state(), "grow");
        assert!(
            (knee.path.base_s() - 0.2).abs() < 0.011,
            "{}",
            knee.path.base_s()
        );
    }

    #[test]
    fn without_a_train_one_test_that_finds_no_queue_after_one_that_found_one_shows_nothing() {
        let mut knee = draining(KneePolicy::Fair);
        test_route(&mut knee, 1, 2.0);
        run_test_with(&mut knee, 2.0, TRAIN, jitters_s, |since_s| {
            0.1 + 0.5 * since_s
        });
        test_route(&mut knee, 2, 4.0);
        run_test_with(&mut knee, 4.0, TRAIN, jitters_s, |_| 0.1);
        assert_eq!(knee.state(), "drain");
        assert!((knee.path.base_s() - BASE_S).abs() < 1e-6);
    }

    #[test]
    fn a_test_whose_train_is_lost_shows_no_longer_route() {
        let mut knee = draining(KneePolicy::Fair);
        test_route(&mut knee, 1, 2.0);
        run_test_with(&mut knee, 2.0, TRAIN, jitters_s, |_| 0.1);
        test_route(&mut knee, 2, 4.0);
        run_test_with(&mut knee, 4.0, 2, jitters_s, |_| 0.1);
        assert_eq!(knee.state(), "drain");
    }

    /// The growth mode requests the first route test before any drain. A drain precedes the second
    /// route test.
    #[test]
    fn the_second_test_without_a_train_believes_only_a_queue_that_stays() {
        for (delay_s, state) in [(0.06, "drain"), (0.1, "grow")] {
            let mut knee = draining(KneePolicy::Fair);
            test_route(&mut knee, 0, 2.0);
            run_test_with(&mut knee, 2.0, TRAIN, jitters_s, |_| 0.1);
            test_route(&mut knee, 1, 4.0);
            run_test_with(&mut knee, 4.0, TRAIN, jitters_s, |_| delay_s);
            assert_eq!(knee.state(), state, "{delay_s}");
        }
    }

    /// On a longer route, more bytes are in flight than the window of a drain permits.
    #[test]
    fn a_test_waits_for_no_room() {
        let mut knee = draining(KneePolicy::Fair);
        let in_flight = 8_000_000;
        let digest = Digest {
            rtt_s: Some(BASE_S + 0.1),
            bytes_in_flight: in_flight,
            ..Digest::default()
        };
        knee.on_report(&digest, 1.9);
        test_route(&mut knee, 1, 2.0);
        let room = knee.window_bytes() - in_flight as f64;
        assert!(knee.train_wanted(room) > 0);
        let KneeMode::RouteTest(test) = &knee.mode else {
            panic!("it has begun");
        };
        let rest = room - test.bytes();
        assert!(
            (0.0..10_000.0).contains(&rest),
            "{rest} bytes more than the test sends"
        );
    }

    /// A train whose packets arrive all at once shows a path much faster than the test.
    #[test]
    fn a_test_that_was_too_slow_is_followed_by_one_twice_as_fast_that_sends_no_more() {
        let mut knee = draining(KneePolicy::Fair);
        let bytes = |knee: &Knee| match &knee.mode {
            KneeMode::RouteTest(test) => test.bytes(),
            _ => f64::NAN,
        };
        test_route(&mut knee, 1, 2.0);
        let before = bytes(&knee);
        run_test(&mut knee, 2.0, f64::INFINITY, |_| 0.1);
        assert_eq!(knee.state(), "drain");
        test_route(&mut knee, 2, 4.0);
        let rate = knee.rate_bytes_per_s();
        assert!((rate / (TEST_RATE * LINE_GROWTH * RATE) - 1.0).abs() < 0.01);
        let now = bytes(&knee);
        assert!(now < 1.2 * before, "{now} bytes after {before}");
    }

    #[test]
    fn a_sender_that_leaves_everything_to_others_drains_on() {
        let mut knee = draining(KneePolicy::Background);
        for fails in 1..=5_u32 {
            let at_s = 2.0 * f64::from(fails);
            test_route(&mut knee, fails, at_s);
            run_test(&mut knee, at_s, RATE, |since_s| 0.1 + 0.5 * since_s);
            assert_eq!(knee.state(), "drain");
        }
    }

    #[test]
    fn a_queue_that_shrinks_as_we_drain_is_our_own() {
        let mut knee = draining(KneePolicy::Fair);
        test_route(&mut knee, 1, 2.0);
        run_test(&mut knee, 2.0, RATE, |since_s| 0.05 - 0.1 * since_s);
        assert_eq!(knee.state(), "drain");
        assert!((knee.path.base_s() - BASE_S).abs() < 1e-6);
    }

    /// Two Longhaul flows that share a path leave capacity unused while they drain together.
    #[test]
    fn a_test_far_below_the_rate_of_the_line_is_not_telling() {
        let mut knee = draining(KneePolicy::Fair);
        test_route(&mut knee, 1, 2.0);
        run_test(&mut knee, 2.0, 2.0 * RATE, |_| 0.1);
        assert_eq!(knee.state(), "drain");
        assert!((knee.path.base_s() - BASE_S).abs() < 1e-6);
    }

    #[test]
    fn a_test_without_traffic_decides_nothing() {
        let mut knee = draining(KneePolicy::Fair);
        test_route(&mut knee, 3, 2.0);
        let idle = Digest {
            app_limited: true,
            ..Digest::default()
        };
        knee.on_report(&idle, 3.0);
        assert_eq!(knee.state(), "grow");
        assert!((knee.path.window_bytes / (0.95 * RATE * BASE_S) - 1.0).abs() < 0.01);
    }
}
