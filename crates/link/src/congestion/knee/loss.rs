//! What a loss in excess of the floor leads to: a cut, and if that does not help, an experiment.
//!
//! The experiment sends at a quarter of the rate and compares the fraction delivered. If that grows, the
//! sender had overloaded the path; if not, the path loses by itself, and the floor rises.

use super::{
    Knee,
    cubic::Cubic,
    state::{BeforeCut, Experiment, LossDrain, State},
};

impl Knee {
    pub(super) fn cut_for_loss(&mut self, now_s: f64) {
        let before = BeforeCut {
            window: self.window,
            threshold_cap_s: self.queue.threshold_cap_s,
        };
        if self.queue.is_there() && matches!(self.state, State::Grow(_)) {
            self.queue.lower_threshold(self.packet_time_s());
        }
        let passed = self.window_that_passed();
        self.window = OF_PASSED * passed;
        if let Some(window) = self.cut_policed(passed, now_s) {
            self.window = window;
        }
        self.state = State::LossDrain(LossDrain {
            before,
            loss_at_cut: self.floor.since_cut.rate(),
            cut_s: now_s,
        });
        self.is_gentle = true;
        self.mark_cut(now_s);
    }

    /// The window that would have passed without an excess of losses.
    fn window_that_passed(&self) -> f64 {
        let floor = self.floor.loss();
        let by_loss = self.window * (1.0 - self.floor.since_cut.rate()) / (1.0 - floor);
        let by_delivery = self
            .capacity
            .delivered()
            .map_or(f64::INFINITY, |delivered| {
                delivered / (1.0 - floor) * self.base_s()
            });
        let passed = by_loss.min(by_delivery);
        if matches!(self.state, State::Policed) {
            // Growth was slow: what seems to pass much less is a burst.
            passed.max(PASSED_WHEN_POLICED * self.window)
        } else {
            passed
        }
    }

    pub(super) fn step_loss_drain(&mut self, drain: LossDrain, now_s: f64) {
        if self.floor.cut_was_wrong() {
            self.undo_cut(&drain.before);
            self.mark_cut(now_s);
            self.enter_grow(now_s);
            return;
        }
        let packets = self.floor.since_cut.packets;
        let is_late =
            now_s - drain.cut_s > DRAIN_PATIENCE_S + DRAIN_PATIENCE_ROUNDS * self.round_s();
        let wanted = (self.window / self.packet).clamp(DRAIN_PACKETS_MIN, DRAIN_PACKETS_MAX);
        if packets < wanted && !is_late {
            return;
        }
        if self.excess_is_gone(&drain) || packets < TELLING_PACKETS_MIN {
            self.floor.learn_near();
            self.resume(now_s);
            return;
        }
        let loss = self.floor.since_cut.rate();
        let deviation_max = DEVIATION_MAX.min(self.telling_gain(loss) / 2.0);
        if self.variance(loss, packets) <= deviation_max.powi(2) || is_late {
            self.enter_experiment(&drain, now_s);
        }
    }

    /// Whether the cut took away at least half of the losses beyond the floor.
    fn excess_is_gone(&self, drain: &LossDrain) -> bool {
        let floor = self.floor.loss();
        // A cut may come at the first losses: then a few more, of others that share the limit, are few.
        let excess_before = (drain.loss_at_cut - floor).max(2.0 * FEW * (1.0 - floor));
        let excess = self.floor.since_cut.rate() - floor;
        excess <= excess_before / 2.0 && !self.floor.is_exceeded()
    }

    /// The cut was for nothing.
    pub(super) fn undo_cut(&mut self, before: &BeforeCut) {
        self.window = before.window;
        self.queue.threshold_cap_s = before.threshold_cap_s;
        self.is_gentle = false;
        self.forget_policer();
    }

    fn enter_experiment(&mut self, drain: &LossDrain, now_s: f64) {
        let tally = self.floor.since_cut;
        self.state = State::Experiment(Experiment {
            before: drain.before,
            loss_before: tally.rate(),
            packets_before: tally.packets,
            resume: self.window,
            began_s: now_s,
        });
        self.window /= EXPERIMENT_DIVISOR;
        self.mark_cut(now_s);
    }

    /// Variance of the logarithm of the fraction delivered, seen in so many packets.
    fn variance(&self, loss: f64, packets: f64) -> f64 {
        let odds = loss / delivered(loss);
        odds * self.floor.dispersion(loss).min(DISPERSION_MAX) / packets.max(1.0)
    }

    /// The gain that speaks for congestion after `loss`: half of all that there is to gain, at most.
    fn telling_gain(&self, loss: f64) -> f64 {
        let all = ((1.0 - self.floor.loss()) / delivered(loss)).ln();
        (all / 2.0).clamp(GAIN_MIN, GAIN)
    }

    /// Goes on until it is beyond chance whether a quarter of the rate gets more through.
    pub(super) fn step_experiment(&mut self, experiment: Experiment, now_s: f64) {
        let Experiment {
            loss_before,
            packets_before,
            began_s,
            ..
        } = experiment;
        let packets = self.floor.since_cut.packets;
        let since_s = now_s - began_s;
        if packets < EXPERIMENT_PACKETS && since_s < EXPERIMENT_FEW_S
            || packets < EXPERIMENT_PACKETS_MIN
        {
            return;
        }
        let loss = self.floor.since_cut.rate();
        let gain = (delivered(loss) / delivered(loss_before)).ln();
        let variance = self.variance(loss_before, packets_before)
            + self.variance(loss.max(LOSS_SEEN_MIN), packets);
        let telling = self.telling_gain(loss_before);
        let is_certain = (gain - telling).abs() > CERTAIN_DEVIATIONS * variance.sqrt();
        let patience_s = if packets >= packets_before {
            EXPERIMENT_LARGE_S
        } else {
            EXPERIMENT_MAX_S
        };
        let is_late = since_s > patience_s && packets >= EXPERIMENT_PACKETS;
        if !is_certain && !is_late {
            return;
        }
        if gain < telling {
            self.blame_path(&experiment);
        } else {
            self.blame_rate(&experiment, now_s);
        }
        self.mark_cut(now_s);
        self.resume(now_s);
    }

    /// A quarter of the rate loses as much: the path does it, and the cut was for nothing.
    fn blame_path(&mut self, experiment: &Experiment) {
        let tally = self.floor.since_cut;
        let packets = tally.packets + experiment.packets_before;
        let lost =
            tally.rate() * tally.packets + experiment.loss_before * experiment.packets_before;
        self.floor.learn_experiment(lost / packets, packets);
        self.undo_cut(&experiment.before);
    }

    /// A quarter of the rate loses less: the cut was right, and not enough.
    fn blame_rate(&mut self, experiment: &Experiment, now_s: f64) {
        self.window = OF_PASSED * experiment.resume;
        if let Some(cubic) = &mut self.policer.law {
            *cubic = Cubic::new(self.window, now_s);
        }
    }
}

/// The fraction delivered, large enough to divide by.
fn delivered(loss: f64) -> f64 {
    (1.0 - loss).max(DELIVERED_MIN)
}

/// A cut goes to this fraction of what passed: a tenth less empties a queue of one bandwidth-delay product
/// within ten round trips.
const OF_PASSED: f64 = 0.9;
/// At a policer a cut takes what passed for this fraction of the window at least: growth is slow there, so
/// what seems to pass less is a burst of losses.
const PASSED_WHEN_POLICED: f64 = 0.8;

/// Losses beyond the floor that do not speak against a cut.
const FEW: f64 = 0.02;
/// A cut is judged by a window's packets, but at least and at most by this many: fewer show nothing of a
/// loss of a few percent, more only take time.
const DRAIN_PACKETS_MIN: f64 = 16.0;
const DRAIN_PACKETS_MAX: f64 = 400.0;
/// ... and after this time and this many rounds by whatever has come: a slow path must not hold the
/// state for ever.
const DRAIN_PATIENCE_S: f64 = 3.0;
const DRAIN_PATIENCE_ROUNDS: f64 = 2.0;
/// With fewer packets than this no experiment begins.
const TELLING_PACKETS_MIN: f64 = 8.0;

/// An experiment sends at the rate divided by this. More would show more of a bottleneck shared with
/// others, and cost more rate where the path is to blame.
const EXPERIMENT_DIVISOR: f64 = 4.0;
/// Packets of an experiment: fewer only after [`EXPERIMENT_FEW_S`], and never fewer than
/// [`EXPERIMENT_PACKETS_MIN`].
const EXPERIMENT_PACKETS: f64 = 64.0;
const EXPERIMENT_PACKETS_MIN: f64 = 16.0;
const EXPERIMENT_FEW_S: f64 = 3.0;
/// An experiment ends after this time even if chance may explain its result, since it costs three quarters
/// of the rate.
const EXPERIMENT_MAX_S: f64 = 5.0;
/// ... and sooner once it has as many packets as it is compared with: more add little, as the other
/// half of the variance stays.
const EXPERIMENT_LARGE_S: f64 = 2.5;
/// Standard deviations between the gain and the telling one that chance does not explain: 95 %.
const CERTAIN_DEVIATIONS: f64 = 2.0;
/// The delivered fraction must grow by this, as a logarithm, to speak for congestion: five senders at
/// an overloaded bottleneck, one of which falls to a quarter, gain 0.16.
const GAIN: f64 = 0.1;
/// A gain below this is chance: more packets would take too long.
const GAIN_MIN: f64 = 0.02;
/// The loss before the experiment is known at least this well, as the deviation of the same.
const DEVIATION_MAX: f64 = 0.035;
/// Bursts make the variance this many times that of independent losses at most: otherwise an experiment in
/// bursts of fifty packets would never be certain.
const DISPERSION_MAX: f64 = 20.0;
/// An experiment without a loss has the variance of one with this loss, not none.
const LOSS_SEEN_MIN: f64 = 0.01;
/// The fraction delivered is this at least wherever it divides.
const DELIVERED_MIN: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{
        Controller,
        knee::{Share, resolved_at},
    };

    /// An experiment after 8 % of 400 packets, at a quarter of which each `every` is lost.
    fn experiment(every: u64) -> Knee {
        let mut knee = Knee::new(Share::Fair, None);
        knee.pretend(0.1, 10e6, 1.0);
        knee.floor.learn_experiment(0.001, 3000.0);
        knee.state = State::Experiment(Experiment {
            before: BeforeCut {
                window: 1e6,
                threshold_cap_s: f64::INFINITY,
            },
            loss_before: 0.08,
            packets_before: 400.0,
            resume: 0.8e6,
            began_s: 1.0,
        });
        knee.mark_cut(1.0);
        let resolved = resolved_at(2.0, 1200, |number| number % every == every - 1);
        knee.floor.update(&resolved, &[]);
        knee.step(false, 2.5);
        knee
    }

    #[test]
    fn a_small_loss_that_a_quarter_of_the_rate_does_not_have_was_congestion() {
        let knee = experiment(u64::MAX);
        assert_eq!(knee.state(), "grow");
        assert!(knee.window < 0.8e6);
        assert!(knee.floor.loss() < 0.002);
    }

    #[test]
    fn a_small_loss_that_a_quarter_of_the_rate_has_as_well_is_the_path_s() {
        let knee = experiment(12);
        assert_eq!(knee.state(), "grow");
        assert_eq!(knee.window, 1e6);
        assert!((knee.floor.loss() - 0.082).abs() < 0.005);
    }
}
