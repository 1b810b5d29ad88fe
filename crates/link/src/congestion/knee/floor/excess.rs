//! Tests whether the losses since the last cut exceed the loss floor.
//!
//! The input is the counts of [`LossFloor`]. The output answers three questions. Must the sender
//! slow down? Do the newest losses alone require a lower rate? Would CUBIC slow down?

use super::{
    LossFloor, UNLIKELY_DEVIATIONS, floor_estimate::NEARLY_NOTHING, loss_counts::LossCounts,
};
use crate::congestion::knee::Mechanism;

impl LossFloor {
    /// Whether the losses since the last cut exceed the loss floor so far that the sender must slow
    /// down.
    pub(in super::super) fn is_exceeded(&self) -> bool {
        self.excess(EXCESS, EXCESS_RUNS)
    }

    /// Whether the losses since the last cut exceed the loss floor by more than the fraction
    /// `threshold`.
    ///
    /// The losses must also form at least `runs_min` runs, and be more than chance explains.
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

    /// Whether less than half of the expected packets arrive. The loss floor determines how many
    /// packets are expected. This test is the last resort if the learned floor is wrong.
    fn is_overloaded(&self) -> bool {
        let packets_min = RESORT_PACKETS.max(RESORT_RUNS * self.runs.mean);
        self.since_cut.packets >= packets_min
            && 1.0 - self.since_cut.loss_fraction() < RESORT_ARRIVING * (1.0 - self.loss())
    }

    /// Returns the fraction of packets that are not dropped before the bottleneck. Losses within
    /// the loss floor do not count as dropped.
    pub(in super::super) fn passed(&self) -> f64 {
        (1.0 - self.since_cut.loss_fraction()) / (1.0 - self.loss())
    }

    /// Returns the loss fraction that is tolerated beyond the loss floor: a constant part, and a
    /// part that grows with the uncertainty of the floor.
    pub(super) fn tolerance(&self) -> f64 {
        let deviation = (self.variance() / self.estimate.divisor()).sqrt();
        EXCESS * (1.0 - self.loss()) + UNLIKELY_DEVIATIONS * deviation
    }

    /// Whether the newest packets contain more losses than the floor permits. The excess must be
    /// greater than `losses_min` losses.
    ///
    /// The test is a cumulative sum (E. S. Page, Continuous inspection schemes, 1954). The decision
    /// limit is [`SURPLUS_LIMIT`] * variance / tolerance.
    ///
    /// Chance alone reaches the limit once in exp(2 * `SURPLUS_LIMIT`) / 2 * variance / tolerance^2
    /// packets. At a floor of 10 %, chance reaches the limit at most once in a million packets.
    pub(in super::super) fn has_surplus(&self, losses_min: f64) -> bool {
        let limit = SURPLUS_LIMIT * self.variance() / self.tolerance();
        !self.is_bursty() && self.surplus > losses_min + limit
    }

    /// Whether the sender must slow down at a capacity limit that builds no queue, such as a
    /// policer. On a clean path, the sender slows down when CUBIC would slow down.
    pub(in super::super) fn begins_to_be_exceeded(&self) -> bool {
        if self.is_path_clean() {
            self.calls_for_cubic_cut()
        } else {
            Mechanism::SurplusOnLossy.acts(self.has_surplus(ONE_LOSS))
        }
    }

    /// Whether the losses require the cut that CUBIC would make.
    ///
    /// On a path that loses nearly nothing, the first loss does not count. Losses up to twice the
    /// number that the floor predicts do not count either. Every further loss requires a cut. On a
    /// lossy path any excess requires a cut.
    pub(in super::super) fn calls_for_cubic_cut(&self) -> bool {
        if self.loss() < NEARLY_NOTHING {
            self.since_cut.losses
                > ONE_LOSS + FLOOR_ALLOWANCE * self.loss() * self.since_cut.packets
        } else {
            self.excess(0.0, ONE_LOSS)
        }
    }
}

/// Fraction of the expected arrivals. If a larger fraction is missing, the losses are excessive.
///
/// A sender that is alone on a path with a queue may cause this loss (`bench fair`). A smaller
/// excess is not worth an experiment.
pub(in super::super) const EXCESS: f64 = 0.02;
/// Least number of loss runs that form an excess. One burst of losses, of any length, is not an
/// excess.
pub(in super::super) const EXCESS_RUNS: f64 = 4.0;
/// Loss fraction above which even a single run of losses can be an excess. Losses this dense form a
/// single run.
const LOSS_OF_ONE_RUN: f64 = 0.7;
/// Least number of packets needed to detect an excess of losses.
pub(in super::super) const EXCESS_PACKETS_MIN: f64 = 8.0;
/// Number of standard deviations. Chance does not explain losses that exceed the floor by this
/// number.
///
/// The test runs with every report. Chance would exceed a limit of two or three deviations every
/// few seconds.
const EXCESS_DEVIATIONS: f64 = 4.0;
/// Fraction of the expected arrivals below which the last-resort test detects an overload.
const RESORT_ARRIVING: f64 = 0.5;
/// Least number of packets for the last-resort test. Another minimum is `RESORT_RUNS` multiplied by
/// the mean length of a loss run, so that a few bursts do not count as an overload.
const RESORT_PACKETS: f64 = 1000.0;
const RESORT_RUNS: f64 = 40.0;
/// Number of losses that the path itself may cause, even if the loss floor is low.
const ONE_LOSS: f64 = 1.0;
/// Factor for the number of losses that a loss floor near zero predicts. Fewer losses than the
/// product do not show congestion.
const FLOOR_ALLOWANCE: f64 = 2.0;

/// Decision limit of the cumulative sum, in units of variance / tolerance.
/// [`has_surplus`](LossFloor::has_surplus) uses the limit.
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
