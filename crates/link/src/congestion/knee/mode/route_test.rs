//! Mode that tests whether an apparent queue is a longer route.
//!
//! Both delay all packets. A longer route stays when we send less, and so does a queue that others
//! fill. Sending at nearly the capacity for a while distinguishes them. In a queue those packets
//! arrive later and later, or are dropped. On a longer route they arrive as they were sent.
//!
//! A test far below the capacity would find no queue beside others, either. The train shows whether
//! it was. If jitter spreads the train, a test that finds no queue counts only after another such
//! test.
//!
//! The input is the delays of the test's packets, and a train that shows the capacity. The output
//! is growth at a longer base round-trip time, or a drain of a real queue.

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
    /// Rate of the test, in bytes per second.
    rate_bytes_per_s: f64,
    /// Bytes sent at that rate, and the bytes of them still to be sent.
    bytes: f64,
    bytes_left: f64,
    /// Bytes in flight before the test, which may be more than the window.
    in_flight_before_bytes: f64,
    began_s: f64,
    /// Time at which the last of them was sent.
    sent_s: Option<f64>,
}

impl RouteTest {
    pub(super) fn begin(queue: ApparentQueue, path: &mut PathModel, now_s: f64) -> Self {
        let rate = TEST_RATE * line(path, &queue);
        let train = train_packets(path, rate);
        // At most half of the load that the path has carried before.
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

    /// Returns the bytes that the test sends.
    pub(super) fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Returns the bytes that may be in flight with any window. The test waits for no room, since
    /// its train would arrive late and count as a queue.
    pub(super) fn in_flight_min_bytes(&self) -> f64 {
        self.in_flight_before_bytes + self.bytes
    }

    pub(super) fn on_sent(&mut self, bytes: usize, now_s: f64) {
        self.bytes_left -= bytes as f64;
        if self.bytes_left <= 0.0 {
            self.sent_s.get_or_insert(now_s);
        }
    }

    /// Ends the test without a finding on the route.
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

    /// Whether the application, or the peer's credit, left no gap in the test. Later gaps do not
    /// matter.
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

    /// Whether the test found no queue: its delay grew by `rise_s`.
    fn is_flat(&self, path: &PathModel, rise_s: f64) -> bool {
        // Our own queue has become shorter since we send less.
        let is_first = self.queue.series.failed <= 1 && !self.found_no_queue_before();
        let unmoved = if is_first { UNMOVED_AT_FIRST } else { UNMOVED };
        rise_s <= path.threshold_at_s(self.rate_bytes_per_s)
            && !Mechanism::RouteUnmoved.acts(path.queue.delay_s <= unmoved * self.queue.delay_s)
            && !path.floor.is_exceeded()
    }

    fn found_no_queue_before(&self) -> bool {
        self.queue.series.tested == Some(RouteFinding::NoQueue)
    }

    /// Returns the finding of a test without growing delay. `None` if the route is longer.
    ///
    /// A rate far below the capacity would let no delay grow in a queue of others.
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
            // Jitter has spread the train. Others do not leave room in two tests in a row, and keep
            // their queue, by chance.
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

/// Returns the apparent capacity of the path, in bytes per second.
fn line(path: &PathModel, queue: &ApparentQueue) -> f64 {
    let capacity = queue.capacity;
    let peak = path.capacity.peak().unwrap_or(capacity);
    let known = peak.max(path.capacity.known_bytes_per_s).max(capacity);
    // An earlier test has shown whether the path has become slower, too. A train of start-up has
    // not.
    let train = path.capacity.trains.newest();
    let line = match train.filter(|_| queue.series.tested.is_some()) {
        // The part of a train that an overflowing queue passes seems faster than the path.
        Some(train) if !train.is_lower_bound => known.min(train.rate_bytes_per_s),
        // The path passes more than the rate of the earlier test, which therefore showed no result.
        Some(train) => known.max(train.rate_bytes_per_s.min(LINE_GROWTH * known)),
        None => known,
    };
    // A train that a stall has stretched must not make the test slower than a drain.
    line.max(capacity * DRAIN_RATE_MIN)
}

/// Returns the packets of the train that shows the capacity. They take long enough to be measured
/// at `rate`, and the receiver samples at least three of them.
fn train_packets(path: &PathModel, rate: f64) -> usize {
    let stride = (rate * path.base_s() / path.packet_bytes / STRIDE_PACKETS).min(STRIDE_MAX);
    packets_to_time(rate, path.packet_bytes)
        .max(TRAIN_STRIDES * stride)
        .clamp(TRAIN_PACKETS_MIN, TRAIN_PACKETS_MAX) as usize
}

/// Adopts a longer route. The path passes `rate` without a queue, or the train's rate if that is
/// less, and takes longer than before.
fn adopt_longer_route(path: &mut PathModel, rate: f64, now_s: f64) {
    path.queue.adopt_longer_route(now_s);
    path.window_bytes = rate.min(path.capacity.trains.shown_max()) * path.base_s();
    path.competing_flows.forget();
    path.mark_cut(now_s);
}

/// Fraction of the apparent capacity at which a test sends.
///
/// A free path passes it without a queue. On a path that others fill, the delay grows by a good
/// part of the test's own length.
const TEST_RATE: f64 = 0.9;
/// Duration of a test, as a part of the base round-trip time.
///
/// Over two thirds of the test a queue grows by 0.3 RTT if others use the whole path. It grows by
/// more than the threshold if they use at least 0.3 of it. A test at twice the rate takes half as
/// long. Beside its train it adds at most half of the known bandwidth-delay product.
const TEST_LENGTH: f64 = 0.5;
/// Fewest packets of a test, nearly three times the packets of the threshold.
const TEST_PACKETS: f64 = 16.0;
/// Limits of the receiver's sampling: 128 samples of the packets of a round trip, and at least one
/// packet in 16. A test begins with a train, which shows the capacity even if others fill the path.
const STRIDE_PACKETS: f64 = 128.0;
const STRIDE_MAX: f64 = 16.0;
const TRAIN_STRIDES: f64 = 3.0;
/// Largest ratio of the train's rate to the rate of a conclusive test. Two flows that share a path
/// leave room as they drain together.
const LINE_MAX: f64 = 1.5;
/// Largest growth of the rate after a test that was too slow, as a multiple of the known capacity.
/// Start-up grows as fast in a round trip.
const LINE_GROWTH: f64 = 2.0;
/// Part of a queue that a drain leaves if the queue is our own. At first our own queue may stand
/// before the queue of a longer and slower route.
const UNMOVED_AT_FIRST: f64 = 0.5;
const UNMOVED: f64 = 0.9;
/// Longest time for the packets of a test, as a multiple of their time and as an addition: a burst
/// waits for a timer.
const GAPS_MAX: f64 = 1.1;
const GAP_MAX_S: f64 = 0.003;
/// Round trips and additional time without reports on the packets of a test after which it has
/// failed.
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

    /// Returns a link at 10 MB/s and 100 ms whose drains fail: it sees 100 ms of queue.
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

    /// Begins a test after `failed` failed drains, with the finding of earlier tests among them.
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

    /// Runs a test on a path that passes `line` bytes a second. Its packets take `delay_s` longer
    /// than before, by the time since the test began.
    fn run_test(knee: &mut Knee, began_s: f64, line: f64, delay_s: impl Fn(f64) -> f64) {
        let behind_s = |place| place * 1500.0 / line;
        run_test_with(knee, began_s, TRAIN, behind_s, delay_s);
    }

    /// Returns the time by which a packet of a train arrives after the first, where jitter spreads
    /// it.
    fn jitters_s(place: f64) -> f64 {
        place * 1500.0 / RATE + place * 0.7 % 1.0 * 5e-3
    }

    /// Does the same, where only `seen` packets of the train arrive, `behind_s` after its first.
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

    /// Growth makes its own test before the first drain.
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

    /// On a longer route more bytes are in flight than the window of a drain.
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

    /// A train that arrives at once shows a path much faster than the test.
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
    fn who_leaves_everything_to_others_drains_on() {
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

    /// Two of our flows that share a path leave room as they drain together.
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
