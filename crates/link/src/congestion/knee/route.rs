//! A longer route, told from a queue.
//!
//! Both delay all packets. A longer route stays when we send less. So does a queue that others fill. What tells them
//! apart is to send at nearly the rate of the line for a while. In a queue those packets arrive later and later, or are
//! dropped. On a longer route they arrive as they were sent.

use super::{
    Knee,
    capacity::{TRAIN_PACKETS_MAX, packets_to_time},
    state::{RouteTest, State},
};

impl Knee {
    /// Whether a test can say something. A connection that has never seen the queue empty may have begun in one. On a
    /// short path the packets of a test would be a queue themselves.
    pub(super) fn can_test_route(&self, capacity: f64) -> bool {
        self.queue.has_emptied && !self.is_short(capacity.max(self.capacity.known))
    }

    /// The queue shows where none was a moment ago: more than growth can have built.
    pub(super) fn queue_is_sudden(&self) -> bool {
        let built_s = SUDDEN * self.base_s() + SUDDEN_THRESHOLDS * self.threshold_s();
        self.queue.delay_s > built_s
    }

    /// What seems a queue of `queue_s` in front of `capacity` may be a longer route. `failed_tries` drains have not
    /// emptied it.
    pub(super) fn enter_route_test(
        &mut self,
        capacity: f64,
        queue_s: f64,
        failed_tries: u32,
        now_s: f64,
    ) {
        let peak = self.capacity.peak().unwrap_or(capacity);
        let known = peak.max(self.capacity.known).max(capacity);
        // A test before this one has shown whether the line has become slower, too.
        let shown = self
            .capacity
            .trains
            .newest()
            .filter(|train| !train.is_lower_bound);
        let line = shown.map_or(known, |train| known.min(train.rate));
        let rate = TEST_RATE * line.max(capacity * LINE_MIN);
        let train = self.route_train(rate);
        // No more than half of what was in flight before.
        let in_flight = self.window.max(self.failed_drains.window_before);
        let watched = (rate * self.base_s()).min(in_flight) * TEST_LENGTH;
        let watched = watched.max(TEST_PACKETS * self.packet);
        let bytes = train as f64 * self.packet + watched;
        self.state = State::RouteTest(RouteTest {
            capacity,
            queue_s,
            failed_tries,
            rate,
            bytes,
            bytes_left: bytes,
            began_s: now_s,
        });
        self.mark_cut(now_s);
        self.queue.watch_ramp(now_s, now_s + watched / rate);
        self.capacity.trains.forget_newest();
        self.capacity.trains.ask_for(train);
    }

    /// Packets of the train that shows the line: as many as take long enough to be measured at `rate`, and as the
    /// receiver samples three of at least.
    fn route_train(&self, rate: f64) -> usize {
        let timed = packets_to_time(rate, self.packet);
        let stride = (rate * self.base_s() / self.packet / STRIDE_PACKETS).min(STRIDE_MAX);
        timed
            .max(TRAIN_STRIDES * stride)
            .clamp(TRAIN_PACKETS_MIN, TRAIN_PACKETS_MAX) as usize
    }

    pub(super) fn step_route_test(&mut self, test: RouteTest, app_limited: bool, now_s: f64) {
        let patience_s = PATIENCE_ROUND_TRIPS * self.rtt_s() + test.bytes / test.rate + PATIENCE_S;
        let shown = self.queue.ramp_rise_s().zip(self.capacity.trains.newest());
        let is_over = shown.is_some() || now_s - test.began_s > patience_s;
        if is_over && (app_limited || test.bytes_left > 0.0) {
            // It was not sent at its rate.
            self.forget_route_test();
            self.enter_grow(now_s);
        } else if let Some((rise_s, train)) = shown {
            let is_flat = rise_s <= self.threshold_at_s(test.rate);
            // Our own queue has become shorter since we send less.
            let unmoved = if test.failed_tries <= 1 {
                UNMOVED_AT_FIRST
            } else {
                UNMOVED
            };
            let is_unmoved = self.queue.delay_s > unmoved * test.queue_s;
            // A rate far below what the line passes would show nothing in a queue of others.
            let is_telling = !train.is_lower_bound && train.rate <= LINE_MAX * test.rate;
            let is_free = is_flat && is_unmoved && is_telling && !self.floor.is_exceeded();
            self.end_route_test(&test, is_free, now_s);
        } else if is_over {
            self.end_route_test(&test, false, now_s);
        }
    }

    /// What was asked for the sake of a test is not wanted any more.
    pub(super) fn forget_route_test(&mut self) {
        self.queue.forget_ramp();
        self.capacity.trains.ask_for(0);
    }

    /// A test is over: `is_free` if it found no queue.
    fn end_route_test(&mut self, test: &RouteTest, is_free: bool, now_s: f64) {
        self.forget_route_test();
        if is_free {
            self.adopt_longer_route(test.rate, now_s);
        } else if test.failed_tries == 0 {
            let capacity = self.capacity().min(test.capacity);
            self.enter_drain(capacity, 0, now_s);
        } else {
            self.fail_drain(test.failed_tries, now_s);
        }
    }

    /// The path passes `rate` without a queue, and takes longer than before.
    fn adopt_longer_route(&mut self, rate: f64, now_s: f64) {
        self.queue.adopt_longer_route(now_s);
        self.window = rate * self.base_s();
        self.failed_drains.score = 0.0;
        self.mark_cut(now_s);
        self.enter_grow(now_s);
    }
}

/// Growth ends at the threshold. A queue of this part of the base RTT beyond twice the threshold did not come from it.
const SUDDEN: f64 = 0.5;
const SUDDEN_THRESHOLDS: f64 = 2.0;
/// A test sends at this fraction of the capacity: a free line passes that without a queue, and in a line that
/// others fill it makes the delay grow by a good part of the test's own length.
const TEST_RATE: f64 = 0.9;
/// A train that a stall has stretched must not make the test slower than a drain.
const LINE_MIN: f64 = 0.6;
/// A test takes this part of the base RTT. Over two thirds of that a queue grows by 0.3 RTT where others use all of
/// the line, and by more than the threshold as long as they use 0.3 of it; at the most it adds half of a
/// bandwidth-delay product.
const TEST_LENGTH: f64 = 0.5;
/// ... and this many packets at least, nearly three times the packets of the threshold.
const TEST_PACKETS: f64 = 16.0;
/// A test begins with a train, which shows the rate of the line even if others fill it.
/// A receiver samples one arrival of so many in a round trip's packets, and one in 16 at least.
const STRIDE_PACKETS: f64 = 128.0;
const STRIDE_MAX: f64 = 16.0;
const TRAIN_STRIDES: f64 = 3.0;
/// Half a threshold's worth of queue, at least.
const TRAIN_PACKETS_MIN: f64 = 16.0;
/// A test at less than two thirds of the train's rate says nothing: two that share a line leave room as they drain
/// together.
const LINE_MAX: f64 = 1.5;
/// A drain leaves less than this part of a queue that is our own. At first our own queue may stand before that of a
/// longer and slower route.
const UNMOVED_AT_FIRST: f64 = 0.5;
const UNMOVED: f64 = 0.9;
/// Without a word of the packets of a test for this many round trips, and this much longer, it has failed.
const PATIENCE_ROUND_TRIPS: f64 = 3.0;
const PATIENCE_S: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{Arrival, Controller, Digest, knee::Share};

    const BASE_S: f64 = 0.1;
    const RATE: f64 = 10e6;
    const TRAIN: u32 = 16;

    /// A link at 10 MB/s and 100 ms whose drains fail: it sees 100 ms of queue.
    fn draining(share: Share) -> Knee {
        let mut knee = Knee::new(share, None);
        knee.pretend(BASE_S, RATE, 1.0);
        knee.queue.has_emptied = true;
        knee.window = 2e6;
        knee.queue.delay_s = 0.1;
        knee.enter_drain(RATE, 0, 1.0);
        knee
    }

    /// Lets a test run on a line that passes `line` bytes a second. Its packets take `delay_s` longer than before, by
    /// the time since the test began.
    fn run_test(knee: &mut Knee, began_s: f64, line: f64, delay_s: impl Fn(f64) -> f64) {
        let arrival = |number: u32, since_s: f64, delay_s: f64| Arrival {
            number: 1000 * began_s as u64 + u64::from(number),
            sent_s: began_s + since_s,
            received_s: began_s + since_s + BASE_S / 2.0 + delay_s,
            sent_bytes_before: u64::from(number) * 1500,
            in_train: number < TRAIN,
        };
        let train = (0..TRAIN).map(|number| {
            let behind_s = f64::from(number) * 1500.0 / line;
            arrival(number, 0.0, delay_s(0.0) + behind_s)
        });
        let others = (0..200_u32).map(|place| {
            let since_s = f64::from(place) * 0.5e-3;
            arrival(TRAIN + place, since_s, delay_s(since_s))
        });
        let arrivals: Vec<Arrival> = train.chain(others).collect();
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
    fn what_arrives_as_it_was_sent_is_on_a_longer_route() {
        let mut knee = draining(Share::Fair);
        knee.enter_route_test(RATE, 0.1, 1, 2.0);
        assert!((knee.rate() / (TEST_RATE * RATE) - 1.0).abs() < 0.01);
        run_test(&mut knee, 2.0, RATE, |_| 0.1);
        assert_eq!(knee.state(), "grow");
        assert!(knee.take_longer_route() && !knee.take_longer_route());
        assert!((knee.base_s() - 0.2).abs() < 1e-6, "{}", knee.base_s());
        assert!((knee.rate() / (TEST_RATE * RATE) - 1.0).abs() < 0.01);
    }

    #[test]
    fn three_queues_that_grow_under_the_test_are_company_with_the_window_from_before_them() {
        let mut knee = draining(Share::Fair);
        for fails in 1..=3_u32 {
            assert_ne!(knee.state(), "compete", "{fails} failures");
            let at_s = 2.0 * f64::from(fails);
            knee.enter_route_test(RATE, 0.1, fails, at_s);
            run_test(&mut knee, at_s, RATE, |since_s| 0.1 + 0.5 * since_s);
        }
        assert_eq!(knee.state(), "compete");
        assert_eq!(knee.window, 2e6);
        assert!((knee.base_s() - BASE_S).abs() < 1e-6);
    }

    #[test]
    fn who_leaves_everything_to_others_drains_on() {
        let mut knee = draining(Share::Background);
        for fails in 1..=5_u32 {
            let at_s = 2.0 * f64::from(fails);
            knee.enter_route_test(RATE, 0.1, fails, at_s);
            run_test(&mut knee, at_s, RATE, |since_s| 0.1 + 0.5 * since_s);
            assert_eq!(knee.state(), "drain");
        }
    }

    #[test]
    fn a_queue_that_shrinks_as_we_drain_is_our_own() {
        let mut knee = draining(Share::Fair);
        knee.enter_route_test(RATE, 0.1, 1, 2.0);
        run_test(&mut knee, 2.0, RATE, |since_s| 0.05 - 0.1 * since_s);
        assert_eq!(knee.state(), "drain");
        assert!((knee.base_s() - BASE_S).abs() < 1e-6);
    }

    /// Two of ours that share a line leave room as they drain together.
    #[test]
    fn a_test_far_below_the_rate_of_the_line_is_not_telling() {
        let mut knee = draining(Share::Fair);
        knee.enter_route_test(RATE, 0.1, 1, 2.0);
        run_test(&mut knee, 2.0, 2.0 * RATE, |_| 0.1);
        assert_eq!(knee.state(), "drain");
        assert!((knee.base_s() - BASE_S).abs() < 1e-6);
    }

    #[test]
    fn a_test_without_traffic_decides_nothing() {
        let mut knee = draining(Share::Fair);
        knee.enter_route_test(RATE, 0.1, 3, 2.0);
        let idle = Digest {
            app_limited: true,
            ..Digest::default()
        };
        knee.on_report(&idle, 3.0);
        assert_eq!(knee.state(), "grow");
        assert!((knee.window / (0.95 * RATE * BASE_S) - 1.0).abs() < 0.01);
    }
}
