//! Minimum and maximum of the values in a sliding time window.
//!
//! The input is values with their times, and the length of the window. The output is the minimum or
//! the maximum of the values in the window. The caller chooses the values and the length.

use std::collections::VecDeque;

/// Minimum over a sliding time window. The window consists of sub-windows that expire one by one.
#[derive(Debug, Default)]
pub(super) struct WindowedMin {
    /// Start time and minimum of each sub-window, oldest first.
    minima: VecDeque<(f64, f64)>,
}

impl WindowedMin {
    pub(super) fn insert(&mut self, value: f64, now_s: f64, window_s: f64) {
        let part_s = window_s / WINDOW_PARTS;
        while self
            .minima
            .front()
            .is_some_and(|(began, _)| now_s - began > window_s)
        {
            self.minima.pop_front();
        }
        match self.minima.back_mut() {
            Some((began, least)) if now_s - *began < part_s => *least = least.min(value),
            _ => self.minima.push_back((now_s, value)),
        }
    }

    pub(super) fn get(&self) -> Option<f64> {
        self.minima.iter().map(|(_, least)| *least).reduce(f64::min)
    }

    pub(super) fn reset(&mut self, value: f64, now_s: f64) {
        self.minima.clear();
        self.minima.push_back((now_s, value));
    }
}

/// Maximum over a sliding time window.
#[derive(Debug, Default)]
pub(super) struct WindowedMax {
    negated: WindowedMin,
}

impl WindowedMax {
    pub(super) fn insert(&mut self, value: f64, now_s: f64, window_s: f64) {
        self.negated.insert(-value, now_s, window_s);
    }

    pub(super) fn get(&self) -> Option<f64> {
        self.negated.get().map(|negated| -negated)
    }
}

/// Returns the length of the time window for the minimum and the maximum values of a path. `base_s`
/// is the base round-trip time of the path.
pub(super) fn path_window_s(base_s: f64) -> f64 {
    PATH_WINDOW_S.max(WINDOW_ROUND_TRIPS * base_s)
}

/// Length of the time window for the minimum and the maximum values of a path, in seconds. The
/// window has at least `WINDOW_ROUND_TRIPS` round trips.
///
/// After a change to a longer route, the old minimum expires within this time. A queue that lasts
/// as long as the window counts as a part of the path's delay.
pub(super) const PATH_WINDOW_S: f64 = 30.0;
pub(super) const WINDOW_ROUND_TRIPS: f64 = 20.0;
/// Number of sub-windows in a time window. A minimum or maximum may therefore expire too early, by
/// up to 7 % of the window.
const WINDOW_PARTS: f64 = 15.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extreme_is_forgotten_when_its_window_is_over_and_not_before() {
        let mut least = WindowedMin::default();
        let mut greatest = WindowedMax::default();
        for second in 0..=30 {
            let value = if second == 0 { 1.0 } else { 2.0 };
            least.insert(value, f64::from(second), 30.0);
            greatest.insert(-value, f64::from(second), 30.0);
        }
        assert_eq!((least.get(), greatest.get()), (Some(1.0), Some(-1.0)));
        least.insert(2.0, 30.1, 30.0);
        greatest.insert(-2.0, 30.1, 30.0);
        assert_eq!((least.get(), greatest.get()), (Some(2.0), Some(-2.0)));
    }

    #[test]
    fn a_reset_leaves_nothing_of_before() {
        let mut least = WindowedMin::default();
        assert_eq!(least.get(), None);
        least.insert(1.0, 0.0, 30.0);
        least.reset(3.0, 1.0);
        assert_eq!(least.get(), Some(3.0));
    }
}
