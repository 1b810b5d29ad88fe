//! Limit of the work that a peer's reports may cause.
//!
//! A report of a few bytes may cover all packets in flight. The sender then processes one log entry
//! for each packet. A peer that repeats such reports would keep the sender busy.
//!
//! Each report therefore uses up steps of a budget. Sent packets and elapsed time add steps.

use crate::time::Time;

/// Remaining steps. One step pays for one log entry that a report covers.
#[derive(Debug)]
pub(super) struct StepBudget {
    left: u64,
    /// Time until which steps have been added.
    counted: Time,
    /// Total number of steps that reports have used.
    #[cfg(feature = "sim")]
    pub(super) taken: u64,
}

/// Number of steps that each sent packet adds.
///
/// If packets overtake each other by a round trip, each packet is covered by all reports of a round
/// trip. There are at most 64 such reports, and their repetitions.
const PER_PACKET: u64 = 256;
/// Number of steps added per second. These steps need about a tenth of one processor's time.
const PER_S: f64 = 20e6;
/// Maximum number of steps in the budget. These steps need about 20 ms of processor time.
const SAVED_MAX: u64 = 1 << 22;

impl StepBudget {
    pub(super) fn new() -> Self {
        Self {
            left: SAVED_MAX,
            counted: Time::default(),
            #[cfg(feature = "sim")]
            taken: 0,
        }
    }

    /// Adds the steps for a sent packet.
    pub(super) fn on_sent(&mut self) {
        self.left = (self.left + PER_PACKET).min(SAVED_MAX);
    }

    /// Uses `steps` steps for a report. If the budget has fewer steps, the function uses none and
    /// returns false.
    pub(super) fn take(&mut self, steps: u64, now: Time) -> bool {
        let earned = PER_S * now.seconds_since(self.counted);
        self.counted = now;
        self.left = (self.left + earned as u64).min(SAVED_MAX);
        let is_enough = steps <= self.left;
        let taken = if is_enough { steps } else { 0 };
        self.left -= taken;
        #[cfg(feature = "sim")]
        {
            self.taken += taken;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn packets_and_time_earn_steps() {
        let mut steps = StepBudget::new();
        let start = Time::default() + Duration::from_secs(1);
        assert!(steps.take(SAVED_MAX, start), "saved up");
        assert!(!steps.take(1, start), "none are left");
        steps.on_sent();
        assert!(steps.take(PER_PACKET, start));
        assert!(!steps.take(1, start));
        let later = start + Duration::from_millis(1);
        assert!(!steps.take(20_001, later));
        assert!(steps.take(20_000, later));
    }
}
