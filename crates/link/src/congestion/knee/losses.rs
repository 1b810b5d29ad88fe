//! Counting losses, and telling those in excess from those that the path inflicts anyway.
//!
//! No single loss is judged. Losses count only when resolved, in packet-number order; the test
//! compares a count with what the floor allows, wide enough for chance and for bursts.

use crate::congestion::Resolved;

/// Packets, losses and runs of losses.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) packets: f64,
    pub(super) losses: f64,
    pub(super) runs: f64,
}

/// The counts of a connection and its floor.
#[derive(Debug)]
pub(super) struct Losses {
    /// Packets sent after the last cut.
    pub(super) since_cut: Tally,
    /// A longer past, up to [`WINDOW_MAX`] packets.
    window: Tally,
    /// Packets of the first round, sent before `first_until_s`.
    first: Tally,
    first_until_s: f64,
    pub(super) cut_s: f64,
    /// Losses that led to the last cut, and how many of those packets have turned up since.
    losses_at_cut: f64,
    late_since_cut: f64,
    /// Losses since the cut beyond the floor and [`TOLERANCE`], counted anew whenever there are none:
    /// an excess that begins long after the cut is not diluted.
    surplus: f64,
    /// [`learn_longer`](Self::learn_longer) has learned since the cut.
    has_learned_longer: bool,
    last_was_lost: bool,
    run: f64,
    run_mean: f64,
    /// The fraction of packets that the path loses whatever we do.
    pub(super) floor: f64,
    /// Packets behind `floor`, capped.
    floor_packets: f64,
}

const WINDOW_MAX: f64 = 20_000.0;
const FLOOR_PACKETS_MAX: f64 = 3000.0;
const RUN_MEAN_MAX: f64 = 100.0;
/// Longer runs on average are bursts: a policer that drops four packets of five makes runs of five.
const RUN_LONG: f64 = 6.0;
/// A rise of the floor to this loss is never worth an experiment.
const EXPECTED_MIN: f64 = 0.02;
/// A floor from fewer packets is uncertain.
const KNOWN_MIN: f64 = 400.0;
/// A count to be taken for the floor has this many packets at least.
const LONG_MIN: f64 = 500.0;
/// Below this floor single losses count.
const NEARLY_NOTHING: f64 = 0.005;
/// An excess below this fraction of what should arrive is not looked for.
const TOLERANCE: f64 = 0.02;

impl Losses {
    pub(super) fn new(floor: Option<f64>) -> Self {
        Self {
            since_cut: Tally::default(),
            window: Tally::default(),
            first: Tally::default(),
            first_until_s: f64::INFINITY,
            cut_s: 0.0,
            losses_at_cut: 0.0,
            late_since_cut: 0.0,
            surplus: 0.0,
            has_learned_longer: false,
            last_was_lost: false,
            run: 0.0,
            run_mean: 1.0,
            floor: floor.unwrap_or(0.0),
            floor_packets: if floor.is_some() { 200.0 } else { 0.0 },
        }
    }

    /// Counts from packets sent after `now_s` on.
    pub(super) fn begin_count(&mut self, now_s: f64) {
        self.losses_at_cut = self.since_cut.losses;
        self.late_since_cut = 0.0;
        self.surplus = 0.0;
        self.has_learned_longer = false;
        self.since_cut = Tally::default();
        self.cut_s = now_s;
    }

    /// Whether most of the losses that led to the last cut were none: the packets were late.
    pub(super) fn cut_was_wrong(&self) -> bool {
        self.losses_at_cut >= 1.0 && self.late_since_cut > 0.5 * self.losses_at_cut
    }

    /// The first round is over: what is sent from now on may be too much.
    pub(super) fn end_first_round(&mut self, now_s: f64) {
        self.first_until_s = self.first_until_s.min(now_s);
    }

    pub(super) fn update(&mut self, resolved: &[Resolved], late_sent_s: &[f64]) {
        let allowed = self.floor + self.tolerance();
        for packet in resolved {
            let begins_run = packet.lost && !self.last_was_lost;
            if packet.lost {
                self.run += 1.0;
            } else if self.last_was_lost {
                self.run_mean += (self.run.min(RUN_MEAN_MAX) - self.run_mean) / 32.0;
                self.run = 0.0;
            }
            self.last_was_lost = packet.lost;
            self.window.add(packet, begins_run);
            if packet.sent_s > self.cut_s {
                self.since_cut.add(packet, begins_run);
                self.surplus = (self.surplus + f64::from(u8::from(packet.lost)) - allowed).max(0.0);
            }
            if packet.sent_s < self.first_until_s {
                self.first.add(packet, begins_run);
            }
            if self.window.packets >= WINDOW_MAX {
                self.deflate();
                self.window = Tally::default();
            }
        }
        // What was given up wrongly was no loss.
        for sent_s in late_sent_s {
            self.window.take_back_loss();
            if *sent_s > self.cut_s {
                self.since_cut.take_back_loss();
                self.surplus = (self.surplus - 1.0).max(0.0);
            } else {
                self.late_since_cut += 1.0;
            }
            if *sent_s < self.first_until_s {
                self.first.take_back_loss();
            }
        }
        self.deflate();
    }

    /// Congestion only adds loss, so every window observed bounds the floor from above.
    fn deflate(&mut self) {
        for tally in [&self.window, &self.since_cut] {
            if tally.packets >= 400.0 {
                let run = self.run_mean.max(1.0);
                let slack = run * (3.0 + 3.0 * (tally.losses / run).sqrt());
                self.floor = self.floor.min((tally.losses + slack) / tally.packets);
            }
        }
    }

    /// Takes the count since the cut into the floor: the sender was provably below capacity.
    /// `packets_max` bounds its weight.
    pub(super) fn learn(&mut self, packets_max: f64) {
        let packets = self.since_cut.packets.min(packets_max);
        if packets < 1.0 {
            return;
        }
        let loss = self.since_cut.rate();
        self.floor += (loss - self.floor) * packets / (packets + self.floor_packets);
        self.floor_packets = (self.floor_packets + packets).min(FLOOR_PACKETS_MAX);
    }

    /// As [`learn`](Self::learn), unless more is lost than the floor allows for: a loss that has just
    /// begun may be our doing after all, and is for an experiment to judge.
    pub(super) fn learn_expected(&mut self) {
        let Tally {
            packets, losses, ..
        } = self.since_cut;
        let variance = packets * self.floor * (1.0 - self.floor) * self.dispersion(self.floor);
        let expected = self.floor * packets + self.run_mean + 3.0 * variance.sqrt();
        if losses <= expected.max(EXPECTED_MIN * packets) {
            self.learn(f64::INFINITY);
        }
    }

    /// As [`learn`](Self::learn), unless more is lost than half a percent beyond the floor. Chance counts
    /// both ways: to learn only from what is below the floor would lower it time and again.
    pub(super) fn learn_near(&mut self) {
        let Tally {
            packets, losses, ..
        } = self.since_cut;
        let chance = 2.0 * (packets * self.variance()).sqrt();
        if losses <= (self.floor + 0.005) * packets + chance {
            self.learn(f64::INFINITY);
        }
    }

    /// Takes the count since the cut for the floor once it is the longer of the two, unless it is beyond
    /// what is tolerated: the sender is below where it was cut. Once for each cut: what others add little by
    /// little would be learned for the path's.
    pub(super) fn learn_longer(&mut self) {
        if self.has_learned_longer {
            return;
        }
        let Tally { packets, .. } = self.since_cut;
        let loss = self.since_cut.rate();
        if packets > self.floor_packets.max(LONG_MIN) && loss <= self.floor + self.tolerance() {
            self.floor = loss;
            self.floor_packets = packets.min(FLOOR_PACKETS_MAX);
            self.has_learned_longer = true;
        }
    }

    /// Takes the first round for the floor, as far as it goes: it was sent far below capacity.
    pub(super) fn learn_first(&mut self) {
        if self.first.packets > self.floor_packets {
            self.floor = self.first.rate();
            self.floor_packets = self.first.packets;
        }
    }

    /// Sets the floor to what an experiment has shown.
    pub(super) fn set_floor(&mut self, floor: f64, packets: f64) {
        self.floor = floor;
        self.floor_packets = packets.min(FLOOR_PACKETS_MAX);
        self.window = Tally::default();
    }

    /// How much more the counts vary than independent losses at the rate `loss` would.
    pub(super) fn dispersion(&self, loss: f64) -> f64 {
        (2.0 * self.run_mean * (1.0 - loss) - 1.0).max(1.0)
    }

    /// Whether losses since the cut exceed the floor by the fraction `threshold`, in at least
    /// `runs_min` runs, and beyond chance.
    pub(super) fn excess(&self, threshold: f64, runs_min: f64) -> bool {
        let Tally {
            packets,
            losses,
            runs,
        } = self.since_cut;
        let floor = self.floor;
        let loss = self.since_cut.rate();
        // The last resort: half of what should arrive does not, whatever the floor has learned.
        if packets >= 1000f64.max(40.0 * self.run_mean) && 1.0 - loss < 0.5 * (1.0 - floor) {
            return true;
        }
        if packets < 8.0
            || loss <= floor + threshold * (1.0 - floor)
            || (runs < runs_min && loss <= 0.7)
        {
            return false;
        }
        let variance = self.variance() * (1.0 / packets + 1.0 / self.floor_packets.max(20.0));
        let deviation = packets * variance.sqrt();
        losses > floor * packets + runs_min.max(4.0 * deviation)
    }

    /// Whether the path is known to lose nearly nothing by itself.
    pub(super) fn is_path_clean(&self) -> bool {
        self.floor < NEARLY_NOTHING && self.floor_packets >= KNOWN_MIN
    }

    /// What may be lost beyond the floor: little, and as much as the floor is uncertain.
    fn tolerance(&self) -> f64 {
        let deviation = (self.variance() / self.floor_packets.max(20.0)).sqrt();
        TOLERANCE * (1.0 - self.floor) + 2.0 * deviation
    }

    /// Variance of the loss of one packet at the floor, or, while that is uncertain, at half of what is
    /// lost now.
    fn variance(&self) -> f64 {
        let dispersion = self.dispersion(self.floor);
        let is_uncertain = self.floor_packets < KNOWN_MIN || dispersion > 3.0;
        let assumed = if is_uncertain {
            self.floor.max(self.since_cut.rate() / 2.0)
        } else {
            self.floor
        };
        assumed * (1.0 - assumed) * dispersion
    }

    /// Whether the newest packets lose more than the floor allows, by `losses_min` at least.
    ///
    /// A cumulative sum (E. S. Page, Continuous inspection schemes, 1954). By chance it comes to so much
    /// once in exp(10) / 2 * variance / tolerance^2 packets: at a floor of 10 %, in a million or more.
    pub(super) fn has_surplus(&self, losses_min: f64) -> bool {
        !self.is_bursty() && self.surplus > losses_min + 5.0 * self.variance() / self.tolerance()
    }

    /// Whether losses come in bursts. A policer's do not: it passes a packet whenever it can.
    pub(super) fn is_bursty(&self) -> bool {
        self.run_mean > RUN_LONG
    }

    /// Whether to yield at a limit without a queue: on a clean path as CUBIC does.
    pub(super) fn begins_to_exceed(&self) -> bool {
        if self.is_path_clean() {
            self.any_excess()
        } else {
            self.has_surplus(1.0)
        }
    }

    /// As [`excess`](Self::excess), for a path that loses nearly nothing: every loss but one counts.
    pub(super) fn any_excess(&self) -> bool {
        if self.floor < NEARLY_NOTHING {
            self.since_cut.losses > 1.0 + 2.0 * self.floor * self.since_cut.packets
        } else {
            self.excess(0.0, 1.0)
        }
    }
}

impl Tally {
    fn add(&mut self, packet: &Resolved, begins_run: bool) {
        self.packets += 1.0;
        self.losses += f64::from(u8::from(packet.lost));
        self.runs += f64::from(u8::from(begins_run));
    }

    fn take_back_loss(&mut self) {
        self.losses = (self.losses - 1.0).max(0.0);
    }

    /// The fraction lost.
    pub(super) fn rate(&self) -> f64 {
        if self.packets > 0.0 {
            self.losses / self.packets
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::knee::resolved_at;

    fn resolved(count: u64, is_lost: impl Fn(u64) -> bool) -> Vec<Resolved> {
        resolved_at(1.01, count, is_lost)
    }

    #[test]
    fn losses_at_the_floor_are_not_in_excess_and_twice_the_floor_is() {
        let mut losses = Losses::new(None);
        losses.update(&resolved(4000, |number| number % 10 == 0), &[]);
        losses.learn(f64::INFINITY);
        assert!((losses.floor - 0.1).abs() < 0.001);
        losses.begin_count(0.5);
        losses.update(&resolved(1000, |number| number % 10 == 0), &[]);
        assert!(!losses.excess(0.02, 4.0));
        losses.begin_count(0.5);
        losses.update(&resolved(1000, |number| number % 5 == 0), &[]);
        assert!(losses.excess(0.02, 4.0));
    }

    /// Losses with a floor of 10 % from 3000 packets, counting anew.
    fn at_a_tenth() -> Losses {
        let mut losses = Losses::new(None);
        losses.set_floor(0.1, 3000.0);
        losses
    }

    #[test]
    fn an_excess_that_begins_late_is_not_diluted_by_what_went_before() {
        let mut losses = at_a_tenth();
        losses.update(&resolved(19_000, |number| number % 10 == 0), &[]);
        assert!(!losses.has_surplus(1.0));
        losses.update(&resolved(600, |number| number % 5 == 0), &[]);
        assert!(!losses.excess(0.02, 4.0), "the mean does not tell");
        assert!(losses.has_surplus(1.0));
    }

    #[test]
    fn bursts_are_no_surplus() {
        let mut losses = at_a_tenth();
        losses.update(&resolved(4000, |number| number % 100 < 30), &[]);
        assert!(losses.is_bursty());
        assert!(!losses.has_surplus(1.0));
    }

    #[test]
    fn counts_that_chance_moves_both_ways_leave_the_floor_where_it_is() {
        let mut losses = at_a_tenth();
        for round in 0..40 {
            let every = if round % 2 == 0 { 9 } else { 11 };
            losses.begin_count(0.5);
            losses.update(&resolved(400, |number| number % every == 0), &[]);
            losses.learn_near();
        }
        assert!((losses.floor - 0.1).abs() < 0.005, "{}", losses.floor);
    }

    #[test]
    fn a_count_longer_than_the_floor_s_takes_its_place_unless_it_is_in_excess() {
        let mut losses = at_a_tenth();
        losses.update(&resolved(4000, |number| number % 9 == 0), &[]);
        losses.learn_longer();
        assert!((losses.floor - 0.111).abs() < 0.001, "{}", losses.floor);
        losses.begin_count(0.5);
        losses.update(&resolved(4000, |number| number % 5 == 0), &[]);
        losses.learn_longer();
        assert!((losses.floor - 0.111).abs() < 0.001, "{}", losses.floor);
    }

    #[test]
    fn a_clean_window_lowers_the_floor_at_once() {
        let mut losses = Losses::new(Some(0.3));
        losses.update(&resolved(1000, |_| false), &[]);
        assert!(losses.floor <= 0.003, "{}", losses.floor);
    }

    #[test]
    fn packets_that_turn_up_late_are_taken_back() {
        let mut losses = Losses::new(None);
        losses.update(&resolved(100, |number| number < 20), &[1.001; 20]);
        assert_eq!(losses.since_cut.losses, 0.0);
        losses.begin_count(1.005);
        losses.update(&resolved(100, |number| number >= 80), &[1.001; 20]);
        assert_eq!(
            losses.since_cut.losses, 20.0,
            "those were of before the cut"
        );
        losses.begin_count(1.5);
        losses.update(&[], &[1.6; 20]);
        assert!(!losses.cut_was_wrong(), "those were sent after it");
        losses.update(&[], &[1.4; 20]);
        assert!(losses.cut_was_wrong());
    }
}
