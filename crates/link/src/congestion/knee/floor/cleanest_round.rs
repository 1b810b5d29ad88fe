//! Cleanest round of start-up, which is the round with the lowest loss. Detection of a later round
//! that lost far more packets.
//!
//! The input is the losses of each round. The output is the cleanest round, and whether the newest
//! round lost more than chance explains. A path with a loss floor loses the same fraction in each
//! round, and congestion only adds losses.

use super::{LossCounts, LossFloor, RARE_DEVIATIONS};

/// Round with the lowest loss so far.
#[derive(Debug, Default)]
pub(in super::super) struct CleanestRound {
    round: Option<LossCounts>,
}

impl CleanestRound {
    /// Returns the loss counts of the cleanest round. Returns `None` before the first round has
    /// ended.
    pub(in super::super) fn round(&self) -> Option<LossCounts> {
        self.round
    }

    /// Ends the present round. Returns the loss counts of the round if it lost far more than the
    /// cleanest earlier round, and `None` otherwise.
    pub(in super::super) fn end_round(&mut self, floor: &mut LossFloor) -> Option<LossCounts> {
        let round = floor.end_round(PACKETS_MIN)?;
        let cleanest = *self.round.get_or_insert(round);
        if round.loss_fraction() < cleanest.loss_fraction() {
            self.round = Some(round);
        }
        is_far_more(&round, &cleanest, floor).then_some(round)
    }
}

/// Whether `round` lost far more than `cleanest`, and more than chance explains.
fn is_far_more(round: &LossCounts, cleanest: &LossCounts, floor: &LossFloor) -> bool {
    let more = round.loss_fraction() - cleanest.loss_fraction();
    let loss = round.and(cleanest).loss_fraction();
    let of_one = loss * (1.0 - loss) * floor.dispersion(loss);
    let variance = of_one * (1.0 / round.packets + 1.0 / cleanest.packets);
    more > FAR * (1.0 - cleanest.loss_fraction()) && more > RARE_DEVIATIONS * variance.sqrt()
}

/// Least number of packets in a round. A shorter round continues until it has this many packets.
const PACKETS_MIN: f64 = 32.0;
/// Fraction of the packets that arrived in the cleanest round. If more than this fraction is
/// missing in a later round, that round lost far more packets.
///
/// Trains that overflow a short queue contain at most a quarter of the round's packets.
const FAR: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::knee::resolved_at;

    /// Adds one round of 100 packets for each value of `parts`. The value is the number of lost
    /// packets in each group of ten packets.
    fn ends_of_rounds(parts: &[u64]) -> (CleanestRound, Vec<bool>) {
        let mut cleanest = CleanestRound::default();
        let mut floor = LossFloor::new(None);
        let ends = parts.iter().map(|part| {
            floor.update(
                &resolved_at(1.0, 100, |number| number * 7 % 10 < *part),
                &[],
            );
            cleanest.end_round(&mut floor).is_some()
        });
        let ends = ends.collect();
        (cleanest, ends)
    }

    #[test]
    fn a_path_that_loses_by_itself_loses_the_same_part_of_each_round() {
        let (cleanest, ends) = ends_of_rounds(&[6, 5, 6, 7]);
        assert_eq!(ends, [false; 4]);
        let round = cleanest.round().expect("rounds are over");
        assert!((round.loss_fraction() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_round_that_loses_far_more_than_an_earlier_one_was_sent_too_fast() {
        let (cleanest, ends) = ends_of_rounds(&[8, 1, 2, 6]);
        assert_eq!(ends, [false, false, false, true]);
        let round = cleanest.round().expect("rounds are over");
        assert!((round.loss_fraction() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_few_packets_are_no_round() {
        let mut cleanest = CleanestRound::default();
        let mut floor = LossFloor::new(None);
        floor.update(&resolved_at(1.0, 31, |_| true), &[]);
        assert_eq!(cleanest.end_round(&mut floor), None);
        assert!(cleanest.round().is_none());
    }

    #[test]
    fn a_new_count_begins_a_new_round() {
        let mut cleanest = CleanestRound::default();
        let mut floor = LossFloor::new(None);
        floor.update(&resolved_at(1.0, 31, |_| true), &[]);
        floor.begin_count(1.5);
        floor.update(&resolved_at(2.0, 40, |number| number % 2 == 0), &[]);
        assert_eq!(cleanest.end_round(&mut floor), None);
        assert_eq!(
            cleanest.round().map(|round| round.loss_fraction()),
            Some(0.5)
        );
    }

    #[test]
    fn a_round_in_which_packets_turn_up_late_does_not_count() {
        let mut cleanest = CleanestRound::default();
        let mut floor = LossFloor::new(None);
        floor.update(&resolved_at(1.0, 40, |number| number % 2 == 0), &[1.0]);
        assert_eq!(cleanest.end_round(&mut floor), None);
        assert!(cleanest.round().is_none());
    }
}
