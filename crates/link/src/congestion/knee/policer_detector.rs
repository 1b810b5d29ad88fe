//! Detection of a policer. A policer drops packets above its rate instead of queueing them.
//!
//! The input is signs of a queue, and cuts for loss. The output is CUBIC's window growth, once a
//! policer is detected. The detector keeps its state between modes, because a cut at a policer also
//! starts a loss test.
//!
//! Loss is the only sign of a policer. TCP flows at the same policer halve their rate after a
//! single loss. If this controller tolerated a fraction of losses, it would displace those flows.
//! From the second consecutive cut for loss without a queue, the controller therefore slows down as
//! CUBIC does.

use super::{cubic::CubicWindow, floor::LossFloor};
use crate::congestion::knee::Mechanism;

/// Evidence of a policer. A policer drops packets above its rate instead of queueing them.
#[derive(Debug, Default)]
pub(super) struct PolicerDetector {
    /// Number of consecutive cuts for loss without a queue. Any other sign resets the count.
    cuts: u32,
    /// Largest window that the policer passed at a cut, in bytes.
    passed: f64,
    /// CUBIC's window growth. `None` until enough cuts have shown a policer.
    law: Option<CubicWindow>,
}

impl PolicerDetector {
    /// Discards the evidence. The caller has seen a sign that contradicts a policer, such as a
    /// queue.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Records a cut for loss without a queue. `passed` is the window that the policer passed, in
    /// bytes.
    ///
    /// Returns CUBIC's window after the cut. Returns `None` if no policer is known.
    pub(super) fn cut(&mut self, passed: f64, floor: &LossFloor, now_s: f64) -> Option<f64> {
        if Mechanism::BurstyLosses.acts(floor.is_bursty()) {
            self.forget();
            return None;
        }
        self.cuts += 1;
        self.passed = self.passed.max(passed);
        let is_first = Mechanism::SecondCut.acts(self.cuts < CUTS);
        if !Mechanism::Policed.acts(!is_first) {
            return None;
        }
        let law = self
            .law
            .get_or_insert_with(|| CubicWindow::new(passed, now_s));
        Some(if !Mechanism::LossyCut.acts(!floor.is_path_clean()) {
            law.cut(passed, now_s)
        } else {
            law.cut_lossy(passed, now_s)
        })
    }

    /// Returns CUBIC's window growth. Returns `None` if no policer is known.
    pub(super) fn law(&mut self) -> Option<&mut CubicWindow> {
        self.law.as_mut()
    }

    pub(super) fn is_known(&self) -> bool {
        self.law.is_some()
    }

    /// Whether the window is so small that the policer drops no packets. Losses on a lossy path
    /// then come from the path itself.
    pub(super) fn passes(&self, window_bytes: f64) -> bool {
        let dropped = self.law.map_or(0.0, |law| law.window_max_bytes());
        window_bytes < BELOW * dropped
    }

    /// Returns a limit for the window, in bytes. If the window exceeds the limit without losses, no
    /// policer is assumed any more.
    pub(super) fn gone_at(&self) -> f64 {
        GONE_AT * self.passed
    }
}

/// Number of consecutive cuts for loss without a queue. After this number of cuts, a policer is
/// detected. A single cut may have any cause.
const CUTS: u32 = 2;
/// Fraction of the window at the last loss. With a smaller window, losses on a lossy path come from
/// the path itself.
const BELOW: f64 = 0.95;
/// Multiple of the window that the policer passed. If a larger window has no losses, no policer is
/// assumed any more.
const GONE_AT: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::knee::resolved_at;

    #[test]
    fn the_second_cut_in_a_row_is_cubic_s() {
        let floor = LossFloor::new(None);
        let mut policer = PolicerDetector::default();
        assert_eq!(policer.cut(1e6, &floor, 1.0), None);
        assert_eq!(
            policer.cut(1e6, &floor, 2.0),
            Some(0.85e6),
            "a lossy path's"
        );
        assert!(policer.is_known() && policer.passes(0.8e6) && !policer.passes(0.99e6));
        assert_eq!(policer.gone_at(), 1.5e6);
        policer.forget();
        assert_eq!(policer.cut(1e6, &floor, 3.0), None);
    }

    #[test]
    fn bursts_of_losses_show_no_policer() {
        let mut floor = LossFloor::new(None);
        let mut policer = PolicerDetector::default();
        policer.cut(1e6, &floor, 1.0);
        floor.update(&resolved_at(2.0, 4000, |number| number % 100 < 30), &[]);
        assert_eq!(policer.cut(1e6, &floor, 3.0), None);
        assert!(!policer.is_known());
    }
}
