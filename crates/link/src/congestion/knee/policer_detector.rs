//! Detection of a policer, which drops packets instead of queueing them, and of the window that it
//! passes.
//!
//! The input is cuts for loss, and signals of another kind. The output is CUBIC's window growth,
//! once a policer is detected. The detector outlives the mode [`policed`](super::mode): at a
//! policer each cut is tested like any other.
//!
//! Only loss shows a policer, and TCP flows that share it halve their rate on a single loss. A
//! controller that waits for a certain fraction to be lost would take all of the policer's rate
//! from them. From the second cut in a row for loss without a queue, the controller therefore
//! yields as CUBIC does.

use super::{cubic::CubicWindow, floor::LossFloor};
use crate::congestion::knee::Mechanism;

/// Evidence of a policer, which drops packets instead of queueing them.
#[derive(Debug, Default)]
pub(super) struct PolicerDetector {
    /// Cuts for loss without a queue since the last signal of another kind.
    cuts: u32,
    /// Largest window that passed when the policer dropped packets, in bytes.
    passed: f64,
    /// CUBIC's window growth, once enough such cuts have shown a policer.
    law: Option<CubicWindow>,
}

impl PolicerDetector {
    /// Forgets the evidence, after a signal of another kind than loss without a queue.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Records a cut for loss without a queue, where the window `passed` passes. Returns CUBIC's
    /// window after the cut, if a policer is known.
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

    /// Returns CUBIC's window growth, if there is a policer.
    pub(super) fn law(&mut self) -> Option<&mut CubicWindow> {
        self.law.as_mut()
    }

    pub(super) fn is_known(&self) -> bool {
        self.law.is_some()
    }

    /// Whether the policer drops no packets of this window, so that the losses on a lossy path are
    /// the path's.
    pub(super) fn passes(&self, window_bytes: f64) -> bool {
        let dropped = self.law.map_or(0.0, |law| law.window_max_bytes());
        window_bytes < BELOW * dropped
    }

    /// Returns the window at which, without a loss, the policer is gone; in bytes.
    pub(super) fn gone_at(&self) -> f64 {
        GONE_AT * self.passed
    }
}

/// Cuts in a row for loss without a queue that show a policer. A single cut may have any reason.
const CUTS: u32 = 2;
/// Fraction of the window of the last drop below which the losses on a lossy path are the path's.
const BELOW: f64 = 0.95;
/// Multiple of the window that passed at which the policer is gone if there is no loss.
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
