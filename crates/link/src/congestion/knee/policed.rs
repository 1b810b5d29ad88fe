//! At a limit that drops instead of queueing, as a policer does: CUBIC's law between the cuts.
//!
//! Nothing but loss shows such a limit, and TCP flows that share it halve their rate on a single loss. A law
//! that waits for a certain fraction to be lost would take all of the limit from them. So from the
//! second cut in a row for loss without a queue on, the controller yields as CUBIC does.

use super::{
    Knee,
    cubic::Cubic,
    state::{Policer, State},
};

impl Knee {
    /// A cut for loss is due at a limit that passes the window `passed`. Returns how far CUBIC's law
    /// cuts, if the limit has no queue.
    pub(super) fn cut_policed(&mut self, passed: f64, now_s: f64) -> Option<f64> {
        if self.queue.is_there() || self.floor.is_bursty() {
            self.forget_policer();
            return None;
        }
        self.policer.cuts += 1;
        self.policer.limit = self.policer.limit.max(passed);
        if self.policer.cuts < CUTS {
            return None;
        }
        let cubic = self
            .policer
            .law
            .get_or_insert_with(|| Cubic::new(passed, now_s));
        Some(if self.floor.is_path_clean() {
            cubic.cut(passed, now_s)
        } else {
            cubic.cut_lossy(passed, now_s)
        })
    }

    /// A signal of another kind than loss without a queue came.
    pub(super) fn forget_policer(&mut self) {
        self.policer = Policer::default();
    }

    /// One report's worth of CUBIC's law.
    pub(super) fn step_policed(&mut self, now_s: f64) {
        let last = self.policer.law.map_or(0.0, |cubic| cubic.window_max());
        if self.window < BELOW * last && !self.floor.is_path_clean() {
            self.floor.learn_longer();
        }
        if self.queue_shows() {
            let capacity = self.capacity();
            self.enter_drain(capacity, 0, now_s);
        } else if self.floor.begins_to_be_exceeded() || self.floor.is_exceeded() {
            self.cut_for_loss(now_s);
        } else if self.window > BEYOND * self.policer.limit {
            self.window = BEYOND * self.policer.limit;
            self.is_gentle = false;
            self.forget_policer();
            self.mark_cut(now_s);
            self.enter_grow(now_s);
        }
    }

    /// Growth by `acked` bytes.
    pub(super) fn grow_policed(&mut self, acked: f64, now_s: f64) {
        let (rtt_s, packet) = (self.rtt_s(), self.packet);
        if let Some(cubic) = &mut self.policer.law {
            self.window = self.window.max(cubic.window(now_s, rtt_s, packet, acked));
        }
    }

    /// Goes on after a cut: by CUBIC's law at a limit without a queue.
    pub(super) fn resume(&mut self, now_s: f64) {
        if self.policer.law.is_some() {
            self.state = State::Policed;
            self.begin_round(now_s);
        } else {
            self.enter_grow(now_s);
        }
    }
}

/// This many cuts in a row for loss without a queue mean such a limit; one may be anything.
const CUTS: u32 = 2;
/// Below this fraction of where it dropped, what is lost on a lossy path is the path's.
const BELOW: f64 = 0.95;
/// This far beyond where it dropped and still no loss: the limit is gone.
const BEYOND: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{
        Controller, Digest,
        knee::{Share, resolved_at},
    };

    const WINDOW: f64 = 1_500_000.0;

    /// Growing at 100 ms on a path that is known to lose `floor`.
    fn growing(floor: f64) -> Knee {
        let mut knee = Knee::new(Share::Fair, None);
        knee.pretend(0.1, WINDOW / 0.1, 1.0);
        knee.floor.learn_experiment(floor, 3000.0);
        knee.window = WINDOW;
        knee.enter_grow(1.0);
        knee.mark_cut(1.0);
        knee
    }

    /// A cut for an excess of losses from `now_s` on, after which it is gone.
    fn drop_some(knee: &mut Knee, floor_every: u64, now_s: f64) {
        knee.floor
            .update(&resolved_at(now_s, 1000, |number| number % 4 == 0), &[]);
        assert!(knee.floor.is_exceeded());
        knee.cut_for_loss(now_s);
        let after = resolved_at(now_s + 0.5, 1000, |number| {
            number % floor_every == floor_every - 1
        });
        knee.floor.update(&after, &[]);
        knee.step(false, now_s + 0.6);
    }

    /// At a limit that has dropped at a window of 1.5 MB.
    fn policed(floor: f64, floor_every: u64) -> Knee {
        let mut knee = growing(floor);
        drop_some(&mut knee, floor_every, 2.0);
        assert_eq!(knee.state(), "grow", "one cut may be anything");
        knee.window = WINDOW / 0.75;
        drop_some(&mut knee, floor_every, 4.0);
        assert_eq!(knee.state(), "policed");
        knee
    }

    #[test]
    fn at_a_limit_without_a_queue_two_losses_are_yielded_to_as_cubic_does() {
        let mut knee = policed(0.0, u64::MAX);
        knee.window = WINDOW;
        knee.floor
            .update(&resolved_at(6.0, 1000, |number| number % 600 == 599), &[]);
        knee.step_policed(6.0);
        assert_eq!(knee.state(), "policed", "the first may be the path's");
        knee.floor
            .update(&resolved_at(6.0, 1000, |number| number % 600 == 599), &[]);
        knee.step_policed(6.1);
        assert_eq!(knee.state(), "loss drain");
        assert!((knee.window / WINDOW - 0.7).abs() < 0.01);
    }

    #[test]
    fn on_a_lossy_path_only_what_exceeds_the_floor_is_yielded_to() {
        let mut knee = policed(0.1, 10);
        knee.window = WINDOW;
        knee.floor
            .update(&resolved_at(6.0, 2000, |number| number % 10 == 0), &[]);
        knee.step_policed(6.0);
        assert_eq!(knee.state(), "policed");
        knee.floor
            .update(&resolved_at(6.0, 1000, |number| number % 5 == 0), &[]);
        knee.step_policed(6.1);
        assert_eq!(knee.state(), "loss drain");
        assert!((0.75..0.9).contains(&(knee.window / WINDOW)));
    }

    #[test]
    fn a_queue_ends_it() {
        let mut knee = policed(0.0, u64::MAX);
        knee.queue.delay_s = 0.02;
        knee.queue.is_fresh = true;
        knee.step_policed(6.0);
        assert_eq!(knee.state(), "drain");
        assert!(knee.policer.law.is_none());
    }

    #[test]
    fn a_limit_that_is_gone_ends_it() {
        let mut knee = policed(0.0, u64::MAX);
        knee.window = 10.0 * WINDOW;
        knee.step_policed(6.0);
        assert_eq!(knee.state(), "grow");
        assert!(knee.policer.law.is_none() && !knee.is_gentle);
        assert!(knee.window < 2.1 * WINDOW, "no leap");
    }

    #[test]
    fn a_gap_between_reports_is_no_time_to_grow() {
        let mut knee = policed(0.0, u64::MAX);
        let before = knee.window;
        let packet = resolved_at(5.0, 1, |_| false);
        for at_s in [5.0, 25.0] {
            let digest = Digest {
                resolved: &packet,
                ..Digest::default()
            };
            knee.on_report(&digest, at_s);
        }
        assert!(knee.window < 1.1 * before, "{}", knee.window / before);
    }

    #[test]
    fn what_an_experiment_has_shown_to_be_too_much_is_not_regained_at_once() {
        let mut knee = policed(0.0, u64::MAX);
        knee.window = WINDOW;
        let lossy = |sent_s| resolved_at(sent_s, 2000, |number| number % 5 == 0);
        knee.floor.update(&lossy(6.0), &[]);
        knee.step_policed(6.0);
        assert_eq!(knee.state(), "loss drain");
        knee.floor.update(&lossy(6.5), &[]);
        knee.step(false, 6.6);
        assert_eq!(knee.state(), "experiment");
        let resume = 4.0 * knee.window;
        knee.floor.update(&resolved_at(7.0, 2000, |_| false), &[]);
        knee.step(false, 9.0);
        assert_eq!(knee.state(), "policed");
        knee.grow_policed(1500.0, 9.1);
        assert!(knee.window <= resume, "{} of {resume}", knee.window);
    }

    #[test]
    fn time_without_anything_to_send_is_no_time_to_grow() {
        let mut knee = policed(0.0, u64::MAX);
        let before = knee.window;
        for second in 5..65 {
            let idle = Digest {
                app_limited: true,
                ..Digest::default()
            };
            knee.on_report(&idle, f64::from(second));
        }
        let packet = resolved_at(65.0, 1, |_| false);
        let busy = Digest {
            resolved: &packet,
            ..Digest::default()
        };
        knee.on_report(&busy, 65.0);
        assert!(knee.window < 1.1 * before, "{}", knee.window / before);
    }
}
