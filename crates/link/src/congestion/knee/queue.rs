//! The cycle of a link that is alone: grow until queueing delay shows, then drain.

use super::{Fail, Knee, Share, State};

/// Rounds of gentle growth without a signal: the limit that dropped is gone.
const GENTLE_ROUNDS: u32 = 25;
/// Losses beyond the floor and what is tolerated that show, soon after a cut for loss, that more is due.
const SURPLUS_MIN: f64 = 16.0;

impl Knee {
    pub(super) fn enter_grow(&mut self, now_s: f64) {
        self.state = State::Grow;
        let packets = (self.window / self.packet).max(1.0);
        self.gain_start = (0.5 / packets.sqrt()).max(1.0 / 128.0);
        if self.is_gentle || self.share == Share::Background {
            self.gain_start /= 2.0;
        }
        self.gain = self.gain_start;
        self.rounds_in_state = 0;
        self.begin_round(now_s);
    }

    pub(super) fn step_grow(&mut self, app_limited: bool, now_s: f64) {
        if self.measure.queue_is_fresh && self.measure.queue_s > self.threshold_s() {
            if self.threshold_cap_s.is_finite() {
                self.threshold_cap_s *= 1.02;
            }
            let capacity = self.capacity();
            self.enter_drain(capacity, 0, now_s);
            return;
        }
        let is_again = self.is_gentle && self.losses.has_surplus(SURPLUS_MIN);
        if self.losses.excess(0.02, 4.0) || is_again {
            self.cut_for_loss(now_s);
            return;
        }
        if now_s - self.round_began_s < self.round_s() {
            return;
        }
        self.begin_round(now_s);
        if app_limited {
            self.gain = self.gain_start;
            self.rounds_in_state = 0;
            return;
        }
        self.rounds_in_state += 1;
        let known = self.known_capacity * self.base_s();
        if self.rounds_in_state == GENTLE_ROUNDS {
            self.forget_policer();
        }
        if self.is_gentle && self.rounds_in_state < GENTLE_ROUNDS {
            self.gain *= 1.15;
        } else if self.window < 0.85 * known {
            self.gain = 0.25;
        } else if self.window < 1.25 * known {
            // Near the capacity known from the last drain a round may build a threshold's worth of
            // queue, no more: its feedback comes a round later.
            let cap = (self.threshold_s() / self.base_s()).max(self.gain_start);
            self.gain = (self.gain * 1.5).clamp(self.gain_start, cap);
        } else {
            // Well above it and still no queue: there is more than there was.
            self.gain *= 2.0;
        }
        self.gain = self.gain.min(0.5);
    }

    pub(super) fn enter_drain(&mut self, capacity: f64, tries: u32, now_s: f64) {
        if tries == 0 && self.score < 0.5 {
            self.window_before_series = self.window;
        }
        if tries == 0 {
            self.known_capacity = capacity;
        }
        self.window = 0.95 * capacity * self.base_s();
        self.state = State::Drain {
            capacity,
            cut_s: now_s,
            queue_max_s: self.measure.queue_s,
            emptied_s: None,
            tries,
        };
        self.is_gentle = false;
        self.forget_policer();
        self.mark_cut(now_s);
    }

    pub(super) fn step_drain(&mut self, app_limited: bool, now_s: f64) {
        let queue_s = self.measure.queue_s;
        let State::Drain {
            capacity,
            cut_s,
            queue_max_s,
            emptied_s,
            tries,
        } = &mut self.state
        else {
            return;
        };
        *queue_max_s = queue_max_s.max(queue_s);
        let (capacity, cut_s, queue_max_s) = (*capacity, *cut_s, *queue_max_s);
        let (emptied_s, tries) = (*emptied_s, *tries);
        let empty_s = self.threshold_s() / 2.0;
        if let Some(emptied_s) = emptied_s {
            // Hold below capacity until the floor has been seen.
            let wanted = (0.7 * self.window / self.packet).min(200.0);
            let is_over = now_s - emptied_s > 2.0 * self.round_s();
            if self.losses.since_cut.packets >= wanted || is_over || app_limited {
                if !self.losses.excess(0.02, 4.0) {
                    self.losses.learn_expected();
                }
                if tries == 0 {
                    self.score = (self.score - 0.5).max(0.0);
                }
                self.last_fail = None;
                self.window = capacity * self.base_s();
                self.enter_grow(now_s);
            }
            return;
        }
        if self.measure.queue_is_fresh && queue_s <= empty_s {
            if let State::Drain { emptied_s, .. } = &mut self.state {
                *emptied_s = Some(now_s);
            }
            self.has_emptied = true;
            return;
        }
        // Until the cut is felt, and then as long as our own queue needs to drain at what the
        // bottleneck passes beyond our rate.
        let base_s = self.base_s();
        let ours = 0.95 * base_s / (base_s + queue_max_s);
        let spare = if self.is_short(capacity) {
            0.2
        } else {
            1.0 - ours
        };
        let patience_s = 1.25 * base_s.max(0.010) + queue_max_s + queue_max_s / spare;
        // Judged by packets that crossed the path then; none do while the application is idle.
        if self.measure.queue_sent_s + base_s > cut_s + patience_s && self.measure.queue_is_fresh {
            self.fail_drain(capacity, tries, now_s);
        }
    }

    /// The queue did not empty: a new route, or company.
    pub(super) fn fail_drain(&mut self, capacity: f64, tries: u32, now_s: f64) {
        let queue_s = self.measure.queue_s;
        let base_s = self.base_s();
        let fail = *self.last_fail.get_or_insert(Fail {
            window: self.window,
            queue_s,
            capacity,
        });
        // In a queue, ours or shared, a smaller window shows; on a longer route it does not. Only a
        // window that made up much of the queue can tell the two apart.
        let peak = self.measure.capacity_peak().unwrap_or(f64::INFINITY);
        let missed_s = (fail.window - self.window) / peak;
        let is_telling = missed_s > 0.15 * fail.queue_s;
        let is_unmoved = (queue_s - fail.queue_s).abs() < 0.03 * fail.queue_s.max(0.001);
        // Nor does it in a queue that a crowd keeps full: who has never seen it empty may have begun in one.
        if self.has_emptied && tries >= 1 && is_telling && is_unmoved {
            self.measure.rebase(now_s);
            self.window = 0.9 * fail.capacity * self.base_s();
            self.last_fail = None;
            self.score = 0.0;
            self.mark_cut(now_s);
            self.enter_grow(now_s);
            return;
        }
        self.score += 1.0;
        if self.score >= 3.0 && self.share == Share::Fair {
            let window = self.window_before_series.max(self.window);
            self.last_fail = None;
            self.enter_compete(window, now_s);
            return;
        }
        let measured = self.capacity();
        let target = self.window.min(measured * base_s) * (base_s / (base_s + queue_s)).max(0.5);
        let capacity = target / base_s;
        self.enter_drain(capacity.max(self.packet / base_s), tries + 1, now_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Controller;

    /// A drain of a link at 10 MB/s and 100 ms that sees 100 ms of queue, and how often it may fail.
    fn fails_until_decided(mut queue_s: impl FnMut(u32) -> f64) -> (Knee, u32) {
        let mut knee = Knee::new(Share::Fair, None);
        knee.measure.pretend(0.1, 10e6, 1.0);
        knee.has_emptied = true;
        knee.window = 2e6;
        knee.measure.queue_s = queue_s(0);
        knee.enter_drain(10e6, 0, 1.0);
        for fails in 1..20 {
            let State::Drain {
                capacity, tries, ..
            } = knee.state
            else {
                return (knee, fails - 1);
            };
            knee.measure.queue_s = queue_s(fails);
            knee.fail_drain(capacity, tries, 1.0 + f64::from(fails));
        }
        (knee, 20)
    }

    #[test]
    fn three_failed_tries_mean_company_with_the_window_from_before_them() {
        // The queue shrinks by what we leave out of it, and no more.
        let (knee, fails) = fails_until_decided(|fails| 0.1 - 0.02 * f64::from(fails));
        assert_eq!(knee.state(), "compete");
        assert_eq!(fails, 3);
        assert_eq!(knee.window, 2e6);
    }

    #[test]
    fn a_queue_that_half_the_window_does_not_move_is_a_longer_route() {
        let (knee, _) = fails_until_decided(|_| 0.1);
        assert_eq!(knee.state(), "grow");
        assert!((knee.base_s() - 0.2).abs() < 1e-9);
        assert!((knee.rate() / 9e6 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_queue_that_was_never_seen_empty_is_no_longer_route() {
        let mut knee = Knee::new(Share::Fair, None);
        knee.measure.pretend(0.1, 10e6, 1.0);
        knee.window = 2e6;
        knee.measure.queue_s = 0.1;
        knee.enter_drain(10e6, 0, 1.0);
        for fails in 0..3 {
            knee.fail_drain(10e6 * 0.5f64.powi(fails), fails as u32, 2.0);
        }
        assert_eq!(knee.state(), "compete");
        assert!((knee.base_s() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_small_part_of_the_queue_cannot_tell_a_longer_route() {
        let (knee, _) = fails_until_decided(|_| 2.0);
        assert_eq!(knee.state(), "compete");
    }
}
