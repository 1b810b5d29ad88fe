//! Counting losses, and telling those in excess from those that the path inflicts anyway.
//!
//! No single loss is judged. Losses count only when resolved, in packet-number order; the test
//! compares a count with what the floor allows, wide enough for chance and for bursts.

use crate::congestion::Resolved;

/// Packets, losses and runs of losses, and what was sent from when to when.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) packets: f64,
    pub(super) losses: f64,
    pub(super) runs: f64,
    bytes: f64,
    /// When the first and the last packet were sent.
    sent_s: Option<(f64, f64)>,
}

/// The counts of a connection and its floor.
#[derive(Debug)]
pub(super) struct Losses {
    /// Packets sent after the last cut.
    pub(super) since_cut: Tally,
    /// Of those, the packets resolved in this round and in the one before it.
    round: Tally,
    round_before: Tally,
    /// A longer past, up to [`WINDOW_MAX`] packets.
    window: Tally,
    cut_s: f64,
    /// Before the first arrival nothing counts: the peer may not be able to read yet.
    any_arrived: bool,
    last_was_lost: bool,
    run: f64,
    run_mean: f64,
    /// The fraction of packets that the path loses whatever we do.
    pub(super) floor: f64,
    /// Packets behind `floor`, capped.
    floor_packets: f64,
}

/// No path is taken to lose more than this by itself: several links that overload a bottleneck without
/// a queue would take each other for such a path.
const FLOOR_MAX: f64 = 0.70;
const WINDOW_MAX: f64 = 20_000.0;
const FLOOR_PACKETS_MAX: f64 = 3000.0;
const RUN_MEAN_MAX: f64 = 100.0;

impl Losses {
    pub(super) fn new(floor: Option<f64>) -> Self {
        Self {
            since_cut: Tally::default(),
            round: Tally::default(),
            round_before: Tally::default(),
            window: Tally::default(),
            cut_s: 0.0,
            any_arrived: false,
            last_was_lost: false,
            run: 0.0,
            run_mean: 1.0,
            floor: floor.unwrap_or(0.0),
            floor_packets: if floor.is_some() { 200.0 } else { 0.0 },
        }
    }

    /// Counts from packets sent after `now_s` on.
    pub(super) fn begin_count(&mut self, now_s: f64) {
        self.since_cut = Tally::default();
        self.round = Tally::default();
        self.round_before = Tally::default();
        self.cut_s = now_s;
    }

    /// A round of the controller ends and another begins.
    pub(super) fn begin_round(&mut self) {
        self.round_before = std::mem::take(&mut self.round);
    }

    /// What was resolved in this round and in the one before it.
    pub(super) fn recent(&self) -> Tally {
        self.round_before.and(&self.round)
    }

    pub(super) fn update(&mut self, resolved: &[Resolved], late: usize) {
        for packet in resolved {
            self.any_arrived |= !packet.lost;
            if !self.any_arrived {
                continue;
            }
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
                // A hole far longer than the path's runs is one in the reports, or an outage.
                if self.run <= 8.0 * self.run_mean {
                    self.round.add(packet, begins_run);
                }
            }
            if self.window.packets >= WINDOW_MAX {
                self.deflate();
                self.window = Tally::default();
            }
        }
        // What was given up wrongly was no loss.
        for tally in [&mut self.window, &mut self.since_cut, &mut self.round] {
            tally.losses = (tally.losses - late as f64).max(0.0);
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
        self.floor = self.floor.min(FLOOR_MAX);
        self.floor_packets = (self.floor_packets + packets).min(FLOOR_PACKETS_MAX);
    }

    /// Sets the floor to what an experiment has shown.
    pub(super) fn set_floor(&mut self, floor: f64, packets: f64) {
        self.floor = floor.min(FLOOR_MAX);
        self.floor_packets = packets.min(FLOOR_PACKETS_MAX);
        self.window = Tally::default();
    }

    /// How much more the counts vary than independent losses at the rate `loss` would.
    pub(super) fn dispersion(&self, loss: f64) -> f64 {
        (2.0 * self.run_mean * (1.0 - loss) - 1.0).max(1.0)
    }

    /// Whether the floor rests on next to nothing.
    pub(super) fn is_floor_unknown(&self) -> bool {
        self.floor_packets < 100.0
    }

    /// The packets whose losses exceed the floor by the fraction `threshold`, in at least `runs_min`
    /// runs, and beyond chance: those of the last two rounds, where long clean times do not hide a
    /// great loss that has just begun, or all since the cut, where a small one adds up.
    pub(super) fn evidence(&self, threshold: f64, runs_min: f64) -> Option<Tally> {
        let recent = self.recent();
        let is_great = self.exceeds(&recent, threshold.max(0.1), runs_min.max(8.0));
        let adds_up = || self.exceeds(&self.since_cut, threshold, runs_min);
        if is_great {
            Some(recent)
        } else {
            adds_up().then_some(self.since_cut)
        }
    }

    /// Whether there is [`evidence`](Self::evidence).
    pub(super) fn excess(&self, threshold: f64, runs_min: f64) -> bool {
        self.evidence(threshold, runs_min).is_some()
    }

    fn exceeds(&self, tally: &Tally, threshold: f64, runs_min: f64) -> bool {
        let (packets, losses, runs) = (tally.packets, tally.losses, tally.runs);
        let floor = self.floor;
        let loss = tally.rate();
        // The last resort: half of what should arrive does not, whatever the floor has learned.
        if packets >= 1000f64.max(40.0 * self.run_mean) && 1.0 - loss < 0.5 * (1.0 - floor) {
            return true;
        }
        if packets < 8.0 || loss <= floor + threshold * (1.0 - floor) || runs < runs_min {
            return false;
        }
        let dispersion = self.dispersion(self.floor);
        let is_uncertain = self.floor_packets < 400.0 || dispersion > 3.0;
        let assumed = if is_uncertain {
            floor.max(loss / 2.0)
        } else {
            floor
        };
        let variance = assumed
            * (1.0 - assumed)
            * dispersion
            * (1.0 / packets + 1.0 / self.floor_packets.max(20.0));
        let deviation = packets * variance.sqrt();
        losses > floor * packets + runs_min.max(4.0 * deviation)
    }

    /// As [`excess`](Self::excess), for a path that loses nearly nothing: every loss counts that is
    /// not twice what the floor allows.
    pub(super) fn any_excess(&self) -> bool {
        if self.floor < 0.005 {
            self.since_cut.losses > 2.0 * self.floor * self.since_cut.packets
        } else {
            let recent = self.recent();
            self.exceeds(&recent, 0.0, 1.0) || self.exceeds(&self.since_cut, 0.0, 1.0)
        }
    }
}

impl Tally {
    fn add(&mut self, packet: &Resolved, begins_run: bool) {
        self.packets += 1.0;
        self.losses += f64::from(u8::from(packet.lost));
        self.runs += f64::from(u8::from(begins_run));
        self.bytes += packet.bytes as f64;
        let first_s = self.sent_s.map_or(packet.sent_s, |(first_s, _)| first_s);
        self.sent_s = Some((first_s, packet.sent_s));
    }

    /// Both, one after the other.
    fn and(&self, later: &Self) -> Self {
        Self {
            packets: self.packets + later.packets,
            losses: self.losses + later.losses,
            runs: self.runs + later.runs,
            bytes: self.bytes + later.bytes,
            sent_s: match (self.sent_s, later.sent_s) {
                (Some((first_s, _)), Some((_, last_s))) => Some((first_s, last_s)),
                (one, other) => one.or(other),
            },
        }
    }

    /// Bytes per second at which the packets were sent, where they took `span_min_s` or longer.
    pub(super) fn sent_bytes_per_s(&self, span_min_s: f64) -> Option<f64> {
        let (first_s, last_s) = self.sent_s?;
        let span_s = last_s - first_s;
        (span_s >= span_min_s).then(|| self.bytes / span_s)
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

    fn resolved(count: u64, is_lost: impl Fn(u64) -> bool) -> Vec<Resolved> {
        (0..count)
            .map(|number| Resolved {
                number,
                bytes: 1500,
                sent_s: 1.0 + number as f64 * 1e-4,
                window_bytes: 1e6,
                lost: is_lost(number),
            })
            .collect()
    }

    #[test]
    fn losses_at_the_floor_are_not_in_excess_and_twice_the_floor_is() {
        let mut losses = Losses::new(None);
        losses.update(&resolved(4000, |number| number % 10 == 0), 0);
        losses.learn(f64::INFINITY);
        assert!((losses.floor - 0.1).abs() < 0.001);
        losses.begin_count(0.5);
        losses.update(&resolved(1000, |number| number % 10 == 0), 0);
        assert!(!losses.excess(0.02, 4.0));
        losses.begin_count(0.5);
        losses.update(&resolved(1000, |number| number % 5 == 0), 0);
        assert!(losses.excess(0.02, 4.0));
    }

    #[test]
    fn a_clean_window_lowers_the_floor_at_once() {
        let mut losses = Losses::new(Some(0.3));
        losses.update(&resolved(1000, |_| false), 0);
        assert!(losses.floor <= 0.003, "{}", losses.floor);
    }

    #[test]
    fn a_loss_that_begins_after_a_long_clean_time_is_in_excess_within_a_round() {
        let mut losses = Losses::new(None);
        losses.update(&resolved(19_000, |_| false), 0);
        losses.learn(f64::INFINITY);
        losses.begin_round();
        losses.begin_round();
        losses.update(&resolved(100, |number| number % 3 == 0), 0);
        let evidence = losses
            .evidence(0.02, 4.0)
            .expect("a third of 100 packets is lost");
        assert_eq!(evidence.packets, 100.0);
        assert!(
            losses.since_cut.rate() < 0.002,
            "the count since the cut hides it"
        );
    }

    #[test]
    fn what_is_lost_before_anything_arrives_does_not_count() {
        let mut losses = Losses::new(None);
        losses.update(&resolved(100, |number| number < 58), 0);
        assert_eq!(
            (losses.since_cut.packets, losses.since_cut.losses),
            (42.0, 0.0)
        );
    }

    #[test]
    fn packets_that_turn_up_late_are_taken_back() {
        let mut losses = Losses::new(None);
        losses.update(&resolved(100, |number| number < 20), 20);
        assert_eq!(losses.since_cut.losses, 0.0);
    }
}
