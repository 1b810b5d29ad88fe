//! History of the highest packet number that has arrived.
//!
//! The input is the highest number and its time. The first output is the highest number at a past
//! time. The second output is the time at which the highest number reached a given number.
//!
//! When the highest number reached a given number, the packet with that number had certainly been
//! sent. This packet may arrive later.

use std::{collections::VecDeque, time::Duration};

use crate::time::Time;

/// Highest packet numbers of the recent past.
#[derive(Debug)]
pub(super) struct HighestNumbers {
    steps: VecDeque<NumberStep>,
    /// Number of steps that have been removed.
    forgotten: usize,
}

/// Result position of the previous search. The next search usually has a slightly later time, and
/// starts at this position.
#[derive(Debug, Default)]
pub(super) struct SearchCursor {
    /// Index of the step among all steps, including removed steps.
    step: usize,
}

/// Step of the history: a time, and the highest packet number at that time, plus one.
#[derive(Debug, Clone, Copy)]
struct NumberStep {
    at: Time,
    next: u64,
}

/// Maximum number of stored steps. With 128 steps per round trip, the history covers two round
/// trips. On a short path, with 800 steps per second, it covers 0.3 s.
const STEPS_MAX: usize = 256;

impl HighestNumbers {
    pub(super) fn new() -> Self {
        Self {
            steps: VecDeque::with_capacity(STEPS_MAX),
            forgotten: 0,
        }
    }

    /// Adds the highest packet number plus one. The function replaces the last step if the
    /// second-to-last step is less than `apart` old.
    pub(super) fn advance(&mut self, next: u64, now: Time, apart: Duration) {
        let count = self.steps.len();
        if count >= 2 && now.since(self.steps[count - 2].at) < apart {
            self.steps.pop_back();
        } else if count == STEPS_MAX {
            self.steps.pop_front();
            self.forgotten += 1;
        }
        self.steps.push_back(NumberStep { at: now, next });
    }

    /// Returns the highest packet number plus one at `time`. Returns zero if no packet had arrived
    /// at that time.
    ///
    /// If the history does not reach back to `time`, the function returns the value of the oldest
    /// step.
    pub(super) fn next_at(&self, time: Time, cursor: &mut SearchCursor) -> u64 {
        let later = self.later_than(time, cursor.step.wrapping_sub(self.forgotten));
        cursor.step = later + self.forgotten;
        match later {
            0 if self.steps.len() < STEPS_MAX => 0,
            0 => self.steps[0].next,
            later => self.steps[later - 1].next,
        }
    }

    /// Returns the position of the first step later than `time`. The function first tries the
    /// positions `guess` and `guess + 1`.
    fn later_than(&self, time: Time, guess: usize) -> usize {
        let is_later = |place: usize| self.steps.get(place).is_none_or(|step| step.at > time);
        for place in [guess, guess.wrapping_add(1)] {
            let is_first = place == 0 || !is_later(place.wrapping_sub(1));
            if place <= self.steps.len() && is_first && is_later(place) {
                return place;
            }
        }
        self.steps.partition_point(|step| step.at <= time)
    }

    /// Returns the time at which the highest packet number reached `number`, with the precision of
    /// the stored steps. Returns `None` if that has not happened yet.
    pub(super) fn passed_at(&self, number: u64) -> Option<Time> {
        let last = self.steps.len().checked_sub(1)?;
        // For the newest packet, the result is the last step.
        let is_last = last > 0 && self.steps[last - 1].next <= number;
        let passed = match is_last && number < self.steps[last].next {
            true => last,
            false => self.steps.partition_point(|step| step.next <= number),
        };
        self.steps.get(passed).map(|step| step.at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the result of a search without a stored position.
    fn next_at(progress: &HighestNumbers, time: Time) -> u64 {
        progress.next_at(time, &mut SearchCursor::default())
    }

    proptest! {
        /// The times of the searches move forward and back. Pauses and overtaking packets cause
        /// such times.
        #[test]
        fn a_search_finds_the_same_wherever_it_begins(
            arrivals in prop::collection::vec((0..3_000_u64, 1..40_u64, 0..200_000_u64), 1..1000),
        ) {
            let mut progress = HighestNumbers::new();
            let mut cursor = SearchCursor::default();
            let (mut now_us, mut next) = (0, 0);
            for (pause_us, packets, back_us) in arrivals {
                now_us += pause_us;
                next += packets;
                progress.advance(next, at_us(now_us), STEP);
                let time = at_us(now_us.saturating_sub(back_us));
                let steps = &progress.steps;
                let is_passed = |step: &&NumberStep| step.at <= time;
                let passed = steps.iter().rfind(is_passed).map(|step| step.next);
                let least = if steps.len() < STEPS_MAX { 0 } else { steps[0].next };
                prop_assert_eq!(progress.next_at(time, &mut cursor), passed.unwrap_or(least));
                for number in [next - 1, next - packets, next.saturating_sub(back_us), next] {
                    let first = steps.iter().find(|step| step.next > number);
                    prop_assert_eq!(progress.passed_at(number), first.map(|step| step.at));
                }
            }
        }
    }

    const STEP: Duration = Duration::from_millis(1);

    fn at_us(us: u64) -> Time {
        Time(us * 1000)
    }

    #[test]
    fn it_is_exact_to_a_step_and_at_the_end_of_a_burst() {
        let mut progress = HighestNumbers::new();
        assert_eq!(next_at(&progress, at_us(5)), 0);
        assert_eq!(progress.passed_at(0), None);
        // A packet each 100 us for 5 ms, a pause, and one packet.
        for number in 0..50 {
            progress.advance(number + 1, at_us(number * 100), STEP);
        }
        progress.advance(51, at_us(1_000_000), STEP);
        assert_eq!(next_at(&progress, at_us(500_000)), 50);
        assert_eq!(progress.passed_at(50), Some(at_us(1_000_000)));
        for number in 0..50 {
            let passed_us = progress
                .passed_at(number)
                .expect("it was passed")
                .as_micros();
            let us = number * 100;
            assert!((us..=us + 2000).contains(&passed_us), "{us}: {passed_us}");
            let next = next_at(&progress, at_us(us));
            assert!(next <= number + 1 && next + 20 >= number, "{us}: {next}");
        }
    }

    #[test]
    fn it_forgets_the_oldest() {
        let mut progress = HighestNumbers::new();
        for number in 0..1000 {
            progress.advance(number + 1, at_us(number * 1000), STEP);
        }
        assert_eq!(progress.steps.len(), STEPS_MAX);
        let oldest = progress.steps[0];
        assert_eq!(next_at(&progress, at_us(0)), oldest.next);
        assert_eq!(progress.passed_at(0), Some(oldest.at));
    }
}
