//! Loss floor of the path, and tests for losses beyond the floor.
//!
//! The input is acknowledged and lost packets in the order of their numbers, and the spuriously
//! lost packets. The first output is the loss floor, the fraction that the path loses at any
//! sending rate ([`floor_estimate`]). The second output is whether the losses since the last cut
//! exceed the floor ([`excess`]). The modes decide how the sender reacts.
//!
//! No test depends on a single loss. The tests compare counts with the floor, and allow for chance
//! and for bursts.

mod cleanest_round;
mod excess;
mod floor_estimate;
mod loss_counts;

pub(super) use self::{
    cleanest_round::CleanestRound,
    excess::{EXCESS, EXCESS_PACKETS_MIN, EXCESS_RUNS},
    floor_estimate::{NEARLY_NOTHING, WEAK_PACKETS},
    loss_counts::LossCounts,
};
use self::{floor_estimate::FloorEstimate, loss_counts::LossRuns};
use crate::congestion::{ResolvedPacket, knee::Mechanism};

/// Loss floor of a path, and the counts from which it is estimated.
#[derive(Debug)]
pub(super) struct LossFloor {
    estimate: FloorEstimate,
    /// Counts of packets sent after the last cut.
    pub(super) since_cut: LossCounts,
    /// Counts of packets of the present round.
    round: LossCounts,
    /// Whether spuriously lost packets arrived in the present round. If so, packets counted as lost
    /// in the round may still arrive.
    round_has_late: bool,
    /// Counts over a longer time, up to [`PAST_MAX`] packets. The counts include packets sent
    /// before the last cut.
    past: LossCounts,
    /// Counts of packets of the first round. The round ends at `first_until_s`.
    first: LossCounts,
    first_until_s: f64,
    cut: LastCut,
    /// Number of losses in excess of the floor and the tolerance, counted since the last cut.
    ///
    /// The number never falls below zero, so a period with few losses does not hide a later excess.
    surplus: f64,
    /// Whether [`learn_longer`](Self::learn_longer) has replaced the floor since the last cut.
    has_learned_longer: bool,
    runs: LossRuns,
}

/// Last cut of the sender's window.
#[derive(Debug, Default)]
struct LastCut {
    at_s: f64,
    /// Number of losses that caused the cut. `late` counts packets that were sent before the cut
    /// and declared lost, but have arrived.
    losses: f64,
    late: f64,
}

impl LossFloor {
    /// Creates the state. `remembered` is the loss floor of an earlier connection.
    pub(super) fn new(remembered: Option<f64>) -> Self {
        Self {
            estimate: FloorEstimate::new(remembered),
            since_cut: LossCounts::default(),
            round: LossCounts::default(),
            round_has_late: false,
            past: LossCounts::default(),
            first: LossCounts::default(),
            first_until_s: f64::INFINITY,
            cut: LastCut::default(),
            surplus: 0.0,
            has_learned_longer: false,
            runs: LossRuns::new(),
        }
    }

    /// Returns the fraction of packets that the path loses at any sending rate.
    pub(super) fn loss(&self) -> f64 {
        self.estimate.loss
    }

    /// Returns the time of the last cut.
    pub(super) fn cut_s(&self) -> f64 {
        self.cut.at_s
    }

    /// Restarts the counts. The new counts include only packets sent after `now_s`.
    pub(super) fn begin_count(&mut self, now_s: f64) {
        self.cut = LastCut {
            at_s: now_s,
            losses: self.since_cut.losses,
            late: 0.0,
        };
        self.surplus = 0.0;
        self.has_learned_longer = false;
        self.since_cut = LossCounts::default();
        self.round = LossCounts::default();
        self.round_has_late = false;
        self.first = LossCounts::default();
        self.end_first_round(now_s);
    }

    /// Ends the present round if it has at least `packets_min` packets. Returns the counts of the
    /// round.
    ///
    /// Returns `None` if the round continues, or if spuriously lost packets arrived during the
    /// round.
    fn end_round(&mut self, packets_min: f64) -> Option<LossCounts> {
        if self.round.packets < packets_min {
            return None;
        }
        let round = std::mem::take(&mut self.round);
        let has_late = std::mem::take(&mut self.round_has_late);
        (!has_late).then_some(round)
    }

    /// Whether most of the lost packets that caused the last cut have arrived late.
    pub(super) fn cut_was_wrong(&self) -> bool {
        self.cut.losses >= 1.0 && self.cut.late > MOST * self.cut.losses
    }

    /// Ends the first round. Packets sent from now on may exceed the path's capacity.
    pub(super) fn end_first_round(&mut self, now_s: f64) {
        self.first_until_s = self.first_until_s.min(now_s);
    }

    /// Counts packets that were acknowledged or declared lost. `late_sent_s` holds the sending
    /// times of spuriously lost packets.
    pub(super) fn update(&mut self, resolved: &[ResolvedPacket], late_sent_s: &[f64]) {
        let allowed = self.loss() + self.tolerance();
        for packet in resolved.iter().filter(|packet| !packet.in_outage) {
            self.count(packet, allowed);
        }
        let late_sent_s = if Mechanism::LateTaken.acts(!late_sent_s.is_empty()) {
            late_sent_s
        } else {
            &[]
        };
        for sent_s in late_sent_s {
            self.take_back_loss(*sent_s);
        }
        self.deflate();
    }

    fn count(&mut self, packet: &ResolvedPacket, allowed: f64) {
        let begins_run = self.runs.add(packet);
        self.past.add(packet, begins_run);
        if packet.sent_s > self.cut.at_s {
            self.since_cut.add(packet, begins_run);
            self.round.add(packet, begins_run);
            self.surplus = (self.surplus + f64::from(u8::from(packet.lost)) - allowed).max(0.0);
        }
        if packet.sent_s > self.cut.at_s && packet.sent_s < self.first_until_s {
            self.first.add(packet, begins_run);
        }
        if self.past.packets >= PAST_MAX {
            self.deflate();
            self.past = LossCounts::default();
        }
    }

    /// Subtracts the loss of a spuriously lost packet from the counts.
    fn take_back_loss(&mut self, sent_s: f64) {
        self.past.take_back_loss();
        if sent_s > self.cut.at_s {
            self.since_cut.take_back_loss();
            self.surplus = (self.surplus - 1.0).max(0.0);
        } else {
            self.cut.late += 1.0;
        }
        self.round_has_late = true;
        if sent_s < self.first_until_s {
            self.first.take_back_loss();
        }
    }

    /// Returns the variance of loss counts at the loss fraction `loss`, divided by the variance
    /// that independent losses would have.
    pub(super) fn dispersion(&self, loss: f64) -> f64 {
        Mechanism::Dispersion.value(self.runs.dispersion(loss), 1.0)
    }

    /// Whether losses come in bursts. Bursts do not come from a policer, since a policer passes a
    /// packet whenever it has a token.
    pub(super) fn is_bursty(&self) -> bool {
        self.runs.are_long()
    }

    /// Returns the variance of the loss of one packet at the loss floor.
    ///
    /// While the floor is uncertain, the function assumes a floor of at least half of the present
    /// loss.
    fn variance(&self) -> f64 {
        let dispersion = self.dispersion(self.loss());
        let is_uncertain = !self.estimate.is_known() || dispersion > DISPERSION_OF_BURSTS;
        let assumed = if Mechanism::UncertainFloor.acts(is_uncertain) {
            self.loss()
                .max(UNCERTAIN_PART * self.since_cut.loss_fraction())
        } else {
            self.loss()
        };
        assumed * (1.0 - assumed) * dispersion
    }
}

/// Number of standard deviations that chance exceeds in one test of twenty.
///
/// Tests of counts after a cut use this number. Experiments use it too, since a long experiment
/// lowers the sending rate for a long time.
pub(super) const UNLIKELY_DEVIATIONS: f64 = 2.0;
/// Number of standard deviations that chance exceeds in one test of four hundred. Tests that run
/// often use this number.
const RARE_DEVIATIONS: f64 = 3.0;

/// Number of packets after which the counts over a longer time restart.
///
/// A larger number limits the floor more precisely. A smaller number forgets earlier losses sooner.
const PAST_MAX: f64 = 20_000.0;
/// Fraction of the lost packets that caused the last cut. If a larger fraction arrives late, the
/// cut was wrong.
const MOST: f64 = 0.5;
/// Dispersion above which losses come in bursts. With bursts, the floor is uncertain even after
/// many packets. Runs of two packets on average have a dispersion of 3.
const DISPERSION_OF_BURSTS: f64 = 3.0;
/// Fraction of the present loss that is assumed to be the path's loss while the floor is uncertain.
///
/// A fraction of 1 would hide any excess. A fraction of 0 would treat the first losses as an
/// excess.
const UNCERTAIN_PART: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::knee::resolved_at;

    pub(super) fn resolved(count: u64, is_lost: impl Fn(u64) -> bool) -> Vec<ResolvedPacket> {
        resolved_at(1.01, count, is_lost)
    }

    /// Returns counts of a path with a known loss floor of 10 %.
    pub(super) fn at_a_tenth() -> LossFloor {
        let mut floor = LossFloor::new(None);
        floor.learn_experiment(0.1, 3000.0);
        floor
    }

    #[test]
    fn packets_that_turn_up_late_are_taken_back() {
        let mut floor = LossFloor::new(None);
        floor.update(&resolved(100, |number| number < 20), &[1.001; 20]);
        assert_eq!(floor.since_cut.losses, 0.0);
        floor.begin_count(1.005);
        floor.update(&resolved(100, |number| number >= 80), &[1.001; 20]);
        assert_eq!(floor.since_cut.losses, 20.0, "those were of before the cut");
        floor.begin_count(1.5);
        floor.update(&[], &[1.6; 20]);
        assert!(!floor.cut_was_wrong(), "those were sent after it");
        floor.update(&[], &[1.4; 20]);
        assert!(floor.cut_was_wrong());
    }

    #[test]
    fn a_round_is_counted_from_where_a_count_begins() {
        let mut floor = LossFloor::new(None);
        floor.update(&resolved(100, |number| number < 20), &[1.001; 20]);
        floor.begin_count(1.005);
        floor.update(&resolved(100, |number| number < 20), &[]);
        let round = floor.end_round(50.0).expect("it had no late packets");
        assert_eq!(round.losses, 20.0);
    }

    #[test]
    fn what_arrived_in_an_outage_does_not_count() {
        let mut floor = LossFloor::new(None);
        let mut in_outage = resolved(100, |_| false);
        for packet in &mut in_outage {
            packet.in_outage = true;
        }
        floor.update(&in_outage, &[]);
        floor.update(&resolved(10, |number| number < 5), &[]);
        assert_eq!(floor.since_cut.loss_fraction(), 0.5);
    }
}
