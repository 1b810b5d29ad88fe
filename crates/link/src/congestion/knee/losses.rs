//! Counting losses, and telling those in excess from those that the path inflicts anyway.
//!
//! In: packets whose fate is known, in the order of their numbers, and the packets given up wrongly.
//! Out: the floor, which is the fraction that the path loses by itself, and whether the losses since the
//! last cut exceed it. What follows from an excess is the controller's business ([`loss`](super::loss)).
//!
//! No single loss is judged. The tests compare a count with what the floor allows, wide enough for chance
//! and for bursts.

use crate::congestion::Resolved;

/// Packets, losses and runs of losses.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) packets: f64,
    pub(super) losses: f64,
    /// Losses in a row count as one run.
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
    /// Length of the present run of losses in packets, and the moving average of completed ones.
    run: f64,
    run_mean: f64,
    /// The fraction of packets that the path loses whatever we do.
    pub(super) floor: f64,
    /// Packets behind `floor`, capped.
    floor_packets: f64,
}

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
            floor_packets: floor.map_or(0.0, |_| REMEMBERED_PACKETS),
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
        self.losses_at_cut >= 1.0 && self.late_since_cut > MOST * self.losses_at_cut
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
                self.run_mean += (self.run.min(RUN_MEAN_MAX) - self.run_mean) * RUN_WEIGHT;
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
            if tally.packets >= KNOWN_MIN {
                let run = self.run_mean.max(1.0);
                let runs = tally.losses / run;
                let slack = run * (DEFLATE_SLACK + DEFLATE_DEVIATIONS * runs.sqrt());
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
        let chance = EXPECTED_DEVIATIONS * variance.sqrt();
        let expected = self.floor * packets + self.run_mean + chance;
        if losses <= expected.max(EXPECTED_MIN * packets) {
            self.learn(f64::INFINITY);
        }
    }

    /// As [`learn`](Self::learn), unless more is lost than half a percent beyond the floor, chance aside.
    /// Counts a little above the floor are learned as well as those below it: to learn only from what is
    /// below would lower the floor time and again.
    pub(super) fn learn_near(&mut self) {
        let Tally {
            packets, losses, ..
        } = self.since_cut;
        let chance = NEAR_DEVIATIONS * (packets * self.variance()).sqrt();
        if losses <= (self.floor + NEARLY_NOTHING) * packets + chance {
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

    /// Whether losses since the cut exceed the floor so far that the sender must slow down.
    pub(super) fn are_excessive(&self) -> bool {
        self.excess(EXCESS, EXCESS_RUNS)
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
        // The last resort, whatever the floor has learned.
        let resort_packets = RESORT_PACKETS.max(RESORT_RUNS * self.run_mean);
        if packets >= resort_packets && 1.0 - loss < RESORT_ARRIVING * (1.0 - floor) {
            return true;
        }
        let is_small = loss <= floor + threshold * (1.0 - floor);
        let has_few_runs = runs < runs_min && loss <= LOSS_OF_ONE_RUN;
        if packets < EXCESS_PACKETS_MIN || is_small || has_few_runs {
            return false;
        }
        let floor_packets = self.floor_packets.max(FLOOR_PACKETS_MIN);
        let variance = self.variance() * (1.0 / packets + 1.0 / floor_packets);
        let deviation = packets * variance.sqrt();
        losses > floor * packets + runs_min.max(EXCESS_DEVIATIONS * deviation)
    }

    /// Whether the path is known to lose nearly nothing by itself.
    pub(super) fn is_path_clean(&self) -> bool {
        self.floor < NEARLY_NOTHING && self.floor_packets >= KNOWN_MIN
    }

    /// What may be lost beyond the floor: little, and as much as the floor is uncertain.
    fn tolerance(&self) -> f64 {
        let floor_packets = self.floor_packets.max(FLOOR_PACKETS_MIN);
        let deviation = (self.variance() / floor_packets).sqrt();
        TOLERANCE * (1.0 - self.floor) + TOLERANCE_DEVIATIONS * deviation
    }

    /// Variance of the loss of one packet at the floor, or, while that is uncertain, at half of what is
    /// lost now.
    fn variance(&self) -> f64 {
        let dispersion = self.dispersion(self.floor);
        let is_uncertain = self.floor_packets < KNOWN_MIN || dispersion > DISPERSION_OF_BURSTS;
        let assumed = if is_uncertain {
            self.floor.max(self.since_cut.rate() / 2.0)
        } else {
            self.floor
        };
        assumed * (1.0 - assumed) * dispersion
    }

    /// Whether the newest packets lose more than the floor allows, by `losses_min` at least.
    ///
    /// A cumulative sum (E. S. Page, Continuous inspection schemes, 1954). With a decision limit of
    /// [`SURPLUS_LIMIT`] * variance / tolerance, chance alone reaches it once in
    /// exp(2 * `SURPLUS_LIMIT`) / 2 * variance / tolerance^2 packets: at a floor of 10 % once in a
    /// million or more.
    pub(super) fn has_surplus(&self, losses_min: f64) -> bool {
        let limit = SURPLUS_LIMIT * self.variance() / self.tolerance();
        !self.is_bursty() && self.surplus > losses_min + limit
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

    /// Whether losses call for the cut that CUBIC would make. On a path that loses nearly nothing every loss
    /// but one counts, as far as twice the floor does not explain it; on a lossy path any excess does.
    pub(super) fn any_excess(&self) -> bool {
        if self.floor < NEARLY_NOTHING {
            self.since_cut.losses > 1.0 + FLOOR_ALLOWANCE * self.floor * self.since_cut.packets
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

/// Losses are excessive beyond this fraction of what should arrive: the loss that a sender alone on a path
/// with a queue may cause (`bench fair`).
const EXCESS: f64 = 0.02;
/// ... in this many runs: one burst of losses is no excess, however long.
pub(super) const EXCESS_RUNS: f64 = 4.0;
/// ... unless this fraction is lost: then losses are so dense that they make one run.
const LOSS_OF_ONE_RUN: f64 = 0.7;
/// Fewer packets show no excess.
const EXCESS_PACKETS_MIN: f64 = 8.0;
/// Standard deviations beyond the floor that are no chance. The test runs with every report, so a limit
/// of two or three would be passed by chance every few seconds.
const EXCESS_DEVIATIONS: f64 = 4.0;
/// The last resort: less than this part of what should arrive does.
const RESORT_ARRIVING: f64 = 0.5;
/// ... over this many packets, and over this many runs of losses where they come in bursts, so that a
/// few bursts are not taken for an overload.
const RESORT_PACKETS: f64 = 1000.0;
const RESORT_RUNS: f64 = 40.0;

/// Packets after which the count of the longer past begins anew. More bound the floor more tightly, fewer
/// forget sooner what the path once lost.
const WINDOW_MAX: f64 = 20_000.0;
/// Packets behind the floor at most: otherwise new counts would hardly move an old floor.
const FLOOR_PACKETS_MAX: f64 = 3000.0;
/// Packets behind the floor at least, wherever the count divides.
const FLOOR_PACKETS_MIN: f64 = 20.0;
/// A floor remembered from an earlier connection weighs as much as this many packets: the path may lose
/// otherwise now.
const REMEMBERED_PACKETS: f64 = 200.0;
/// A floor from fewer packets is uncertain, and fewer do not bound it.
const KNOWN_MIN: f64 = 400.0;
/// A count to be taken for the floor has this many packets at least.
const LONG_MIN: f64 = 500.0;
/// Below this floor single losses count, and a loss this far above the floor is near it.
pub(super) const NEARLY_NOTHING: f64 = 0.005;
/// The floor is bounded by a count of losses plus this many runs and standard deviations: three without
/// a single loss are what 95 % confidence takes (the rule of three), three deviations 99.9 %.
const DEFLATE_SLACK: f64 = 3.0;
const DEFLATE_DEVIATIONS: f64 = 3.0;
/// Standard deviations within which a count is what the floor lets expect.
const EXPECTED_DEVIATIONS: f64 = 3.0;
/// A rise of the floor to this loss is never worth an experiment.
const EXPECTED_MIN: f64 = 0.02;
/// Standard deviations within which a count is near the floor. Fewer than above, since such a count follows
/// a cut for loss.
const NEAR_DEVIATIONS: f64 = 2.0;
/// Where the floor is nearly nothing, as many losses again as it lets expect are no sign.
const FLOOR_ALLOWANCE: f64 = 2.0;

/// An excess below this fraction of what should arrive is not looked for.
const TOLERANCE: f64 = 0.02;
/// ... nor one within this many standard deviations of what the floor is known to.
const TOLERANCE_DEVIATIONS: f64 = 2.0;
/// Decision limit of the cumulative sum, in units of variance / tolerance; see
/// [`has_surplus`](Losses::has_surplus).
const SURPLUS_LIMIT: f64 = 5.0;
/// The last cut was wrong if more than this part of the losses that led to it turned up late.
const MOST: f64 = 0.5;

/// Weight of one run of losses in the average of their lengths.
const RUN_WEIGHT: f64 = 1.0 / 32.0;
/// A longer run counts as one of this length: an outage must not blind the tests to what comes after it.
const RUN_MEAN_MAX: f64 = 100.0;
/// Longer runs on average are bursts: a policer that drops four packets of five makes runs of five.
const RUN_LONG: f64 = 6.0;
/// From this dispersion on losses come in bursts, and a floor is uncertain however many packets are behind
/// it. Runs of two on average make it 3.
const DISPERSION_OF_BURSTS: f64 = 3.0;

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
        assert!(!losses.are_excessive());
        losses.begin_count(0.5);
        losses.update(&resolved(1000, |number| number % 5 == 0), &[]);
        assert!(losses.are_excessive());
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
        assert!(!losses.are_excessive(), "the mean does not tell");
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
