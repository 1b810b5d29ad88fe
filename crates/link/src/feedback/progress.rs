//! How far the packet numbers had come at which time.
//!
//! In: the highest number that has arrived, and when. Out: the highest number at a past time, and the time at which a
//! number was passed. A packet had been sent by the time at which its number was passed; by how much it is late
//! does not matter.

use std::{collections::VecDeque, time::Duration};

use crate::time::Time;

/// The highest numbers of the last while.
#[derive(Debug)]
pub(super) struct Progress {
    steps: VecDeque<Step>,
}

/// One past the highest number that had arrived at a time.
#[derive(Debug, Clone, Copy)]
struct Step {
    at: Time,
    next: u64,
}

/// Steps that are remembered: at 128 a round trip, or 800 a second on a short path, two round trips or 0.3 s.
const STEPS_MAX: usize = 256;

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            steps: VecDeque::with_capacity(STEPS_MAX),
        }
    }

    /// Enters the highest number plus one. Of three steps the last is `apart` or more after the first.
    pub(super) fn advance(&mut self, next: u64, now: Time, apart: Duration) {
        let count = self.steps.len();
        if count >= 2 && now.since(self.steps[count - 2].at) < apart {
            self.steps.pop_back();
        } else if count == STEPS_MAX {
            self.steps.pop_front();
        }
        self.steps.push_back(Step { at: now, next });
    }

    /// One past the highest number that had arrived at `time`, as far back as is remembered: zero if none had.
    pub(super) fn next_at(&self, time: Time) -> u64 {
        match self.steps.partition_point(|step| step.at <= time) {
            0 if self.steps.len() < STEPS_MAX => 0,
            0 => self.steps[0].next,
            later => self.steps[later - 1].next,
        }
    }

    /// When `number` was passed, to the step; `None` before that.
    pub(super) fn passed_at(&self, number: u64) -> Option<Time> {
        let passed = self.steps.partition_point(|step| step.next <= number);
        self.steps.get(passed).map(|step| step.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(1);

    fn at_us(us: u64) -> Time {
        Time(us * 1000)
    }

    #[test]
    fn it_is_exact_to_a_step_and_at_the_end_of_a_burst() {
        let mut progress = Progress::new();
        assert_eq!(progress.next_at(at_us(5)), 0);
        assert_eq!(progress.passed_at(0), None);
        // A packet each 100 us for 5 ms, a pause, and one packet.
        for number in 0..50 {
            progress.advance(number + 1, at_us(number * 100), STEP);
        }
        progress.advance(51, at_us(1_000_000), STEP);
        assert_eq!(progress.next_at(at_us(500_000)), 50);
        assert_eq!(progress.passed_at(50), Some(at_us(1_000_000)));
        for number in 0..50 {
            let passed_us = progress
                .passed_at(number)
                .expect("it was passed")
                .as_micros();
            let us = number * 100;
            assert!((us..=us + 2000).contains(&passed_us), "{us}: {passed_us}");
            let next = progress.next_at(at_us(us));
            assert!(next <= number + 1 && next + 20 >= number, "{us}: {next}");
        }
    }

    #[test]
    fn it_forgets_the_oldest() {
        let mut progress = Progress::new();
        for number in 0..1000 {
            progress.advance(number + 1, at_us(number * 1000), STEP);
        }
        assert_eq!(progress.steps.len(), STEPS_MAX);
        let oldest = progress.steps[0];
        assert_eq!(progress.next_at(at_us(0)), oldest.next);
        assert_eq!(progress.passed_at(0), Some(oldest.at));
    }
}
