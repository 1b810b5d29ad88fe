//! Detection of competing flows that fill the queue.
//!
//! The input is the outcome of each queue drain. The output is whether competing flows fill the
//! queue, and the window with which to start competing. [`CubicWindow`](super::cubic::CubicWindow)
//! then computes the fair share.
//!
//! If a sender is alone on the path, its drain empties the queue. If competing flows fill the
//! queue, they do not slow down, and the drain fails.

use crate::congestion::knee::Mechanism;

/// Policy of the sender towards competing flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KneePolicy {
    /// The sender takes the share that one CUBIC flow would have.
    Fair,
    /// The sender uses only capacity that other flows do not use.
    Background,
}

/// Evidence that competing flows fill the queue.
#[derive(Debug)]
pub(super) struct CompetingFlows {
    policy: KneePolicy,
    /// Score of the evidence. A failed drain raises the score. A drain that empties the queue at
    /// the first attempt lowers the score.
    score: f64,
    /// Window before the present series of drains, in bytes. If the sender starts to compete, it
    /// starts with this window.
    window_before_bytes: f64,
}

impl CompetingFlows {
    pub(super) fn new(policy: KneePolicy) -> Self {
        Self {
            policy,
            score: 0.0,
            window_before_bytes: 0.0,
        }
    }

    /// Whether the sender uses only capacity that other flows do not use (the background policy).
    pub(super) fn comes_first(&self) -> bool {
        self.policy == KneePolicy::Background
    }

    /// Records that a drain starts. `window_bytes` is the part of the window that the path passed
    /// before the drain.
    pub(super) fn on_drain(&mut self, window_bytes: f64) {
        if self.score < STEP_DOWN {
            self.window_before_bytes = window_bytes;
        }
    }

    /// Returns the window before the present series of drains, in bytes.
    pub(super) fn window_before_bytes(&self) -> f64 {
        self.window_before_bytes
    }

    /// Records that a drain has emptied the queue at the first attempt.
    pub(super) fn on_emptied_queue(&mut self) {
        self.score =
            (self.score - Mechanism::CompetingScore.value(STEP_DOWN, COMPETING_SCORE)).max(0.0);
    }

    /// Records that a drain has failed to empty the queue. Returns whether the sender should
    /// compete with other flows for the queue.
    pub(super) fn on_failed_drain(&mut self) -> bool {
        self.score += STEP_UP;
        Mechanism::Compete.acts(self.score >= COMPETING_SCORE && self.policy == KneePolicy::Fair)
    }

    /// Discards the evidence of competing flows.
    pub(super) fn forget(&mut self) {
        self.score = 0.0;
    }
}

/// Steps of the score. A failed drain adds `STEP_UP`. A drain that succeeds at the first attempt
/// subtracts `STEP_DOWN`.
///
/// The score rises if more than one drain in three fails. While the score is at least `STEP_DOWN`,
/// a series of failed drains is in progress. The stored window is then the window from before the
/// series.
const STEP_UP: f64 = 1.0;
const STEP_DOWN: f64 = 0.5;
/// Score at which competing flows are assumed to fill the queue: three failed drains in a row. Each
/// successful drain between the failed drains raises the required number by one half.
const COMPETING_SCORE: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failed_drains_show_competing_flows_and_keep_the_window_before_them() {
        let mut competing = CompetingFlows::new(KneePolicy::Fair);
        competing.on_drain(2e6);
        assert!(!competing.on_failed_drain());
        competing.on_drain(1e6);
        assert!(!competing.on_failed_drain());
        assert!(competing.on_failed_drain());
        assert_eq!(competing.window_before_bytes(), 2e6);
        competing.forget();
        assert!(!competing.on_failed_drain());
    }

    #[test]
    fn successful_drains_are_evidence_against_competing_flows() {
        let mut competing = CompetingFlows::new(KneePolicy::Fair);
        for _ in 0..20 {
            assert!(!competing.on_failed_drain());
            competing.on_emptied_queue();
            competing.on_emptied_queue();
        }
    }

    #[test]
    fn background_policy_never_competes() {
        let mut competing = CompetingFlows::new(KneePolicy::Background);
        assert!((0..20).all(|_| !competing.on_failed_drain()));
    }
}
