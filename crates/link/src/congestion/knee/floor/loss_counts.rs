//! Counts of packets and losses, and lengths of runs of losses.

use crate::congestion::ResolvedPacket;

/// Numbers of packets, losses and runs of losses.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in super::super) struct LossCounts {
    pub(in super::super) packets: f64,
    pub(in super::super) losses: f64,
    /// Number of runs. Consecutive losses form one run.
    pub(super) runs: f64,
}

impl LossCounts {
    pub(super) fn add(&mut self, packet: &ResolvedPacket, begins_run: bool) {
        self.packets += 1.0;
        self.losses += f64::from(u8::from(packet.lost));
        self.runs += f64::from(u8::from(begins_run));
    }

    /// Subtracts one loss, because a packet that was declared lost has arrived.
    pub(super) fn take_back_loss(&mut self) {
        self.losses = (self.losses - 1.0).max(0.0);
    }

    /// Returns the sum of both counts.
    pub(in super::super) fn and(&self, other: &Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            losses: self.losses + other.losses,
            runs: self.runs + other.runs,
        }
    }

    /// Returns the fraction of packets that were lost. Returns zero if there are no packets.
    pub(in super::super) fn loss_fraction(&self) -> f64 {
        if self.packets > 0.0 {
            self.losses / self.packets
        } else {
            0.0
        }
    }
}

/// Lengths of runs of losses, in packets.
#[derive(Debug)]
pub(super) struct LossRuns {
    last_was_lost: bool,
    /// Length of the present run of losses, in packets.
    present: f64,
    /// Moving average of the lengths of completed runs, in packets.
    pub(super) mean: f64,
}

impl LossRuns {
    pub(super) fn new() -> Self {
        Self {
            last_was_lost: false,
            present: 0.0,
            mean: 1.0,
        }
    }

    /// Adds the next packet in the order of packet numbers. Returns whether a new run of losses
    /// begins with the packet.
    pub(super) fn add(&mut self, packet: &ResolvedPacket) -> bool {
        let begins_run = packet.lost && !self.last_was_lost;
        if packet.lost {
            self.present += 1.0;
        } else if self.last_was_lost {
            self.mean += (self.present.min(LENGTH_MAX) - self.mean) * WEIGHT;
            self.present = 0.0;
        }
        self.last_was_lost = packet.lost;
        begins_run
    }

    /// Whether losses come in bursts: the mean run is longer than [`LONG`].
    pub(super) fn are_long(&self) -> bool {
        self.mean > LONG
    }

    /// Returns the variance of loss counts, divided by the variance that independent losses would
    /// have.
    ///
    /// `loss` is the loss fraction. The formula assumes geometrically distributed lengths of runs.
    /// Independent losses form runs of 1 / (1 - loss) packets on average. The result is 1 for such
    /// runs.
    pub(super) fn dispersion(&self, loss: f64) -> f64 {
        (2.0 * self.mean * (1.0 - loss) - 1.0).max(1.0)
    }
}

/// Weight of one run of losses in the moving average of the lengths.
const WEIGHT: f64 = 1.0 / 32.0;
/// Maximum length of one run in the average, in packets. Without the limit, an outage would hide
/// later losses from the tests.
const LENGTH_MAX: f64 = 100.0;
/// Mean length of runs of losses, in packets. Runs with a larger mean length count as bursts. A
/// policer that drops four of five packets causes runs of five.
const LONG: f64 = 6.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::knee::resolved_at;

    #[test]
    fn losses_in_a_row_are_one_run_and_make_counts_vary_more() {
        let mut runs = LossRuns::new();
        let mut tally = LossCounts::default();
        for packet in resolved_at(1.0, 4000, |number| number % 40 < 20) {
            let begins_run = runs.add(&packet);
            tally.add(&packet, begins_run);
        }
        assert_eq!((tally.losses, tally.runs), (2000.0, 100.0));
        assert!((tally.loss_fraction() - 0.5).abs() < 1e-9);
        assert!(runs.are_long() && runs.dispersion(0.5) > 15.0);
    }

    #[test]
    fn an_outage_does_not_make_all_losses_bursts() {
        let mut runs = LossRuns::new();
        for packet in resolved_at(1.0, 100_001, |number| number < 100_000) {
            runs.add(&packet);
        }
        assert!(!runs.are_long(), "{}", runs.mean);
    }
}
