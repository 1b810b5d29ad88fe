//! Tests whether the losses since the last cut exceed the loss floor.
//!
//! The input is the counts of [`LossFloor`]. The output is verdicts for several questions: whether
//! the sender must slow down, whether the newest losses require it, and whether CUBIC would.

use super::{
    LossFloor, UNLIKELY_DEVIATIONS, floor_estimate::NEARLY_NOTHING, loss_counts::LossCounts,
};
use crate::congestion::knee::Mechanism;

impl LossFloor {
    /// Whether losses since the cut exceed the floor so far that the sender must slow down.
    pub(in super::super) fn is_exceeded(&self) -> bool {
        self.excess(EXCESS, EXCESS_RUNS)
    }

    /// Whether losses since the cut exceed the floor by the fraction `threshold`, in at least
    /// `runs_min` runs, and beyond chance.
    pub(in super::super) fn excess(&self, threshold: f64, runs_min: f64) -> bool {
        if Mechanism::LastResort.acts(self.is_overloaded()) {
            return true;
        }
        let LossCounts {
            packets,
            losses,
            runs,
        } = self.since_cut;
        let floor = self.loss();
        let loss = self.since_cut.loss_fraction();
        let is_small = loss <= floor + threshold * (1.0 - floor);
        let has_few_runs = runs < runs_min && !Mechanism::OneRun.acts(loss > LOSS_OF_ONE_RUN);
        if packets < EXCESS_PACKETS_MIN || is_small || Mechanism::Runs.acts(has_few_runs) {
            return false;
        }
        let variance = self.variance() * (1.0 / packets + 1.0 / self.estimate.divisor());
        let deviation = packets * variance.sqrt();
        losses > floor * packets + runs_min.max(EXCESS_DEVIATIONS * deviation)
    }

    /// Whether hardly any of the expected packets arrive: the last resort, independent of the
    /// learned floor.
    fn is_overloaded(&self) -> bool {
        let packets_min = RESORT_PACKETS.max(RESORT_RUNS * self.runs.mean);
        self.since_cut.packets >= packets_min
            && 1.0 - self.since_cut.loss_fraction() < RESORT_ARRIVING * (1.0 - self.loss())
    }

    /// Returns the fraction that passes beyond the floor's losses, for a bottleneck before which
    /// packets are dropped.
    pub(in super::super) fn passed(&self) -> f64 {
        (1.0 - self.since_cut.loss_fraction()) / (1.0 - self.loss())
    }

    /// Returns the loss that is tolerated beyond the floor: a little, and as much as the floor is
    /// uncertain.
    pub(super) fn tolerance(&self) -> f64 {
        let deviation = (self.variance() / self.estimate.divisor()).sqrt();
        EXCESS * (1.0 - self.loss()) + UNLIKELY_DEVIATIONS * deviation
    }

    /// Whether the newest packets lose more than the floor permits, by `losses_min` at least.
    ///
    /// This is a cumulative sum (E. S. Page, Continuous inspection schemes, 1954). Its decision
    /// limit is [`SURPLUS_LIMIT`] * variance / tolerance. Chance alone reaches it once in exp(2 *
    /// `SURPLUS_LIMIT`) / 2 * variance / tolerance^2 packets. At a floor of 10 % that is once in a
    /// million or more.
    pub(in super::super) fn has_surplus(&self, losses_min: f64) -> bool {
        let limit = SURPLUS_LIMIT * self.variance() / self.tolerance();
        !self.is_bursty() && self.surplus > losses_min + limit
    }

    /// Whether to yield at a limit without a queue: on a clean path as CUBIC does.
    pub(in super::super) fn begins_to_be_exceeded(&self) -> bool {
        if self.is_path_clean() {
            self.calls_for_cubic_cut()
        } else {
            Mechanism::SurplusOnLossy.acts(self.has_surplus(ONE_LOSS))
        }
    }

    /// Whether losses require the cut that CUBIC would make.
    ///
    /// On a path that loses nearly nothing every loss after the first counts, as far as twice the
    /// floor does not explain it. On a lossy path any excess counts.
    pub(in super::super) fn calls_for_cubic_cut(&self) -> bool {
        if self.loss() < NEARLY_NOTHING {
            self.since_cut.losses
                > ONE_LOSS + FLOOR_ALLOWANCE * self.loss() * self.since_cut.packets
        } else {
            self.excess(0.0, ONE_LOSS)
        }
    }
}

/// Fraction of the expected arrivals beyond which losses are excessive: the loss that a sender
/// alone on a path with a queue may cause (`bench fair`).
///
/// No smaller excess is looked for, nor is it worth an experiment.
pub(in super::super) const EXCESS: f64 = 0.02;
/// Fewest runs of an excess: one burst of losses is no excess, however long.
pub(in super::super) const EXCESS_RUNS: f64 = 4.0;
/// Lost fraction from which one run suffices, since losses are so dense that they make one run.
const LOSS_OF_ONE_RUN: f64 = 0.7;
/// Fewest packets that show an excess.
pub(in super::super) const EXCESS_PACKETS_MIN: f64 = 8.0;
/// Standard deviations beyond the floor that are no chance. The test runs with every report, so
/// chance would exceed a limit of two or three every few seconds.
const EXCESS_DEVIATIONS: f64 = 4.0;
/// Part of the expected arrivals below which the last resort acts.
const RESORT_ARRIVING: f64 = 0.5;
/// Fewest packets for the last resort. If losses come in bursts, it also needs this many runs of
/// them, so that a few bursts do not count as an overload.
const RESORT_PACKETS: f64 = 1000.0;
const RESORT_RUNS: f64 = 40.0;
/// Losses that may be the path's, even with a low floor.
const ONE_LOSS: f64 = 1.0;
/// Factor over the losses expected by a floor of nearly nothing, below which losses are no sign.
const FLOOR_ALLOWANCE: f64 = 2.0;

/// Decision limit of the cumulative sum, in units of variance / tolerance; see
/// [`has_surplus`](LossFloor::has_surplus).
const SURPLUS_LIMIT: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{at_a_tenth, resolved},
        *,
    };

    #[test]
    fn losses_at_the_floor_are_not_in_excess_and_twice_the_floor_is() {
        let mut floor = LossFloor::new(None);
        floor.update(&resolved(4000, |number| number % 10 == 0), &[]);
        floor.learn(f64::INFINITY);
        assert!((floor.loss() - 0.1).abs() < 0.001);
        floor.begin_count(0.5);
        floor.update(&resolved(1000, |number| number % 10 == 0), &[]);
        assert!(!floor.is_exceeded());
        floor.begin_count(0.5);
        floor.update(&resolved(1000, |number| number % 5 == 0), &[]);
        assert!(floor.is_exceeded());
    }

    #[test]
    fn an_excess_that_begins_late_is_not_diluted_by_what_went_before() {
        let mut floor = at_a_tenth();
        floor.update(&resolved(19_000, |number| number % 10 == 0), &[]);
        assert!(!floor.has_surplus(1.0));
        floor.update(&resolved(600, |number| number % 5 == 0), &[]);
        assert!(!floor.is_exceeded(), "the mean does not tell");
        assert!(floor.has_surplus(1.0));
    }

    #[test]
    fn bursts_are_no_surplus() {
        let mut floor = at_a_tenth();
        floor.update(&resolved(4000, |number| number % 100 < 30), &[]);
        assert!(floor.is_bursty());
        assert!(!floor.has_surplus(1.0));
    }

    #[test]
    fn where_less_than_half_of_it_arrives_no_floor_is_believed() {
        let mut floor = LossFloor::new(None);
        floor.learn_experiment(0.1, 3000.0);
        floor.update(&resolved(1200, |number| number % 10 < 6), &[]);
        assert!(floor.is_overloaded());
    }
}
