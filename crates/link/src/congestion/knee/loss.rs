//! What a loss in excess of the floor leads to: a cut, and if that does not help, an experiment.

use super::{Knee, State, cubic::Cubic};

impl Knee {
    pub(super) fn cut_for_loss(&mut self, now_s: f64) {
        let queue_s = self.measure.queue_s;
        let threshold_cap_s = self.threshold_cap_s;
        if queue_s > 0.000_2 && matches!(self.state, State::Grow) {
            // Loss before the threshold: the queue is shallower than that.
            let least_s = 0.000_3f64.max(3.0 * self.packet_time_s());
            self.threshold_cap_s = (queue_s / 2.0).max(least_s);
        }
        let loss = self.losses.since_cut.rate();
        let floor = self.losses.floor;
        let window_before = self.window;
        let by_loss = self.window * (1.0 - loss) / (1.0 - floor);
        let by_delivery = self.measure.delivered.map_or(f64::INFINITY, |delivered| {
            delivered / (1.0 - floor) * self.base_s()
        });
        let mut passed = by_loss.min(by_delivery);
        if matches!(self.state, State::Policed) {
            // Growth was slow: what seems to pass much less is a burst.
            passed = passed.max(0.8 * self.window);
        }
        self.window = 0.9 * passed;
        if let Some(policed) = self.cut_policed(passed, now_s) {
            self.window = policed;
        }
        self.state = State::LossDrain {
            window_before,
            threshold_cap_s,
            loss_at_cut: loss,
            cut_s: now_s,
        };
        self.is_gentle = true;
        self.mark_cut(now_s);
    }

    pub(super) fn step_loss_drain(&mut self, now_s: f64) {
        let State::LossDrain {
            window_before,
            threshold_cap_s,
            loss_at_cut,
            cut_s,
        } = self.state
        else {
            return;
        };
        if self.losses.cut_was_wrong() {
            self.window = window_before;
            self.threshold_cap_s = threshold_cap_s;
            self.is_gentle = false;
            self.forget_policer();
            self.mark_cut(now_s);
            self.enter_grow(now_s);
            return;
        }
        let packets = self.losses.since_cut.packets;
        let is_late = now_s - cut_s > 3.0 + 2.0 * self.round_s();
        let wanted = (self.window / self.packet).clamp(16.0, 400.0);
        if packets < wanted && !is_late {
            return;
        }
        let loss = self.losses.since_cut.rate();
        let floor = self.losses.floor;
        // A cut may come at the first losses: then a few more, of others that share the limit, are few.
        let excess_before = (loss_at_cut - floor).max(2.0 * FEW * (1.0 - floor));
        let is_gone = loss - floor <= excess_before / 2.0 && !self.losses.excess(0.02, 4.0);
        if is_gone || packets < 8.0 {
            self.losses.learn_near();
            self.resume(now_s);
            return;
        }
        let deviation_max = DEVIATION_MAX.min(self.telling_gain(loss) / 2.0);
        if self.variance(loss, packets) > deviation_max.powi(2) && !is_late {
            return;
        }
        let resume = self.window;
        self.window /= 4.0;
        self.state = State::Experiment {
            window_before,
            threshold_cap_s,
            loss_before: loss,
            packets_before: packets,
            resume,
            began_s: now_s,
        };
        self.mark_cut(now_s);
    }

    /// Variance of the logarithm of the fraction delivered, seen in so many packets.
    fn variance(&self, loss: f64, packets: f64) -> f64 {
        let odds = loss / (1.0 - loss).max(0.01);
        odds * self.losses.dispersion(loss).min(20.0) / packets.max(1.0)
    }

    /// The gain that speaks for congestion after `loss`: half of all that there is to gain, at most.
    fn telling_gain(&self, loss: f64) -> f64 {
        let all = ((1.0 - self.losses.floor) / (1.0 - loss).max(0.01)).ln();
        (all / 2.0).clamp(GAIN_MIN, GAIN)
    }

    /// Goes on until it is beyond chance whether a quarter of the rate gets more through.
    pub(super) fn step_experiment(&mut self, now_s: f64) {
        let State::Experiment {
            window_before,
            threshold_cap_s,
            loss_before,
            packets_before,
            resume,
            began_s,
        } = self.state
        else {
            return;
        };
        let packets = self.losses.since_cut.packets;
        if packets < 64.0 && now_s - began_s < 3.0 || packets < 16.0 {
            return;
        }
        let loss = self.losses.since_cut.rate();
        let gain = ((1.0 - loss).max(0.01) / (1.0 - loss_before).max(0.01)).ln();
        let variance =
            self.variance(loss_before, packets_before) + self.variance(loss.max(0.01), packets);
        let telling = self.telling_gain(loss_before);
        let is_certain = (gain - telling).abs() > 2.0 * variance.sqrt();
        // More packets than it is compared with add little.
        let patience_s = if packets >= packets_before { 2.5 } else { 5.0 };
        let is_late = now_s - began_s > patience_s && packets >= 64.0;
        if !is_certain && !is_late {
            return;
        }
        if gain < telling {
            // A quarter of the rate loses as much: it is the path, and the cut was for nothing.
            let together =
                (loss * packets + loss_before * packets_before) / (packets + packets_before);
            self.losses.set_floor(together, packets + packets_before);
            self.window = window_before;
            self.threshold_cap_s = threshold_cap_s;
            self.is_gentle = false;
            self.forget_policer();
        } else {
            self.window = 0.9 * resume;
            if let Some(cubic) = &mut self.policed {
                *cubic = Cubic::new(self.window, now_s);
            }
        }
        self.mark_cut(now_s);
        self.resume(now_s);
    }
}

/// Losses beyond the floor that do not speak against a cut.
const FEW: f64 = 0.02;
/// The delivered fraction must grow by this, as a logarithm, to speak for congestion: five senders at
/// an overloaded bottleneck, one of which falls to a quarter, gain 0.16.
const GAIN: f64 = 0.1;
/// A gain below this is chance: more packets would take too long.
const GAIN_MIN: f64 = 0.02;
/// The loss before the experiment is known at least this well, as the deviation of the same.
const DEVIATION_MAX: f64 = 0.035;

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
        knee.measure.pretend(0.1, 10e6, 1.0);
        knee.losses.set_floor(0.001, 3000.0);
        knee.state = State::Experiment {
            window_before: 1e6,
            threshold_cap_s: f64::INFINITY,
            loss_before: 0.08,
            packets_before: 400.0,
            resume: 0.8e6,
            began_s: 1.0,
        };
        knee.mark_cut(1.0);
        let resolved = resolved_at(2.0, 1200, |number| number % every == every - 1);
        knee.losses.update(&resolved, &[]);
        knee.step_experiment(2.5);
        knee
    }

    #[test]
    fn a_small_loss_that_a_quarter_of_the_rate_does_not_have_was_congestion() {
        let knee = experiment(u64::MAX);
        assert_eq!(knee.state(), "grow");
        assert!(knee.window < 0.8e6);
        assert!(knee.losses.floor < 0.002);
    }

    #[test]
    fn a_small_loss_that_a_quarter_of_the_rate_has_as_well_is_the_path_s() {
        let knee = experiment(12);
        assert_eq!(knee.state(), "grow");
        assert_eq!(knee.window, 1e6);
        assert!((knee.losses.floor - 0.082).abs() < 0.005);
    }
}
