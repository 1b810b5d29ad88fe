//! Mode for the time while competing flows keep the queue full.
//!
//! The input is losses and the length of the queue. The output is the window that an additional
//! CUBIC flow would have. If the queue is empty although this sender did not drain it, normal
//! growth resumes.
//!
//! The mode tests regularly whether the competing flows are still present. During a test of about
//! two rounds, the sender keeps slightly less in flight than its own rate times the base round-trip
//! time. If the sender is alone, the queue becomes empty.

use super::{
    super::{
        cubic::CubicWindow,
        floor::NEARLY_NOTHING,
        path_model::{DRAINED, PathModel},
    },
    transition::Transition,
};
use crate::congestion::knee::Mechanism;

#[derive(Debug)]
pub(in super::super) struct CompeteMode {
    law: CubicWindow,
    /// Time of the next test of the queue.
    test_at_s: f64,
    test: Option<QueueTest>,
    /// Number of consecutive tests that found the queue empty.
    empty_tests: u32,
    /// Number of consecutive rounds with an empty queue. Rounds during a test do not count.
    empty_rounds: u32,
}

/// State of a running test of the queue.
#[derive(Debug, Clone, Copy)]
struct QueueTest {
    /// Window before the test, in bytes.
    window_bytes: f64,
    began_s: f64,
}

impl CompeteMode {
    pub(super) fn begin(window_bytes: f64, path: &mut PathModel, now_s: f64) -> Self {
        path.window_bytes = window_bytes;
        path.competing_flows.forget();
        path.mark_cut(now_s);
        Self {
            law: CubicWindow::new(window_bytes, now_s),
            test_at_s: now_s + test_interval_s(path),
            test: None,
            empty_tests: 0,
            empty_rounds: 0,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self.test {
            None => "compete",
            Some(_) => "compete test",
        }
    }

    /// Updates CUBIC's window after `bytes` more bytes were acknowledged or declared lost.
    pub(super) fn grow(&mut self, path: &mut PathModel, bytes: f64, now_s: f64) {
        if self.test.is_none() {
            let rtt_s = path.rtt_s();
            let window_bytes = self
                .law
                .window_bytes(now_s, rtt_s, path.packet_bytes, bytes);
            path.window_bytes = window_bytes.max(WINDOW_MIN_PACKETS * path.packet_bytes);
        }
    }

    /// Handles an idle application. Returns to growth if a test is due, because the test would
    /// measure only the queue of other flows.
    pub(super) fn rest(&self, now_s: f64) -> Transition {
        if self.test.is_none() && now_s >= self.test_at_s {
            Transition::Grow
        } else {
            Transition::Stay
        }
    }

    /// Excludes `idle_s` from the time in which the window grows. During a test the function does
    /// nothing, because the whole test is excluded later.
    pub(super) fn pause(&mut self, idle_s: f64) {
        if self.test.is_none() {
            self.law.pause(idle_s);
        }
    }

    pub(super) fn step(&mut self, path: &mut PathModel, now_s: f64) -> Transition {
        match self.test {
            Some(test) => self.step_test(test, path, now_s),
            None => self.step_between_tests(path, now_s),
        }
    }

    fn step_between_tests(&mut self, path: &mut PathModel, now_s: f64) -> Transition {
        if path.floor.calls_for_cubic_cut()
            || Mechanism::YieldUnseen.acts(must_yield_unseen(path, now_s))
        {
            path.window_bytes = self.law.cut(path.window_bytes, now_s);
            path.floor.begin_count(now_s);
            self.empty_rounds = 0;
            return Transition::Stay;
        }
        if path.round_is_over(now_s) {
            self.empty_rounds = if path.queue_is_seen_empty() {
                self.empty_rounds + 1
            } else {
                0
            };
            path.begin_round(now_s);
        }
        if Mechanism::EmptyRounds.acts(self.empty_rounds >= EMPTY_TIMES) {
            return Transition::Grow;
        }
        if Mechanism::CompeteTest.acts(now_s >= self.test_at_s) {
            self.begin_test(path, now_s);
        }
        Transition::Stay
    }

    /// Starts a test of the queue. The window becomes slightly less than this sender's rate times
    /// the base round-trip time. The queue then becomes empty if no other flow fills it.
    fn begin_test(&mut self, path: &mut PathModel, now_s: f64) {
        self.test = Some(QueueTest {
            window_bytes: path.window_bytes,
            began_s: now_s,
        });
        path.window_bytes = DRAINED * path.window_bytes * path.base_s() / path.rtt_s();
        path.queue.forget(now_s);
    }

    fn step_test(&mut self, test: QueueTest, path: &mut PathModel, now_s: f64) -> Transition {
        let is_empty = path.queue_is_seen_empty();
        let since_s = now_s - test.began_s;
        let round_s = path.round_s();
        let is_over = since_s > TEST_ROUNDS * round_s && path.queue.is_fresh;
        let is_overdue = since_s >= TEST_ROUNDS_MAX * round_s + TEST_GRACE_S;
        if !is_empty && !is_over && !is_overdue {
            return Transition::Stay;
        }
        self.empty_tests = if is_empty { self.empty_tests + 1 } else { 0 };
        if self.empty_tests >= EMPTY_TIMES
            || is_empty && !Mechanism::TwoTests.acts(self.empty_tests < EMPTY_TIMES)
        {
            path.window_bytes = test.window_bytes * path.base_s() / path.rtt_s();
            path.mark_cut(now_s);
            return Transition::Grow;
        }
        self.resume(test, is_empty, path, now_s);
        Transition::Stay
    }

    /// Resumes growth after a test that did not end competition.
    fn resume(&mut self, test: QueueTest, is_empty: bool, path: &mut PathModel, now_s: f64) {
        let interval_s = test_interval_s(path);
        let wait_s = if Mechanism::SecondTest.acts(is_empty) {
            SECOND_TEST_AFTER * interval_s
        } else {
            interval_s
        };
        self.test = None;
        self.test_at_s = now_s + wait_s;
        self.empty_rounds = 0;
        self.law.pause(now_s - test.began_s);
        path.window_bytes = test.window_bytes;
        path.begin_round(now_s);
    }
}

fn test_interval_s(path: &PathModel) -> f64 {
    TEST_INTERVAL_MIN_S.max(TEST_INTERVAL_ROUND_TRIPS * path.rtt_s())
}

/// Whether the sender must assume that the full queue drops some of its packets.
///
/// On a lossy path the path's own losses hide those drops, so the function looks at the length of
/// the queue.
fn must_yield_unseen(path: &PathModel, now_s: f64) -> bool {
    let since_cut_s = now_s - path.floor.cut_s();
    path.floor.loss() >= NEARLY_NOTHING
        && since_cut_s >= UNSEEN_ROUND_TRIPS * path.rtt_s()
        && path.queue_shows()
        && path.queue.is_at_peak()
}

/// Least window of CUBIC, in packets. TCP has the same window after a loss (RFC 5681 section 3.1).
const WINDOW_MIN_PACKETS: f64 = 2.0;
/// Number of round trips between two tests. A test reduces the rate for about two round trips.
/// Tests therefore take a tenth of the time.
const TEST_INTERVAL_ROUND_TRIPS: f64 = 20.0;
/// Least time between two tests. The value applies to short paths, where a period of CUBIC's growth
/// takes seconds.
const TEST_INTERVAL_MIN_S: f64 = 2.0;
/// Number of rounds in a test. In the first round, the sender waits for reports about packets sent
/// at the lower rate. In the second round, the queue is measured.
const TEST_ROUNDS: f64 = 2.0;
/// Number of rounds after which a test ends even without a new measurement of the queue.
/// `TEST_GRACE_S` is an additional time.
const TEST_ROUNDS_MAX: f64 = 5.0;
const TEST_GRACE_S: f64 = 1.0;
/// Number of consecutive tests with an empty queue. After these tests, competition ends.
/// Competition also ends after the same number of consecutive rounds with an empty queue outside
/// tests.
///
/// After a loss in all flows, the queue is empty for a moment although no flow has stopped.
const EMPTY_TIMES: u32 = 2;
/// Time before the second test, as a fraction of the usual interval between tests.
///
/// After this time, a loss in all flows no longer affects the queue. A longer time would leave the
/// capacity of stopped flows unused.
const SECOND_TEST_AFTER: f64 = 0.3;
/// Least number of round trips between two cuts. The value applies to cuts for assumed drops on a
/// lossy path.
///
/// With a smaller number, the sender would take less than a CUBIC flow. With a larger number, the
/// sender would take capacity from other flows.
const UNSEEN_ROUND_TRIPS: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::knee::competing_flows::KneePolicy;

    /// Returns the mode on a path of 100 ms. Other flows keep 50 ms of queue.
    fn competing() -> (CompeteMode, PathModel) {
        let mut path = PathModel::new(KneePolicy::Fair, 1e6, None);
        path.pretend(0.1, 10e6, 0.0);
        see_queue(&mut path, 0.05);
        let compete = CompeteMode::begin(1.5e6, &mut path, 1.0);
        (compete, path)
    }

    fn see_queue(path: &mut PathModel, delay_s: f64) {
        path.queue.delay_s = delay_s;
        path.queue.is_fresh = true;
    }

    #[test]
    fn a_test_sends_less_and_gives_the_window_back_where_others_are() {
        let (mut compete, mut path) = competing();
        assert_eq!(compete.step(&mut path, 5.0), Transition::Stay);
        assert_eq!(compete.name(), "compete test");
        assert!((path.window_bytes - DRAINED * 1e6).abs() < 1.0);
        compete.grow(&mut path, 1500.0, 5.1);
        assert!((path.window_bytes - DRAINED * 1e6).abs() < 1.0, "no growth");
        see_queue(&mut path, 0.05);
        assert_eq!(compete.step(&mut path, 5.5), Transition::Stay);
        assert_eq!(compete.name(), "compete");
        assert_eq!(path.window_bytes, 1.5e6);
    }

    #[test]
    fn two_tests_that_empty_the_queue_end_it() {
        let (mut compete, mut path) = competing();
        for (began_s, next) in [(5.0, Transition::Stay), (6.0, Transition::Grow)] {
            see_queue(&mut path, 0.05);
            assert_eq!(compete.step(&mut path, began_s), Transition::Stay);
            assert_eq!(compete.name(), "compete test");
            see_queue(&mut path, 0.0);
            assert_eq!(compete.step(&mut path, began_s + 0.1), next);
        }
    }

    #[test]
    fn two_rounds_with_an_empty_queue_end_it_without_a_test() {
        let (mut compete, mut path) = competing();
        see_queue(&mut path, 0.0);
        assert_eq!(compete.step(&mut path, 1.2), Transition::Stay);
        assert_eq!(compete.step(&mut path, 1.4), Transition::Grow);
    }
}
