//! Are there others that fill the queue?
//!
//! In: drains of the queue that succeeded or failed. Out: the verdict, and the window to begin with beside others.
//! What a fair share beside them is, [`Cubic`](super::cubic::Cubic) says.
//!
//! Alone on the path, a sender that drains empties the queue. Others do not make room: the drain fails.

use crate::congestion::knee::Mechanism;
/// How the controller shares with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// As one CUBIC flow would.
    Fair,
    /// Leaves everything to others that want it.
    Background,
}

/// What speaks for company.
#[derive(Debug)]
pub(super) struct Company {
    share: Share,
    /// Up with each drain that failed, down with each that emptied the queue at the first try.
    score: f64,
    /// The window to compete with, in bytes: what passed before the present series of drains.
    window_before: f64,
}

impl Company {
    pub(super) fn new(share: Share) -> Self {
        Self {
            share,
            score: 0.0,
            window_before: 0.0,
        }
    }

    /// Whether everything is left to others.
    pub(super) fn comes_first(&self) -> bool {
        self.share == Share::Background
    }

    /// Drains begin; this window of bytes passed.
    pub(super) fn on_drain(&mut self, window: f64) {
        if self.score < STEP_DOWN {
            self.window_before = window;
        }
    }

    /// The window that passed before the present series of drains, in bytes.
    pub(super) fn window_before(&self) -> f64 {
        self.window_before
    }

    /// A drain has emptied the queue at the first try.
    pub(super) fn on_emptied_queue(&mut self) {
        self.score =
            (self.score - Mechanism::CompanyScore.value(STEP_DOWN, SCORE_OF_COMPANY)).max(0.0);
    }

    /// A drain has not emptied the queue. Returns whether to compete with those who fill it.
    pub(super) fn on_failed_drain(&mut self) -> bool {
        self.score += STEP_UP;
        Mechanism::Compete.acts(self.score >= SCORE_OF_COMPANY && self.share == Share::Fair)
    }

    /// Whether there are others is to be found out anew.
    pub(super) fn forget(&mut self) {
        self.score = 0.0;
    }
}

/// What a failed drain adds to the score of company, and what one that succeeds at the first try takes
/// away. The score rises while more than one drain in three fails. From the latter on a series of failed drains is under
/// way, and the window before it stays remembered.
const STEP_UP: f64 = 1.0;
const STEP_DOWN: f64 = 0.5;
/// From this score on others fill the queue: three failed drains in a row, or as many more as drains
/// that succeed among them outweigh.
const SCORE_OF_COMPANY: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failed_drains_are_company_with_the_window_from_before_them() {
        let mut company = Company::new(Share::Fair);
        company.on_drain(2e6);
        assert!(!company.on_failed_drain());
        company.on_drain(1e6);
        assert!(!company.on_failed_drain());
        assert!(company.on_failed_drain());
        assert_eq!(company.window_before(), 2e6);
        company.forget();
        assert!(!company.on_failed_drain());
    }

    #[test]
    fn drains_that_succeed_speak_against_it() {
        let mut company = Company::new(Share::Fair);
        for _ in 0..20 {
            assert!(!company.on_failed_drain());
            company.on_emptied_queue();
            company.on_emptied_queue();
        }
    }

    #[test]
    fn who_leaves_everything_to_others_never_competes() {
        let mut company = Company::new(Share::Background);
        assert!((0..20).all(|_| !company.on_failed_drain()));
    }
}
