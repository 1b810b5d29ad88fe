//! Beside others that keep the queue full: CUBIC's law, and tests whether they are still there.

use super::{Knee, State, cubic::Cubic};

impl Knee {
    pub(super) fn enter_compete(&mut self, window: f64, now_s: f64) {
        self.window = window;
        let interval = self.test_interval_s();
        self.state = State::Compete {
            cubic: Cubic::new(window, now_s),
            test_at_s: now_s + interval,
            empty_tests: 0,
            empty_rounds: 0,
        };
        self.score = 0.0;
        self.mark_cut(now_s);
    }

    pub(super) fn test_interval_s(&self) -> f64 {
        2f64.max(20.0 * self.rtt_s())
    }

    pub(super) fn step_compete(&mut self, now_s: f64) {
        let is_fresh_empty =
            self.measure.queue_is_fresh && self.measure.queue_s <= self.threshold_s() / 2.0;
        let round_is_over = now_s - self.round_began_s >= self.round_s();
        // On a lossy path what the full queue drops drowns in what the path loses: its length tells.
        let is_long = self.measure.queue_is_fresh && self.measure.queue_s > self.threshold_s();
        let since_cut_s = now_s - self.losses.cut_s;
        let drops_drown = self.losses.floor >= 0.005 && since_cut_s >= 8.0 * self.rtt_s();
        let any_excess =
            self.losses.any_excess() || drops_drown && is_long && self.measure.queue_is_at_peak();
        let base_s = self.base_s();
        let rtt_s = self.rtt_s();
        let mut is_alone = false;
        let State::Compete {
            cubic,
            test_at_s,
            empty_rounds,
            ..
        } = &mut self.state
        else {
            return;
        };
        if any_excess {
            self.window = cubic.cut(self.window, now_s);
            *empty_rounds = 0;
            self.losses.begin_count(now_s);
            return;
        }
        if round_is_over {
            *empty_rounds = if is_fresh_empty { *empty_rounds + 1 } else { 0 };
            is_alone = *empty_rounds >= 2;
        }
        let test_is_due = now_s >= *test_at_s;
        if round_is_over {
            self.begin_round(now_s);
        }
        if is_alone {
            self.enter_grow(now_s);
        } else if test_is_due {
            let window = self.window;
            self.window = 0.95 * window * base_s / rtt_s;
            let old = std::mem::replace(&mut self.state, State::Grow);
            let State::Compete {
                cubic, empty_tests, ..
            } = old
            else {
                return;
            };
            self.state = State::CompeteTest {
                cubic,
                window,
                began_s: now_s,
                empty_tests,
            };
            self.measure.forget_queue(now_s);
        }
    }

    pub(super) fn step_compete_test(&mut self, now_s: f64) {
        let State::CompeteTest { began_s, .. } = &self.state else {
            return;
        };
        let began_s = *began_s;
        let is_empty =
            self.measure.queue_is_fresh && self.measure.queue_s <= self.threshold_s() / 2.0;
        // One round after the first feedback on packets sent at the lower rate.
        let is_over = now_s - began_s > 2.0 * self.round_s() && self.measure.queue_is_fresh;
        if !is_empty && !is_over && now_s - began_s < 5.0 * self.round_s() + 1.0 {
            return;
        }
        let interval = self.test_interval_s();
        let old = std::mem::replace(&mut self.state, State::Grow);
        let State::CompeteTest {
            mut cubic,
            window,
            began_s,
            empty_tests,
        } = old
        else {
            return;
        };
        let empty_tests = if is_empty { empty_tests + 1 } else { 0 };
        if empty_tests >= 2 {
            self.score = 0.0;
            self.window = window * self.base_s() / self.rtt_s().max(self.base_s());
            self.mark_cut(now_s);
            self.enter_grow(now_s);
            return;
        }
        cubic.pause(now_s - began_s);
        self.window = window;
        let wait = if is_empty { 0.3 * interval } else { interval };
        self.state = State::Compete {
            cubic,
            test_at_s: now_s + wait,
            empty_tests,
            empty_rounds: 0,
        };
        self.begin_round(now_s);
    }
}
