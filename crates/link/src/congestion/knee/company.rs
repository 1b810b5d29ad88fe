//! Beside others that keep the queue full: CUBIC's law, and tests whether they are still there.
//!
//! A test sends at what our own bandwidth-delay product takes, for about a round. Alone on the path that
//! empties the queue; in company it does not. Failed drains lead here ([`queue`](super::queue)).

use super::{
    Knee,
    cubic::Cubic,
    floor::NEARLY_NOTHING,
    state::{Compete, CompeteTest, State},
};

impl Knee {
    pub(super) fn enter_compete(&mut self, window: f64, now_s: f64) {
        self.window = window;
        self.state = State::Compete(Compete {
            cubic: Cubic::new(window, now_s),
            test_at_s: now_s + self.test_interval_s(),
            empty_tests: 0,
            empty_rounds: 0,
        });
        self.failed_drains.score = 0.0;
        self.mark_cut(now_s);
    }

    fn test_interval_s(&self) -> f64 {
        TEST_INTERVAL_MIN_S.max(TEST_INTERVAL_ROUND_TRIPS * self.rtt_s())
    }

    /// Growth by `bytes` bytes that a report resolved.
    pub(super) fn grow_compete(&mut self, mut compete: Compete, bytes: f64, now_s: f64) {
        let rtt_s = self.rtt_s();
        let window = compete.cubic.window(now_s, rtt_s, self.packet, bytes);
        self.window = window.max(WINDOW_MIN_PACKETS * self.packet);
        self.state = State::Compete(compete);
    }

    pub(super) fn step_compete(&mut self, mut compete: Compete, now_s: f64) {
        if self.floor.calls_for_cubic_cut() || self.must_yield_unseen(now_s) {
            self.window = compete.cubic.cut(self.window, now_s);
            compete.empty_rounds = 0;
            self.state = State::Compete(compete);
            self.floor.begin_count(now_s);
            return;
        }
        let round_is_over = now_s - self.round_began_s >= self.round_s();
        if round_is_over {
            compete.empty_rounds = if self.queue_is_seen_empty() {
                compete.empty_rounds + 1
            } else {
                0
            };
            self.begin_round(now_s);
        }
        self.state = State::Compete(compete);
        if round_is_over && compete.empty_rounds >= EMPTY_ROUNDS {
            self.enter_grow(now_s);
        } else if now_s >= compete.test_at_s {
            self.begin_test(&compete, now_s);
        }
    }

    /// Whether the full queue must be dropping our packets, too. On a lossy path those drops drown in what
    /// the path loses, so the queue's length tells.
    fn must_yield_unseen(&self, now_s: f64) -> bool {
        let since_cut_s = now_s - self.floor.cut_s();
        self.floor.loss() >= NEARLY_NOTHING
            && since_cut_s >= UNSEEN_ROUND_TRIPS * self.rtt_s()
            && self.queue_shows()
            && self.queue.is_at_peak()
    }

    /// Sends as much as our own share of the queue's path takes: alone, that empties the queue.
    fn begin_test(&mut self, compete: &Compete, now_s: f64) {
        let window = self.window;
        self.window = DRAINED * window * self.base_s() / self.rtt_s();
        self.state = State::CompeteTest(CompeteTest {
            cubic: compete.cubic,
            window,
            began_s: now_s,
            empty_tests: compete.empty_tests,
        });
        self.queue.forget(now_s);
    }

    pub(super) fn step_compete_test(&mut self, test: CompeteTest, now_s: f64) {
        let is_empty = self.queue_is_seen_empty();
        let since_s = now_s - test.began_s;
        let round_s = self.round_s();
        let is_over = since_s > TEST_ROUNDS * round_s && self.queue.is_fresh;
        let is_overdue = since_s >= TEST_ROUNDS_MAX * round_s + TEST_GRACE_S;
        if !is_empty && !is_over && !is_overdue {
            return;
        }
        let empty_tests = if is_empty { test.empty_tests + 1 } else { 0 };
        if empty_tests >= EMPTY_TESTS {
            self.failed_drains.score = 0.0;
            self.window = test.window * self.base_s() / self.rtt_s().max(self.base_s());
            self.mark_cut(now_s);
            self.enter_grow(now_s);
            return;
        }
        let interval_s = self.test_interval_s();
        let wait_s = if is_empty {
            SECOND_TEST_AFTER * interval_s
        } else {
            interval_s
        };
        let mut cubic = test.cubic;
        cubic.pause(since_s);
        self.window = test.window;
        self.state = State::Compete(Compete {
            cubic,
            test_at_s: now_s + wait_s,
            empty_tests,
            empty_rounds: 0,
        });
        self.begin_round(now_s);
    }
}

/// CUBIC's window has this many packets at least, as the window of TCP after a loss (RFC 5681
/// section 3.1).
const WINDOW_MIN_PACKETS: f64 = 2.0;
/// Round trips between two tests. A test takes about two at a reduced rate, so a tenth of the time.
const TEST_INTERVAL_ROUND_TRIPS: f64 = 20.0;
/// ... and no more often than this on short paths, where CUBIC's own periods are seconds.
const TEST_INTERVAL_MIN_S: f64 = 2.0;
/// A test goes to this fraction of our own bandwidth-delay product. Lower would empty a queue that others
/// built, and prove nothing.
const DRAINED: f64 = 0.95;
/// One round until packets sent at the lower rate are reported, and one to look at the queue.
const TEST_ROUNDS: f64 = 2.0;
/// Without any fresh view of the queue a test ends after this many rounds and this time.
const TEST_ROUNDS_MAX: f64 = 5.0;
const TEST_GRACE_S: f64 = 1.0;
/// Tests in a row that must find the queue empty, and rounds that must without a test: after a loss
/// that all flows share the queue is empty for an instant, though nobody has left.
const EMPTY_TESTS: u32 = 2;
const EMPTY_ROUNDS: u32 = 2;
/// The second test comes after this part of the interval: long enough that a loss shared with others is
/// over, short enough that capacity which others have left is soon used.
const SECOND_TEST_AFTER: f64 = 0.3;
/// On a lossy path a queue at its peak counts as a drop at most once in this many round trips. More often
/// would yield more than a CUBIC flow does, more rarely would take from those beside us.
const UNSEEN_ROUND_TRIPS: f64 = 8.0;
