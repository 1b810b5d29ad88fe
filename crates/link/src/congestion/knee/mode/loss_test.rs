//! Mode that tests whether less sending delivers a larger fraction.
//!
//! The input is an excess of losses. The output is the window that passes, or the window before the
//! cut and a higher floor.
//!
//! The test has two stages. First the window is cut below the window that passed. If that removes
//! most of the excess, it was our doing. Otherwise an experiment sends at a quarter of the rate and
//! compares the delivered fractions. If the fraction grows, the sender had overloaded the path.
//! Otherwise the path loses by itself, and the floor rises.
//!
//! If the floor itself is in doubt there is no excess to judge. The experiment then starts at once,
//! and its loss is the floor.

use super::{
    super::{
        cubic::CubicWindow,
        floor::{EXCESS, EXCESS_PACKETS_MIN, LossCounts, UNLIKELY_DEVIATIONS},
        path_model::PathModel,
    },
    transition::{LossEvidence, Transition},
};
use crate::congestion::knee::Mechanism;

#[derive(Debug)]
pub(in super::super) struct LossTest {
    before: StateBeforeCut,
    /// Whether start-up continues if the losses are the path's.
    is_from_start: bool,
    stage: LossTestStage,
    /// Start of the stage.
    began_s: f64,
}

/// State before a cut for loss, which is restored if the cut proves wrong.
#[derive(Debug, Clone, Copy)]
struct StateBeforeCut {
    window_bytes: f64,
    threshold_cap_s: f64,
    lost: LossCounts,
}

#[derive(Debug, Clone, Copy)]
enum LossTestStage {
    /// After a cut: is the excess gone?
    Cut,
    /// Losses continue: are there fewer at a quarter of the rate?
    Experiment(Experiment),
}

#[derive(Debug, Clone, Copy)]
struct Experiment {
    /// Losses before the experiment, for the comparison.
    lost_before: LossCounts,
    /// Window before the experiment, in bytes.
    window_before_bytes: f64,
    /// Whether the known floor is in doubt.
    doubts_floor: bool,
}

impl LossTest {
    pub(super) fn begin(sign: LossEvidence, path: &mut PathModel, now_s: f64) -> Self {
        let before = StateBeforeCut {
            window_bytes: path.window_bytes,
            threshold_cap_s: path.queue.threshold_cap_s,
            lost: path.floor.since_cut,
        };
        let has_queue = path.queue.is_there();
        if Mechanism::ShallowQueue.acts(has_queue && sign.is_from_growth) {
            path.queue.lower_threshold(path.packet_time_s());
        }
        let lost = sign.drowned.unwrap_or(path.floor.since_cut);
        let passed = window_that_passed(path, &lost).max(sign.passed_min);
        path.window_bytes = OF_PASSED * passed;
        let stage = if sign.drowned.is_some() {
            let experiment = Experiment {
                lost_before: lost,
                window_before_bytes: path.window_bytes,
                doubts_floor: true,
            };
            path.window_bytes /= EXPERIMENT_DIVISOR;
            LossTestStage::Experiment(experiment)
        } else {
            if has_queue {
                path.policer.forget();
            } else if let Some(window_bytes) = path.policer.cut(passed, &path.floor, now_s) {
                path.window_bytes = window_bytes;
            }
            LossTestStage::Cut
        };
        path.is_gentle = true;
        path.mark_cut(now_s);
        Self {
            before,
            is_from_start: sign.is_from_start,
            stage,
            began_s: now_s,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self.stage {
            LossTestStage::Cut => "loss drain",
            LossTestStage::Experiment(_) => "experiment",
        }
    }

    pub(super) fn step(&mut self, path: &mut PathModel, now_s: f64) -> Transition {
        match self.stage {
            LossTestStage::Cut => self.step_cut(path, now_s),
            LossTestStage::Experiment(experiment) => self.step_experiment(&experiment, path, now_s),
        }
    }

    /// Undoes a needless cut, and continues as before it.
    pub(super) fn undo(&self, path: &mut PathModel, now_s: f64) -> Transition {
        self.restore(path);
        path.mark_cut(now_s);
        if self.is_from_start {
            Transition::Start
        } else {
            Transition::Grow
        }
    }

    fn restore(&self, path: &mut PathModel) {
        path.window_bytes = self.before.window_bytes;
        path.queue.threshold_cap_s = self.before.threshold_cap_s;
        path.is_gentle = false;
        path.policer.forget();
    }

    /// Returns the part of the window before the cut that the path passes. It is below 1 if the
    /// losses before the cut exceed the loss floor beyond chance.
    fn passed_before_cut(&self, path: &PathModel) -> f64 {
        let lost = &self.before.lost;
        let gain = (delivered(path.floor.loss()) / delivered(lost.loss_fraction())).ln();
        let chance = UNLIKELY_DEVIATIONS * variance(path, lost).sqrt();
        if Mechanism::PassedBeforeCut.acts(gain > chance) {
            (-gain).exp()
        } else {
            1.0
        }
    }

    /// Continues until a window's packets have shown whether the cut helped.
    fn step_cut(&mut self, path: &mut PathModel, now_s: f64) -> Transition {
        if Mechanism::UndoWrongCut.acts(path.floor.cut_was_wrong()) {
            return self.undo(path, now_s);
        }
        let packets = path.floor.since_cut.packets;
        let timeout_s = SLOW_S + CUT_TIMEOUT_ROUNDS * path.round_s();
        let is_late = now_s - self.began_s > timeout_s;
        let wanted =
            (path.window_bytes / path.packet_bytes).clamp(JUDGED_PACKETS_MIN, CUT_PACKETS_MAX);
        if packets < wanted && !is_late {
            return Transition::Stay;
        }
        if excess_is_gone(path, self.before.lost.loss_fraction()) || packets < EXCESS_PACKETS_MIN {
            if Mechanism::LearnAfterCut.acts(true) {
                path.floor.learn_near();
            }
            return Transition::Resume;
        }
        if Mechanism::Experiment.acts(is_late || loss_is_known(path)) {
            self.begin_experiment(path, now_s);
        } else if is_late || loss_is_known(path) {
            return Transition::Resume;
        }
        Transition::Stay
    }

    fn begin_experiment(&mut self, path: &mut PathModel, now_s: f64) {
        self.stage = LossTestStage::Experiment(Experiment {
            lost_before: path.floor.since_cut,
            window_before_bytes: path.window_bytes,
            doubts_floor: false,
        });
        self.began_s = now_s;
        path.window_bytes /= EXPERIMENT_DIVISOR;
        path.mark_cut(now_s);
    }

    /// Continues until the result for a quarter of the rate is beyond chance.
    fn step_experiment(
        &self,
        experiment: &Experiment,
        path: &mut PathModel,
        now_s: f64,
    ) -> Transition {
        // A cut for an experiment at once was due to the compared losses, and most of their packets
        // have arrived.
        if Mechanism::UndoWrongExperiment
            .acts(experiment.doubts_floor && path.floor.cut_was_wrong())
        {
            return self.undo(path, now_s);
        }
        let Some(verdict) = experiment.verdict(path, now_s - self.began_s) else {
            return Transition::Stay;
        };
        experiment.teach_floor(&verdict, path);
        match verdict {
            ExperimentVerdict::Path => {
                self.restore(path);
                path.window_bytes *= self.passed_before_cut(path);
            }
            ExperimentVerdict::Rate => experiment.blame_rate(path, now_s),
        }
        path.mark_cut(now_s);
        match verdict {
            ExperimentVerdict::Path if self.is_from_start => Transition::Start,
            _ => Transition::Resume,
        }
    }
}

/// Result of an experiment.
enum ExperimentVerdict {
    /// A quarter of the rate loses as much: the loss is the path's, and the cut was needless.
    Path,
    /// A quarter of the rate loses less: the cut was right, and not enough.
    Rate,
}

impl Experiment {
    /// Returns the result after `since_s` seconds, if it is beyond chance or has taken too long.
    fn verdict(&self, path: &PathModel, since_s: f64) -> Option<ExperimentVerdict> {
        let packets = path.floor.since_cut.packets;
        let packets_min = if !Mechanism::FewPackets.acts(since_s >= SLOW_S) {
            EXPERIMENT_PACKETS
        } else {
            JUDGED_PACKETS_MIN
        };
        if packets < packets_min {
            return None;
        }
        let lost = &path.floor.since_cut;
        let loss_before = self.lost_before.loss_fraction();
        let gain = (delivered(lost.loss_fraction()) / delivered(loss_before)).ln();
        let variance = variance(path, &self.lost_before) + variance(path, lost);
        let telling = telling_gain(path, loss_before);
        let is_certain = (gain - telling).abs() > UNLIKELY_DEVIATIONS * variance.sqrt();
        let timeout_s = if Mechanism::ExperimentTimeout.acts(packets >= self.lost_before.packets) {
            EXPERIMENT_MAX_S / 2.0
        } else {
            EXPERIMENT_MAX_S
        };
        let is_late = since_s > timeout_s && packets >= EXPERIMENT_PACKETS;
        let is_over = is_certain || is_late;
        is_over.then_some(if gain < telling {
            ExperimentVerdict::Path
        } else {
            ExperimentVerdict::Rate
        })
    }

    /// Updates the floor. A floor in doubt becomes the loss of the experiment. If the loss is the
    /// path's, all losses since the cut are the path's.
    fn teach_floor(&self, verdict: &ExperimentVerdict, path: &mut PathModel) {
        let lost = path.floor.since_cut;
        let lost = match verdict {
            _ if self.doubts_floor => lost,
            ExperimentVerdict::Path => lost.and(&self.lost_before),
            ExperimentVerdict::Rate => return,
        };
        path.floor
            .learn_experiment(lost.loss_fraction(), lost.packets);
    }

    fn blame_rate(&self, path: &mut PathModel, now_s: f64) {
        path.window_bytes = OF_PASSED * self.window_before_bytes;
        if let Some(law) = path.policer.law() {
            *law = CubicWindow::new(path.window_bytes, now_s);
        }
    }
}

/// Returns the window that would have passed without an excess of losses. The losses were `lost`.
fn window_that_passed(path: &PathModel, lost: &LossCounts) -> f64 {
    let delivered_part = delivered(path.floor.loss());
    let by_loss = path.window_bytes * (1.0 - lost.loss_fraction()) / delivered_part;
    let by_delivery = path.capacity.delivered();
    let by_delivery =
        by_delivery.map_or(f64::INFINITY, |rate| rate / delivered_part * path.base_s());
    Mechanism::PassedByDelivery.value(by_loss.min(by_delivery), by_loss)
}

/// Whether the cut removed at least half of the losses beyond the floor.
fn excess_is_gone(path: &PathModel, loss_at_cut: f64) -> bool {
    let floor = path.floor.loss();
    let excess_before = (loss_at_cut - floor).max(EXCESS / GONE * (1.0 - floor));
    let excess = path.floor.since_cut.loss_fraction() - floor;
    excess <= GONE * excess_before && !path.floor.is_exceeded()
}

/// Whether the loss since the cut is known well enough to compare an experiment with it.
fn loss_is_known(path: &PathModel) -> bool {
    let loss = path.floor.since_cut.loss_fraction();
    let deviation_max = DEVIATION_MAX.min(DEVIATION_PART * telling_gain(path, loss));
    variance(path, &path.floor.since_cut) <= deviation_max.powi(2)
}

/// Returns the variance of the logarithm of the fraction delivered.
fn variance(path: &PathModel, lost: &LossCounts) -> f64 {
    let loss = lost.loss_fraction().max(FRACTION_MIN);
    let odds = loss / delivered(loss);
    odds * Mechanism::DispersionMax.value(
        path.floor.dispersion(loss).min(DISPERSION_MAX),
        path.floor.dispersion(loss),
    ) / lost.packets.max(1.0)
}

/// Returns the gain that shows congestion after `loss`: at most half of the possible gain.
fn telling_gain(path: &PathModel, loss: f64) -> f64 {
    let all = ((1.0 - path.floor.loss()) / delivered(loss)).ln();
    Mechanism::SmallGain.value((GAIN_PART * all).clamp(GAIN_MIN, GAIN), GAIN)
}

/// Returns the fraction delivered, large enough to divide by.
fn delivered(loss: f64) -> f64 {
    (1.0 - loss).max(FRACTION_MIN)
}

/// Fraction of the passed window to which a cut goes. A tenth less empties a queue of one
/// bandwidth-delay product within ten round trips.
const OF_PASSED: f64 = 0.9;

/// Part of the losses beyond the floor that a helpful cut removes.
const GONE: f64 = 0.5;
/// Fewest packets that judge a cut or an experiment, and most that a cut waits for.
///
/// Fewer show little of a loss of a few percent. A cut is judged by a window's packets, but at most
/// by [`CUT_PACKETS_MAX`], since more only take time.
const JUDGED_PACKETS_MIN: f64 = 16.0;
const CUT_PACKETS_MAX: f64 = 400.0;
/// Time after which a path counts as slow. A few packets then judge an experiment. A cut is judged
/// by any number after [`CUT_TIMEOUT_ROUNDS`] more.
const SLOW_S: f64 = 3.0;
const CUT_TIMEOUT_ROUNDS: f64 = 2.0;

/// Divisor of the rate in an experiment. A larger one would show more of a bottleneck shared with
/// others, and cost more rate if the loss is the path's.
const EXPERIMENT_DIVISOR: f64 = 4.0;
/// Packets of an experiment. It has fewer only after [`SLOW_S`], and never fewer than
/// [`JUDGED_PACKETS_MIN`].
const EXPERIMENT_PACKETS: f64 = 64.0;
/// Time after which an experiment ends even if chance may explain its result, since it costs three
/// quarters of the rate.
///
/// It ends after half of the time once it has as many packets as the comparison. More add little,
/// as the other half of the variance stays.
const EXPERIMENT_MAX_S: f64 = 5.0;
/// Growth of the delivered fraction that shows congestion, as a logarithm. If one of five senders
/// at an overloaded bottleneck falls to a quarter, they gain 0.16.
const GAIN: f64 = 0.1;
/// Part of the possible gain that is enough, if it is less.
const GAIN_PART: f64 = 0.5;
/// Gain below which the result is chance: more packets would take too long.
const GAIN_MIN: f64 = 0.02;
/// Largest deviation of the loss before the experiment, as a logarithm and as a part of the gain
/// that shows congestion.
const DEVIATION_MAX: f64 = 0.035;
const DEVIATION_PART: f64 = 0.5;
/// Largest variance with bursts, as a multiple of the variance of independent losses. Otherwise an
/// experiment in bursts of fifty packets would never be certain.
const DISPERSION_MAX: f64 = 20.0;
/// Least delivered fraction in divisions, and least loss in its variance. An experiment without a
/// loss has the variance for this loss, and not zero.
const FRACTION_MIN: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{
        Controller,
        knee::{Knee, KneePolicy, mode::KneeMode, resolved_at},
    };

    /// Returns an experiment after 8 % of 400 packets were lost, which loses each `every`-th
    /// packet.
    fn experiment(every: u64) -> Knee {
        let mut knee = Knee::new(KneePolicy::Fair, None);
        knee.path.pretend(0.1, 10e6, 1.0);
        let resolved = resolved_at(0.5, 400, |number| number * 37 % 100 < 8);
        knee.path.floor.update(&resolved, &[]);
        let lost_before = knee.path.floor.since_cut;
        knee.path.floor.learn_experiment(0.001, 3000.0);
        knee.mode = KneeMode::LossTest(LossTest {
            before: StateBeforeCut {
                window_bytes: 1e6,
                threshold_cap_s: f64::INFINITY,
                lost: lost_before,
            },
            is_from_start: false,
            stage: LossTestStage::Experiment(Experiment {
                lost_before,
                window_before_bytes: 0.8e6,
                doubts_floor: false,
            }),
            began_s: 1.0,
        });
        knee.path.mark_cut(1.0);
        let resolved = resolved_at(2.0, 1200, |number| number % every == every - 1);
        knee.path.floor.update(&resolved, &[]);
        knee.step(false, 2.5);
        knee
    }

    #[test]
    fn a_small_loss_that_a_quarter_of_the_rate_does_not_have_was_congestion() {
        let knee = experiment(u64::MAX);
        assert_eq!(knee.state(), "grow");
        assert!(knee.path.window_bytes < 0.8e6);
        assert!(knee.path.floor.loss() < 0.002);
    }

    #[test]
    fn a_small_loss_that_a_quarter_of_the_rate_has_as_well_is_the_path_s() {
        let knee = experiment(12);
        assert_eq!(knee.state(), "grow");
        assert_eq!(knee.path.window_bytes, 1e6);
        assert!((knee.path.floor.loss() - 0.082).abs() < 0.005);
    }

    /// Returns start-up after a round that lost 60 % beyond a floor of 20 %, and an experiment that
    /// loses `part` of ten packets.
    fn drowned(part: u64) -> Knee {
        let mut knee = Knee::new(KneePolicy::Fair, None);
        knee.path.pretend(0.1, 10e6, 1.0);
        knee.path.floor.learn_experiment(0.2, 32.0);
        knee.path.window_bytes = 1e6;
        let resolved = resolved_at(0.5, 100, |number| number * 7 % 10 < 6);
        knee.path.floor.update(&resolved, &[]);
        let sign = LossEvidence {
            is_from_start: true,
            drowned: Some(knee.path.floor.since_cut),
            ..LossEvidence::PLAIN
        };
        knee.follow(Transition::CutForLoss(sign), 1.0);
        assert_eq!(knee.state(), "experiment");
        assert!(knee.path.window_bytes <= OF_PASSED * 0.5e6 / EXPERIMENT_DIVISOR);
        let resolved = resolved_at(2.0, 300, |number| number * 7 % 10 < part);
        knee.path.floor.update(&resolved, &[]);
        knee.step(false, 4.0);
        knee
    }

    #[test]
    fn a_floor_in_doubt_is_what_a_quarter_of_the_rate_loses() {
        let knee = drowned(1);
        assert_eq!(knee.state(), "grow");
        assert!((knee.path.floor.loss() - 0.1).abs() < 1e-9);
        assert!(
            knee.path.window_bytes < 0.45e6,
            "{}",
            knee.path.window_bytes
        );
    }

    #[test]
    fn start_up_goes_on_if_a_quarter_of_the_rate_loses_as_much() {
        let knee = drowned(6);
        assert_eq!(knee.state(), "start");
        assert!((knee.path.floor.loss() - 0.6).abs() < 1e-9);
        assert!(
            knee.path.window_bytes > 0.75e6,
            "{}",
            knee.path.window_bytes
        );
    }

    #[test]
    fn an_experiment_that_compares_with_losses_that_turn_up_is_undone() {
        let mut knee = drowned(0);
        knee.path.window_bytes = 1e6;
        let resolved = resolved_at(4.5, 100, |number| number * 7 % 10 < 6);
        knee.path.floor.begin_count(4.2);
        knee.path.floor.update(&resolved, &[]);
        let sign = LossEvidence {
            drowned: Some(knee.path.floor.since_cut),
            ..LossEvidence::PLAIN
        };
        knee.follow(Transition::CutForLoss(sign), 5.0);
        knee.path.floor.update(&[], &[4.5; 50]);
        knee.step(false, 5.1);
        assert_eq!(knee.state(), "grow");
        assert_eq!(knee.path.window_bytes, 1e6);
    }
}
