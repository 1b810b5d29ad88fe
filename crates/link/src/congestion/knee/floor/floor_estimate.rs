//! Estimation of the loss floor from counts of losses.
//!
//! The input is the counts of [`LossFloor`]. The output is the estimated floor and the number of
//! packets that support the estimate.
//!
//! Only packets sent below capacity may raise the floor. The caller ensures that condition. Any
//! count may lower the floor, since congestion only adds losses.

use super::{
    EXCESS, LossFloor, RARE_DEVIATIONS, UNLIKELY_DEVIATIONS,
    loss_counts::{LossCounts, LossRuns},
};
use crate::congestion::knee::Mechanism;

/// Estimate of the loss floor.
#[derive(Debug)]
pub(super) struct FloorEstimate {
    /// Fraction of packets that the path loses at any sending rate.
    pub(super) loss: f64,
    /// Number of packets that support the estimate, at most [`PACKETS_MAX`].
    packets: f64,
}

impl FloorEstimate {
    /// Creates the estimate. `remembered` is the floor of an earlier connection, if one is stored.
    pub(super) fn new(remembered: Option<f64>) -> Self {
        Self {
            loss: remembered.unwrap_or(0.0),
            packets: remembered.map_or(0.0, |_| WEAK_PACKETS),
        }
    }

    /// Whether the estimate is reliable. An estimate is reliable if enough packets support it.
    pub(super) fn is_known(&self) -> bool {
        self.packets >= KNOWN_MIN
    }

    /// Returns the number of packets that support the estimate, but at least [`PACKETS_MIN`], so
    /// that the caller can divide by the result.
    pub(super) fn divisor(&self) -> f64 {
        self.packets.max(PACKETS_MIN)
    }

    /// Moves the estimate towards `loss`, the loss fraction of `packets` packets.
    fn blend(&mut self, loss: f64, packets: f64) {
        self.loss += (loss - self.loss) * packets / (packets + self.packets);
        self.packets = (self.packets + packets).min(PACKETS_MAX);
    }

    fn replace(&mut self, loss: f64, packets: f64) {
        self.loss = loss;
        self.packets = packets.min(PACKETS_MAX);
    }

    /// Raises the certainty of a floor near zero, if a long count contains no loss.
    fn confirm_by(&mut self, tally: &LossCounts) {
        let is_clean = tally.losses == 0.0 && BOUND_SLACK < NEARLY_NOTHING * tally.packets;
        if Mechanism::ConfirmFloor.acts(is_clean && self.loss < NEARLY_NOTHING) {
            self.packets = self.packets.max(tally.packets.min(PACKETS_MAX));
        }
    }

    /// Lowers the floor to the highest floor that the counts permit. Congestion only adds losses,
    /// so the floor cannot exceed the loss in any count.
    fn bound_by(&mut self, tally: &LossCounts, runs: &LossRuns) {
        if Mechanism::BoundFloor.acts(tally.packets >= KNOWN_MIN) {
            let run = runs.mean.max(1.0);
            let count = tally.losses / run;
            let slack = run * (BOUND_SLACK + RARE_DEVIATIONS * count.sqrt());
            self.loss = self.loss.min((tally.losses + slack) / tally.packets);
        }
    }
}

impl LossFloor {
    /// Lowers the floor to the highest floor that the recent losses permit.
    pub(super) fn deflate(&mut self) {
        self.estimate.confirm_by(&self.since_cut);
        for tally in [&self.past, &self.since_cut] {
            self.estimate.bound_by(tally, &self.runs);
        }
    }

    /// Moves the floor towards the loss since the last cut. The caller has ensured that the sender
    /// was below capacity.
    ///
    /// `packets_max` limits the weight of the count.
    pub(in super::super) fn learn(&mut self, packets_max: f64) {
        let packets = self.since_cut.packets.min(packets_max);
        if packets >= 1.0 {
            self.estimate.blend(self.since_cut.loss_fraction(), packets);
        }
    }

    /// Moves the floor towards the loss since the last cut, if the loss is within the range that
    /// the floor explains.
    ///
    /// The sender itself may have caused losses that have just begun. An experiment must find the
    /// cause of such losses.
    pub(in super::super) fn learn_expected(&mut self) {
        let LossCounts {
            packets, losses, ..
        } = self.since_cut;
        let floor = self.loss();
        let variance = packets * floor * (1.0 - floor) * self.dispersion(floor);
        let chance = RARE_DEVIATIONS * variance.sqrt();
        let expected = floor * packets + self.runs.mean + chance;
        if losses <= expected.max(EXCESS * packets) {
            self.learn(f64::INFINITY);
        }
    }

    /// Moves the floor towards the loss since the last cut, if the loss is near the floor. The
    /// permitted excess is half a percent plus an allowance for chance.
    ///
    /// The floor also follows losses a little above the floor. If the floor followed only lower
    /// losses, the floor would fall again and again.
    pub(in super::super) fn learn_near(&mut self) {
        let LossCounts {
            packets, losses, ..
        } = self.since_cut;
        let chance = UNLIKELY_DEVIATIONS * (packets * self.variance()).sqrt();
        if losses <= (self.loss() + NEARLY_NOTHING) * packets + chance {
            self.learn(f64::INFINITY);
        }
    }

    /// Replaces the floor by the loss since the last cut, if that loss was measured with more
    /// packets than the floor. A loss beyond the tolerance does not replace the floor.
    ///
    /// After a cut the sender sends less, so the path itself probably causes the losses. The
    /// function replaces the floor only once after each cut. Otherwise competing flows could add
    /// losses gradually, and these losses would count as the path's losses.
    pub(in super::super) fn learn_longer(&mut self) {
        let packets = self.since_cut.packets;
        let loss = self.since_cut.loss_fraction();
        let is_longer = packets > self.estimate.packets.max(LONG_MIN);
        if !self.has_learned_longer && is_longer && loss <= self.loss() + self.tolerance() {
            self.estimate.replace(loss, packets);
            self.has_learned_longer = true;
        }
    }

    /// Replaces the floor by the loss of the first round, if that loss was measured with more
    /// packets than the floor. The first round was sent far below capacity.
    pub(in super::super) fn learn_first(&mut self) {
        self.learn_if_longer(self.first);
    }

    /// Replaces the floor by the loss in `tally`, if that loss was measured with more packets than
    /// the floor.
    pub(in super::super) fn learn_if_longer(&mut self, tally: LossCounts) {
        if tally.packets > self.estimate.packets {
            self.estimate.replace(tally.loss_fraction(), tally.packets);
        }
    }

    /// Returns the number of acknowledged or lost packets. Packets of the first round do not count.
    /// The result is valid only before the first cut.
    pub(in super::super) fn packets_since_first_round(&self) -> f64 {
        self.since_cut.packets - self.first.packets
    }

    /// Replaces the floor by the loss that an experiment measured.
    pub(in super::super) fn learn_experiment(&mut self, loss: f64, packets: f64) {
        self.estimate.replace(loss, packets);
        self.past = LossCounts::default();
    }

    /// Whether the path loses nearly nothing at low sending rates, and enough packets support that
    /// estimate.
    pub(in super::super) fn is_path_clean(&self) -> bool {
        self.loss() < NEARLY_NOTHING && self.estimate.is_known()
    }
}

/// Loss floor below which the path counts as clean. A loss counts as near the floor if it exceeds
/// the floor by at most the same value.
pub(in super::super) const NEARLY_NOTHING: f64 = 0.005;

/// Maximum number of packets that support the floor. With a larger maximum, new counts would hardly
/// change an old floor.
const PACKETS_MAX: f64 = 3000.0;
/// Least divisor in formulas that divide by a number of packets: the packets that support the
/// floor.
const PACKETS_MIN: f64 = 20.0;
/// Maximum weight of weak evidence about the floor, in packets: a fifteenth of [`PACKETS_MAX`].
///
/// The floor of an earlier connection is weak evidence, since the path's loss may have changed. The
/// loss during start-up is weak evidence, since the sender may have caused a part of the loss.
pub(in super::super) const WEAK_PACKETS: f64 = 200.0;
/// Number of packets below which a floor is uncertain. A count with fewer packets does not lower
/// the floor.
const KNOWN_MIN: f64 = 400.0;
/// Least number of packets in a count that replaces the floor.
const LONG_MIN: f64 = 500.0;
/// Number of loss runs that the bound of the floor allows in addition to the counted runs.
///
/// If no losses occurred, adding three runs corresponds to 95 % confidence (the rule of three).
const BOUND_SLACK: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{at_a_tenth, resolved},
        *,
    };
    use crate::congestion::knee::resolved_at;

    #[test]
    fn counts_that_chance_moves_both_ways_leave_the_floor_where_it_is() {
        let mut floor = at_a_tenth();
        for round in 0..40 {
            let every = if round % 2 == 0 { 9 } else { 11 };
            floor.begin_count(0.5);
            floor.update(&resolved(400, |number| number % every == 0), &[]);
            floor.learn_near();
        }
        assert!((floor.loss() - 0.1).abs() < 0.005, "{}", floor.loss());
    }

    #[test]
    fn a_count_longer_than_the_floor_s_takes_its_place_unless_it_is_in_excess() {
        let mut floor = at_a_tenth();
        floor.update(&resolved(4000, |number| number % 9 == 0), &[]);
        floor.learn_longer();
        assert!((floor.loss() - 0.111).abs() < 0.001, "{}", floor.loss());
        floor.begin_count(0.5);
        floor.update(&resolved(4000, |number| number % 5 == 0), &[]);
        floor.learn_longer();
        assert!((floor.loss() - 0.111).abs() < 0.001, "{}", floor.loss());
    }

    #[test]
    fn a_clean_window_lowers_the_floor_at_once() {
        let mut floor = LossFloor::new(Some(0.3));
        floor.update(&resolved(1000, |_| false), &[]);
        assert!(floor.loss() <= 0.003, "{}", floor.loss());
    }

    #[test]
    fn a_loss_that_has_just_begun_is_for_an_experiment_to_judge() {
        let mut floor = LossFloor::new(None);
        floor.update(&resolved(1000, |number| number % 10 == 0), &[]);
        floor.learn_expected();
        assert_eq!(floor.loss(), 0.0);
        floor.learn_experiment(0.1, 1000.0);
        assert!(floor.loss() > 0.09);
    }

    #[test]
    fn packets_after_the_first_round_are_counted_apart_from_its_own() {
        let mut floor = LossFloor::new(None);
        floor.end_first_round(1.005);
        floor.update(&resolved_at(1.0, 50, |_| false), &[]);
        floor.update(&resolved_at(1.01, 70, |_| false), &[]);
        assert_eq!(floor.packets_since_first_round(), 70.0);
    }

    #[test]
    fn a_long_count_without_a_loss_makes_a_clean_floor_certain_and_no_other() {
        let mut floor = LossFloor::new(None);
        floor.update(&resolved(500, |_| false), &[]);
        assert!(!floor.is_path_clean());
        floor.update(&resolved(500, |_| false), &[]);
        assert!(floor.is_path_clean());
        let mut lossy = LossFloor::new(None);
        lossy.learn_experiment(0.4, 32.0);
        lossy.update(&resolved(399, |_| false), &[]);
        assert_eq!(lossy.estimate.packets, 32.0);
    }
}
