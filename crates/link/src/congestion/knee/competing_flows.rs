//! Detection of competing flows that fill the queue.
//!
//! The input is drains of the queue that succeeded or failed. The output is the verdict, and the
//! window with which to begin beside competing flows. [`CubicWindow`](super::cubic::CubicWindow)
//! determines the fair share beside them.
//!
//! Alone on the path, a sender that drains empties the queue. Competing flows do not make room, so
//! the drain fails.

use crate::congestion::knee::Mechanism;

/// Policy towards competing flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KneePolicy {
    /// Shares as one CUBIC flow would.
    Fair,
    /// Leaves all capacity to other flows that want it.
    Background,
}

/// Evidence of competing flows.
#[derive(Debug)]
pub(super) struct CompetingFlows {
    policy: KneePolicy,
    /// Score of the evidence: up with each drain that failed, down with each that emptied the queue
    /// at the first try.
    score: f64,
    /// Window with which to compete, in bytes: the window that passed before the present series of
    /// drains.
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

    /// Whether all capacity is left to others.
    pub(super) fn comes_first(&self) -> bool {
        self.policy == KneePolicy::Background
    }

    /// Records the start of drains. The window of `window_bytes` bytes passed.
    pub(super) fn on_drain(&mut self, window_bytes: f64) {
        if self.score < STEP_DOWN {
            self.window_before_bytes = window_bytes;
        }
    }

    /// Returns the window that passed before the present series of drains, in bytes.
    pub(super) fn window_before_bytes(&self) -> f64 {
        self.window_before_bytes
    }

    /// Records that a drain has emptied the queue at the first try.
    pub(super) fn on_emptied_queue(&mut self) {
        self.score =
            (self.score - Mechanism::CompetingScore.value(STEP_DOWN, COMPETING_SCORE)).max(0.0);
    }

    /// Records that a drain has not emptied the queue. Returns whether to compete with the flows
    /// that fill it.
    pub(super) fn on_failed_drain(&mut self) -> bool {
        self.score += STEP_UP;
        Mechanism::Compete.acts(self.score >= COMPETING_SCORE && self.policy == KneePolicy::Fair)
    }

    /// Forgets the evidence of competing flows.
    pub(super) fn forget(&mut self) {
        self.score = 0.0;
    }
}

/// Steps of the score: added by a failed drain, and subtracted by a drain that succeeds at the
/// first try.
///
/// The score rises while more than one drain in three fails. From the second value on a series of
/// failed drains is in progress, and the window before it stays stored.
const STEP_UP: f64 = 1.0;
const STEP_DOWN: f64 = 0.5;
/// Score from which competing flows fill the queue: three failed drains in a row, or as many more
/// as outweigh the successful drains among them.
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
