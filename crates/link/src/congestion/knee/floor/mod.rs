//! How much does the path lose by itself, and do the losses since the last cut exceed that?
//!
//! In: packets whose fate is known, in the order of their numbers, and the packets given up wrongly.
//! Out: the floor, which is the fraction that the path loses whatever we do ([`learn`]), and whether the losses since
//! the last cut exceed it ([`excess`]). What follows from an excess is for the modes to say.
//!
//! No single loss is judged. The tests compare a count with what the floor allows, wide enough for chance
//! and for bursts.

use crate::congestion::knee::Mechanism;
mod cleanest;
mod excess;
mod learn;
mod tally;

pub(super) use self::{
    cleanest::Cleanest,
    excess::{EXCESS, EXCESS_PACKETS_MIN, EXCESS_RUNS},
    learn::{NEARLY_NOTHING, WEAK_PACKETS},
    tally::Tally,
};
use self::{learn::Estimate, tally::Runs};
use crate::congestion::Resolved;

/// The counts of a connection and its floor.
#[derive(Debug)]
pub(super) struct Floor {
    estimate: Estimate,
    /// Packets sent after the last cut.
    pub(super) since_cut: Tally,
    /// Packets of the present round.
    round: Tally,
    /// Packets turned up in this round that were given up wrongly: what seems lost may be late.
    round_has_late: bool,
    /// A longer past, up to [`PAST_MAX`] packets.
    past: Tally,
    /// Packets of the first round, sent before `first_until_s`.
    first: Tally,
    first_until_s: f64,
    cut: Cut,
    /// Losses since the cut beyond the floor and what is tolerated, counted anew whenever there are none:
    /// an excess that begins long after the cut is not diluted.
    surplus: f64,
    /// [`learn_longer`](Self::learn_longer) has learned since the cut.
    has_learned_longer: bool,
    runs: Runs,
}

/// The last cut of the sender.
#[derive(Debug, Default)]
struct Cut {
    at_s: f64,
    /// Losses that led to it, and how many of those packets have turned up since.
    losses: f64,
    late: f64,
}

impl Floor {
    /// `remembered` is the floor of an earlier connection.
    pub(super) fn new(remembered: Option<f64>) -> Self {
        Self {
            estimate: Estimate::new(remembered),
            since_cut: Tally::default(),
            round: Tally::default(),
            round_has_late: false,
            past: Tally::default(),
            first: Tally::default(),
            first_until_s: f64::INFINITY,
            cut: Cut::default(),
            surplus: 0.0,
            has_learned_longer: false,
            runs: Runs::new(),
        }
    }

    /// The fraction of packets that the path loses whatever we do.
    pub(super) fn loss(&self) -> f64 {
        self.estimate.loss
    }

    /// When the last cut was.
    pub(super) fn cut_s(&self) -> f64 {
        self.cut.at_s
    }

    /// Counts from packets sent after `now_s` on.
    pub(super) fn begin_count(&mut self, now_s: f64) {
        self.cut = Cut {
            at_s: now_s,
            losses: self.since_cut.losses,
            late: 0.0,
        };
        self.surplus = 0.0;
        self.has_learned_longer = false;
        self.since_cut = Tally::default();
        self.round = Tally::default();
        self.round_has_late = false;
        self.first = Tally::default();
        self.end_first_round(now_s);
    }

    /// Ends the round, if it has `packets_min` packets. Returns its losses if none of what seemed lost was late.
    fn end_round(&mut self, packets_min: f64) -> Option<Tally> {
        if self.round.packets < packets_min {
            return None;
        }
        let round = std::mem::take(&mut self.round);
        let has_late = std::mem::take(&mut self.round_has_late);
        (!has_late).then_some(round)
    }

    /// Whether most of the losses that led to the last cut were none: the packets were late.
    pub(super) fn cut_was_wrong(&self) -> bool {
        self.cut.losses >= 1.0 && self.cut.late > MOST * self.cut.losses
    }

    /// The first round is over: what is sent from now on may be too much.
    pub(super) fn end_first_round(&mut self, now_s: f64) {
        self.first_until_s = self.first_until_s.min(now_s);
    }

    /// Counts packets whose fate became known, and the send times of packets that were given up wrongly.
    pub(super) fn update(&mut self, resolved: &[Resolved], late_sent_s: &[f64]) {
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

    fn count(&mut self, packet: &Resolved, allowed: f64) {
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
            self.past = Tally::default();
        }
    }

    /// What was given up wrongly was no loss.
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

    /// How much more the counts vary than independent losses at the rate `loss` would.
    pub(super) fn dispersion(&self, loss: f64) -> f64 {
        Mechanism::Dispersion.value(self.runs.dispersion(loss), 1.0)
    }

    /// Whether losses come in bursts. A policer's do not: it passes a packet whenever it can.
    pub(super) fn is_bursty(&self) -> bool {
        self.runs.are_long()
    }

    /// Variance of the loss of one packet at the floor, or, while that is uncertain, at half of what is
    /// lost now.
    fn variance(&self) -> f64 {
        let dispersion = self.dispersion(self.loss());
        let is_uncertain = !self.estimate.is_known() || dispersion > DISPERSION_OF_BURSTS;
        let assumed = if Mechanism::UncertainFloor.acts(is_uncertain) {
            self.loss().max(UNCERTAIN_PART * self.since_cut.rate())
        } else {
            self.loss()
        };
        assumed * (1.0 - assumed) * dispersion
    }
}

/// A deviation of this many standard deviations is hardly chance: one test in twenty exceeds it. For counts after a cut,
/// and for experiments, which cost rate as long as they run.
pub(super) const UNLIKELY_DEVIATIONS: f64 = 2.0;
/// A deviation of this many is no chance: one test in four hundred exceeds it. For tests that run often.
const RARE_DEVIATIONS: f64 = 3.0;

/// Packets after which the count of the longer past begins anew. More bound the floor more tightly, fewer
/// forget sooner what the path once lost.
const PAST_MAX: f64 = 20_000.0;
/// The last cut was wrong if more than this part of the losses that led to it turned up late.
const MOST: f64 = 0.5;
/// From this dispersion on losses come in bursts, and a floor is uncertain however many packets are behind
/// it. Runs of two on average make it 3.
const DISPERSION_OF_BURSTS: f64 = 3.0;
/// While the floor is uncertain, this part of what is lost now may be the path's: all of it would hide any excess,
/// none would make the first losses one.
const UNCERTAIN_PART: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::knee::resolved_at;

    pub(super) fn resolved(count: u64, is_lost: impl Fn(u64) -> bool) -> Vec<Resolved> {
        resolved_at(1.01, count, is_lost)
    }

    /// Counts on a path that is known to lose a tenth.
    pub(super) fn at_a_tenth() -> Floor {
        let mut floor = Floor::new(None);
        floor.learn_experiment(0.1, 3000.0);
        floor
    }

    #[test]
    fn packets_that_turn_up_late_are_taken_back() {
        let mut floor = Floor::new(None);
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
        let mut floor = Floor::new(None);
        floor.update(&resolved(100, |number| number < 20), &[1.001; 20]);
        floor.begin_count(1.005);
        floor.update(&resolved(100, |number| number < 20), &[]);
        let round = floor.end_round(50.0).expect("it had no late packets");
        assert_eq!(round.losses, 20.0);
    }

    #[test]
    fn what_arrived_in_an_outage_does_not_count() {
        let mut floor = Floor::new(None);
        let mut in_outage = resolved(100, |_| false);
        for packet in &mut in_outage {
            packet.in_outage = true;
        }
        floor.update(&in_outage, &[]);
        floor.update(&resolved(10, |number| number < 5), &[]);
        assert_eq!(floor.since_cut.rate(), 0.5);
    }
}
