//! Is there a limit that drops instead of queueing, as a policer does, and what does it pass?
//!
//! In: cuts for loss, and signals of another kind. Out: CUBIC's law for the window, once there is such a limit.
//! It outlives the mode [`policed`](super::mode): at such a limit each cut is tested like any other.
//!
//! Nothing but loss shows such a limit, and TCP flows that share it halve their rate on a single loss. A law
//! that waits for a certain fraction to be lost would take all of the limit from them. So from the
//! second cut in a row for loss without a queue on, the controller yields as CUBIC does.

use super::{cubic::Cubic, floor::Floor};
use crate::congestion::knee::Mechanism;

/// What speaks for a limit that drops instead of queueing.
#[derive(Debug, Default)]
pub(super) struct Limit {
    /// Cuts for loss without a queue since the last signal of another kind.
    cuts: u32,
    /// The largest window that passed when the limit dropped, in bytes.
    passed: f64,
    /// CUBIC's law, once enough such cuts have shown the limit.
    law: Option<Cubic>,
}

impl Limit {
    /// A signal of another kind than loss without a queue came.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// A cut is due for loss without a queue, where the window `passed` passes. Returns the window after the cut by
    /// CUBIC's law, if that is known to rule.
    pub(super) fn cut(&mut self, passed: f64, floor: &Floor, now_s: f64) -> Option<f64> {
        if Mechanism::BurstyLimit.acts(floor.is_bursty()) {
            self.forget();
            return None;
        }
        self.cuts += 1;
        self.passed = self.passed.max(passed);
        let is_first = Mechanism::SecondCut.acts(self.cuts < CUTS);
        if !Mechanism::Policed.acts(!is_first) {
            return None;
        }
        let law = self.law.get_or_insert_with(|| Cubic::new(passed, now_s));
        Some(if !Mechanism::LossyCut.acts(!floor.is_path_clean()) {
            law.cut(passed, now_s)
        } else {
            law.cut_lossy(passed, now_s)
        })
    }

    /// CUBIC's law, if there is such a limit.
    pub(super) fn law(&mut self) -> Option<&mut Cubic> {
        self.law.as_mut()
    }

    pub(super) fn is_known(&self) -> bool {
        self.law.is_some()
    }

    /// Whether the limit drops nothing of this window: what is lost there on a lossy path is the path's.
    pub(super) fn passes(&self, window: f64) -> bool {
        let dropped = self.law.map_or(0.0, |law| law.window_max());
        window < BELOW * dropped
    }

    /// The window at which, without a loss, the limit is gone; in bytes.
    pub(super) fn gone_at(&self) -> f64 {
        GONE_AT * self.passed
    }
}

/// This many cuts in a row for loss without a queue mean such a limit; one may be anything.
const CUTS: u32 = 2;
/// Below this fraction of where it dropped, what is lost on a lossy path is the path's.
const BELOW: f64 = 0.95;
/// This far beyond where it dropped and still no loss: the limit is gone.
const GONE_AT: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::knee::resolved_at;

    #[test]
    fn the_second_cut_in_a_row_is_cubic_s() {
        let floor = Floor::new(None);
        let mut limit = Limit::default();
        assert_eq!(limit.cut(1e6, &floor, 1.0), None);
        assert_eq!(limit.cut(1e6, &floor, 2.0), Some(0.85e6), "a lossy path's");
        assert!(limit.is_known() && limit.passes(0.8e6) && !limit.passes(0.99e6));
        assert_eq!(limit.gone_at(), 1.5e6);
        limit.forget();
        assert_eq!(limit.cut(1e6, &floor, 3.0), None);
    }

    #[test]
    fn bursts_come_from_no_such_limit() {
        let mut floor = Floor::new(None);
        let mut limit = Limit::default();
        limit.cut(1e6, &floor, 1.0);
        floor.update(&resolved_at(2.0, 4000, |number| number % 100 < 30), &[]);
        assert_eq!(limit.cut(1e6, &floor, 3.0), None);
        assert!(!limit.is_known());
    }
}
