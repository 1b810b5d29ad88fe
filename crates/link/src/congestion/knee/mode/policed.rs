//! Mode that grows the window below the rate of a policer. A policer drops packets instead of
//! queueing them.
//!
//! The input is reports. The output is the CUBIC window of
//! [`PolicerDetector`](super::super::policer_detector::PolicerDetector). The window is cut when
//! CUBIC would cut it. The mode ends when a queue appears, or when the window grows far above the
//! policer's rate.

use super::{
    super::path_model::PathModel,
    transition::{DrainSeries, LossEvidence, Transition},
};
use crate::congestion::knee::Mechanism;

#[derive(Debug)]
pub(in super::super) struct PolicedMode;

impl PolicedMode {
    /// Updates CUBIC's window after `acked` more bytes were acknowledged or declared lost.
    pub(super) fn grow(&self, path: &mut PathModel, acked: f64, now_s: f64) {
        let (rtt_s, packet_bytes) = (path.rtt_s(), path.packet_bytes);
        if let Some(law) = path.policer.law() {
            path.window_bytes =
                path.window_bytes
                    .max(law.window_bytes(now_s, rtt_s, packet_bytes, acked));
        }
    }

    pub(super) fn step(&self, path: &mut PathModel, now_s: f64) -> Transition {
        if Mechanism::LearnPoliced
            .acts(path.policer.passes(path.window_bytes) && !path.floor.is_path_clean())
        {
            path.floor.learn_longer();
        }
        if path.queue_shows() {
            return Transition::Drain {
                capacity: path.capacity(),
                series: DrainSeries::default(),
            };
        }
        if path.floor.begins_to_be_exceeded() || path.floor.is_exceeded() {
            return Transition::CutForLoss(LossEvidence {
                passed_min: Mechanism::PassedMin.value(PASSED_MIN * path.window_bytes, 0.0),
                ..LossEvidence::PLAIN
            });
        }
        if Mechanism::PolicerGone.acts(path.window_bytes > path.policer.gone_at()) {
            path.window_bytes = path.policer.gone_at();
            path.is_gentle = false;
            path.policer.forget();
            path.mark_cut(now_s);
            return Transition::Grow;
        }
        Transition::Stay
    }
}

/// Least window after a cut, as a fraction of the window before the cut. The window grows slowly in
/// this mode, so a lower estimate comes from a burst of losses.
const PASSED_MIN: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{
        Controller, Digest,
        knee::{Knee, KneePolicy, resolved_at},
    };

    const WINDOW: f64 = 1_500_000.0;

    /// Returns a controller in the growth mode on a path of 100 ms with the loss floor `floor`.
    fn growing(floor: f64) -> Knee {
        let mut knee = Knee::new(KneePolicy::Fair, None);
        knee.path.pretend(0.1, WINDOW / 0.1, 1.0);
        knee.path.floor.learn_experiment(floor, 3000.0);
        knee.path.window_bytes = WINDOW;
        knee.follow(Transition::Grow, 1.0);
        knee.path.mark_cut(1.0);
        knee
    }

    /// Causes a cut for excess losses at `now_s`. After the cut the excess ends.
    fn drop_some(knee: &mut Knee, floor_every: u64, now_s: f64) {
        knee.path
            .floor
            .update(&resolved_at(now_s, 1000, |number| number % 4 == 0), &[]);
        assert!(knee.path.floor.is_exceeded());
        let sign = LossEvidence {
            is_from_growth: true,
            ..LossEvidence::PLAIN
        };
        knee.follow(Transition::CutForLoss(sign), now_s);
        let after = resolved_at(now_s + 0.5, 1000, |number| {
            number % floor_every == floor_every - 1
        });
        knee.path.floor.update(&after, &[]);
        knee.step(false, now_s + 0.6);
    }

    /// Returns a controller in the policed mode. The policer has dropped packets at a window of 1.5
    /// MB.
    fn policed(floor: f64, floor_every: u64) -> Knee {
        let mut knee = growing(floor);
        drop_some(&mut knee, floor_every, 2.0);
        assert_eq!(knee.state(), "grow", "one cut may be anything");
        knee.path.window_bytes = WINDOW / 0.75;
        drop_some(&mut knee, floor_every, 4.0);
        assert_eq!(knee.state(), "policed");
        knee
    }

    #[test]
    fn at_a_policer_the_window_yields_to_two_losses_as_cubic_does() {
        let mut knee = policed(0.0, u64::MAX);
        knee.path.window_bytes = WINDOW;
        knee.path
            .floor
            .update(&resolved_at(6.0, 1000, |number| number % 600 == 599), &[]);
        knee.step(false, 6.0);
        assert_eq!(knee.state(), "policed", "the first may be the path's");
        knee.path
            .floor
            .update(&resolved_at(6.0, 1000, |number| number % 600 == 599), &[]);
        knee.step(false, 6.1);
        assert_eq!(knee.state(), "loss drain");
        assert!((knee.path.window_bytes / WINDOW - 0.7).abs() < 0.01);
    }

    #[test]
    fn on_a_lossy_path_only_what_exceeds_the_floor_is_yielded_to() {
        let mut knee = policed(0.1, 10);
        knee.path.window_bytes = WINDOW;
        knee.path
            .floor
            .update(&resolved_at(6.0, 2000, |number| number % 10 == 0), &[]);
        knee.step(false, 6.0);
        assert_eq!(knee.state(), "policed");
        knee.path
            .floor
            .update(&resolved_at(6.0, 1000, |number| number % 5 == 0), &[]);
        knee.step(false, 6.1);
        assert_eq!(knee.state(), "loss drain");
        assert!((0.75..0.9).contains(&(knee.path.window_bytes / WINDOW)));
    }

    #[test]
    fn a_queue_ends_it() {
        let mut knee = policed(0.0, u64::MAX);
        knee.path.queue.delay_s = 0.02;
        knee.path.queue.is_fresh = true;
        knee.step(false, 6.0);
        assert_eq!(knee.state(), "drain");
        assert!(!knee.path.policer.is_known());
    }

    #[test]
    fn the_end_of_a_policer_ends_the_mode() {
        let mut knee = policed(0.0, u64::MAX);
        knee.path.window_bytes = 10.0 * WINDOW;
        knee.step(false, 6.0);
        assert_eq!(knee.state(), "grow");
        assert!(!knee.path.policer.is_known() && !knee.path.is_gentle);
        assert!(knee.path.window_bytes < 2.1 * WINDOW, "no leap");
    }

    #[test]
    fn a_gap_between_reports_is_no_time_to_grow() {
        let mut knee = policed(0.0, u64::MAX);
        let before = knee.path.window_bytes;
        let packet = resolved_at(5.0, 1, |_| false);
        for at_s in [5.0, 25.0] {
            let digest = Digest {
                resolved: &packet,
                ..Digest::default()
            };
            knee.on_report(&digest, at_s);
        }
        assert!(
            knee.path.window_bytes < 1.1 * before,
            "{}",
            knee.path.window_bytes / before
        );
    }

    #[test]
    fn what_an_experiment_has_shown_to_be_too_much_is_not_regained_at_once() {
        let mut knee = policed(0.0, u64::MAX);
        knee.path.window_bytes = WINDOW;
        let lossy = |sent_s| resolved_at(sent_s, 2000, |number| number % 5 == 0);
        knee.path.floor.update(&lossy(6.0), &[]);
        knee.step(false, 6.0);
        assert_eq!(knee.state(), "loss drain");
        knee.path.floor.update(&lossy(6.5), &[]);
        knee.step(false, 6.6);
        assert_eq!(knee.state(), "experiment");
        let resume = 4.0 * knee.path.window_bytes;
        knee.path
            .floor
            .update(&resolved_at(7.0, 2000, |_| false), &[]);
        knee.step(false, 9.0);
        assert_eq!(knee.state(), "policed");
        knee.mode.grow(&mut knee.path, 1500.0, 9.1);
        assert!(
            knee.path.window_bytes <= resume,
            "{} of {resume}",
            knee.path.window_bytes
        );
    }

    #[test]
    fn time_without_anything_to_send_is_no_time_to_grow() {
        let mut knee = policed(0.0, u64::MAX);
        let before = knee.path.window_bytes;
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
        assert!(
            knee.path.window_bytes < 1.1 * before,
            "{}",
            knee.path.window_bytes / before
        );
    }
}
