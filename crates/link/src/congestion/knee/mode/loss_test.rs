//! Mode that tests whether a lower sending rate delivers a larger fraction of the packets.
//!
//! The input is losses in excess of the loss floor. The output is a smaller window. If the path
//! itself loses the packets, the output is the old window and a higher loss floor.
//!
//! The test has two stages. In the first stage the window is cut below the part that the path
//! delivered. If the cut removes most of the excess, the sender had caused the losses.
//!
//! If too much of the excess remains, the second stage begins. This stage is an experiment: it
//! sends at a quarter of the rate and compares the delivered fractions. If the delivered fraction
//! grows, the sender had overloaded the path. If it does not grow, the path itself loses the
//! packets, and the floor rises.
//!
//! If the floor is doubtful, the excess is unknown. The experiment then starts at once, and its
//! loss becomes the floor.

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
    /// Whether start-up continues if the test shows that the path itself causes the losses.
    is_from_start: bool,
    stage: LossTestStage,
    /// Start time of the present stage.
    began_s: f64,
}

/// State before a cut for loss. If the cut proves wrong, the controller restores this state.
#[derive(Debug, Clone, Copy)]
struct StateBeforeCut {
    window_bytes: f64,
    threshold_cap_s: f64,
    lost: LossCounts,
}

#[derive(Debug, Clone, Copy)]
enum LossTestStage {
    /// First stage, after a cut: tests whether the excess of losses has ended.
    Cut,
    /// Second stage, if losses continue: tests whether the path loses a smaller fraction of packets
    /// at a quarter of the rate.
    Experiment(Experiment),
}

#[derive(Debug, Clone, Copy)]
struct Experiment {
    /// Loss counts before the experiment. The losses of the experiment are compared with these
    /// counts.
    lost_before: LossCounts,
    /// Window before the experiment, in bytes.
    window_before_bytes: f64,
    /// Whether the known loss floor may be wrong. The loss of the experiment then becomes the
    /// floor.
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

    /// Undoes a cut that proved wrong, and continues with the window from before the cut.
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

    /// Returns the fraction of the old window that the path passes. The old window is the window
    /// before the cut.
    ///
    /// The result is below 1 if the losses before the cut exceeded the loss floor by more than
    /// chance explains.
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

    /// Continues the first stage. The stage ends when enough packets have shown whether the cut
    /// removed the excess.
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

    /// Continues the experiment until its result is certain or a timeout ends it.
    fn step_experiment(
        &self,
        experiment: &Experiment,
        path: &mut PathModel,
        now_s: f64,
    ) -> Transition {
        // Losses led to the cut at the start of the experiment. However, most of the packets that
        // were declared lost have arrived.
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
    /// At a quarter of the rate, the loss fraction is not lower: the path itself loses the packets,
    /// and the cut was not needed.
    Path,
    /// At a quarter of the rate, the loss fraction is lower: the sending rate causes the losses,
    /// and the cut was too small.
    Rate,
}

impl Experiment {
    /// Returns the result of the experiment after `since_s` seconds. Returns `None` while the
    /// result is uncertain and no timeout has passed.
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

    /// Updates the loss floor with the result of the experiment.
    ///
    /// If the floor was doubtful, the loss of the experiment replaces it. If the floor was not
    /// doubtful and the path itself loses the packets, the loss before and during the experiment
    /// replaces the floor.
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

/// Returns the window that the path would have passed without excess losses. `lost` holds the
/// losses at the present window.
fn window_that_passed(path: &PathModel, lost: &LossCounts) -> f64 {
    let delivered_part = delivered(path.floor.loss());
    let by_loss = path.window_bytes * (1.0 - lost.loss_fraction()) / delivered_part;
    let by_delivery = path.capacity.delivered();
    let by_delivery =
        by_delivery.map_or(f64::INFINITY, |rate| rate / delivered_part * path.base_s());
    Mechanism::PassedByDelivery.value(by_loss.min(by_delivery), by_loss)
}

/// Whether the cut removed at least half of the losses in excess of the floor. `loss_at_cut` is the
/// loss fraction before the cut.
fn excess_is_gone(path: &PathModel, loss_at_cut: f64) -> bool {
    let floor = path.floor.loss();
    let excess_before = (loss_at_cut - floor).max(EXCESS / GONE * (1.0 - floor));
    let excess = path.floor.since_cut.loss_fraction() - floor;
    excess <= GONE * excess_before && !path.floor.is_exceeded()
}

/// Whether the measured loss since the cut is precise enough for a comparison with an experiment.
fn loss_is_known(path: &PathModel) -> bool {
    let loss = path.floor.since_cut.loss_fraction();
    let deviation_max = DEVIATION_MAX.min(DEVIATION_PART * telling_gain(path, loss));
    variance(path, &path.floor.since_cut) <= deviation_max.powi(2)
}

/// Returns the variance of the logarithm of the delivered fraction.
fn variance(path: &PathModel, lost: &LossCounts) -> f64 {
    let loss = lost.loss_fraction().max(FRACTION_MIN);
    let odds = loss / delivered(loss);
    odds * Mechanism::DispersionMax.value(
        path.floor.dispersion(loss).min(DISPERSION_MAX),
        path.floor.dispersion(loss),
    ) / lost.packets.max(1.0)
}

/// Returns a limit for the growth of the delivered fraction, as a logarithm. Growth of at least
/// this limit shows congestion. `loss` is the loss fraction before the experiment.
///
/// The result is half of the possible growth, within [`GAIN_MIN`] and [`GAIN`].
fn telling_gain(path: &PathModel, loss: f64) -> f64 {
    let all = ((1.0 - path.floor.loss()) / delivered(loss)).ln();
    Mechanism::SmallGain.value((GAIN_PART * all).clamp(GAIN_MIN, GAIN), GAIN)
}

/// Returns the delivered fraction, but at least [`FRACTION_MIN`], so that the caller can divide by
/// the result.
fn delivered(loss: f64) -> f64 {
    (1.0 - loss).max(FRACTION_MIN)
}

/// Window after a cut, as a fraction of the window that the path passes. If the window is smaller
/// by a tenth, a queue of one bandwidth-delay product becomes empty within ten round trips.
const OF_PASSED: f64 = 0.9;

/// Fraction of the losses in excess of the floor. If a cut removes at least this fraction, the cut
/// was right.
const GONE: f64 = 0.5;
/// Least number of packets after which a cut or an experiment has a result. For a cut, the number
/// is at most [`CUT_PACKETS_MAX`].
///
/// Fewer packets are weak evidence for a loss of a few percent. Within these limits, a cut waits
/// for one window of packets. More packets would only take time.
const JUDGED_PACKETS_MIN: f64 = 16.0;
const CUT_PACKETS_MAX: f64 = 400.0;
/// Time limit for a cut or an experiment. If either takes longer, the path counts as slow. An
/// experiment then needs only [`JUDGED_PACKETS_MIN`] packets. A cut that lasts
/// [`CUT_TIMEOUT_ROUNDS`] rounds longer has a result even with few packets.
const SLOW_S: f64 = 3.0;
const CUT_TIMEOUT_ROUNDS: f64 = 2.0;

/// Divisor of the sending rate in an experiment.
///
/// A larger divisor would show more clearly whether a shared bottleneck is overloaded. If the path
/// itself loses the packets, a larger divisor would waste more capacity.
const EXPERIMENT_DIVISOR: f64 = 4.0;
/// Number of packets of an experiment. After [`SLOW_S`] an experiment may end with fewer packets,
/// but needs at least [`JUDGED_PACKETS_MIN`].
const EXPERIMENT_PACKETS: f64 = 64.0;
/// Time after which an experiment ends even if chance may explain its result. An experiment uses
/// only a quarter of the rate, so it must not last long.
///
/// Once the experiment reaches the number of packets that were counted before it, half of the time
/// is enough. More packets would reduce only one of the two variances.
const EXPERIMENT_MAX_S: f64 = 5.0;
/// Limit for the growth of the delivered fraction, as a logarithm. Growth of at least this limit
/// shows congestion.
///
/// Example: five senders overload a bottleneck. If one of them reduces its rate to a quarter, the
/// logarithm grows by 0.16.
const GAIN: f64 = 0.1;
/// Fraction of the possible growth of the delivered fraction. Growth of this size shows congestion,
/// even if it is less than [`GAIN`].
const GAIN_PART: f64 = 0.5;
/// Least growth that shows congestion, as a logarithm. A test for less growth would need too many
/// packets.
const GAIN_MIN: f64 = 0.02;
/// Largest standard deviation of the loss before an experiment, as a logarithm. The deviation is
/// also at most the fraction `DEVIATION_PART` of the growth that shows congestion.
const DEVIATION_MAX: f64 = 0.035;
const DEVIATION_PART: f64 = 0.5;
/// Largest assumed variance, as a multiple of the variance of independent losses. Without this
/// limit, an experiment with bursts of fifty lost packets would never have a certain result.
const DISPERSION_MAX: f64 = 20.0;
/// Least delivered fraction by which a formula divides. The value is also the least loss fraction
/// in the variance. Without this limit, an experiment without losses would have a variance of zero.
const FRACTION_MIN: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{
        Controller,
        knee::{Knee, KneePolicy, mode::KneeMode, resolved_at},
    };

    /// Returns a controller after an experiment. Before the experiment, 8 % of 400 packets were
    /// lost. The experiment loses one packet in `every`.
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

    /// Returns a controller after an experiment in start-up. The floor was 20 %, and the round
    /// before the experiment lost 60 %. The experiment loses `part` of ten packets.
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
