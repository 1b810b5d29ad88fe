//! Packets that overtake the others on their way, and say nothing of the delay that these have.
//!
//! The queueing delay is the present delay above the least one. One packet in a hundred that takes a
//! shorter way, or skips a queue, would make that least one its own, and all others would seem queued.

use std::collections::VecDeque;

/// Tells packets that arrive much earlier than most, as long as they are few.
#[derive(Debug)]
pub(crate) struct Overtakers {
    /// Delays of the newest packets, in seconds.
    recent_s: VecDeque<f64>,
    sorted_s: Vec<f64>,
}

/// Delays that are compared.
const COMPARED: usize = 64;
/// A shorter delay that more than one packet in so many has is the path's.
const OVERTAKERS_EACH: usize = 8;
/// So many quartiles below the median lie a uniform jitter, and a queue that drains.
const SPREAD: f64 = 3.0;

impl Overtakers {
    pub(crate) fn new() -> Self {
        Self {
            recent_s: VecDeque::with_capacity(COMPARED),
            sorted_s: Vec::with_capacity(COMPARED),
        }
    }

    /// Takes in the delays of further packets. Those below the result are overtakers'; a difference
    /// below `least_s` is none.
    pub(crate) fn bound_s(&mut self, delays_s: &[f64], least_s: f64) -> f64 {
        for delay_s in delays_s {
            if self.recent_s.len() == COMPARED {
                self.recent_s.pop_front();
            }
            self.recent_s.push_back(*delay_s);
        }
        self.sorted_s.clear();
        self.sorted_s.extend(&self.recent_s);
        self.sorted_s.sort_unstable_by(f64::total_cmp);
        let len = self.sorted_s.len();
        let (Some(quartile_s), Some(median_s)) =
            (self.sorted_s.get(len / 4), self.sorted_s.get(len / 2))
        else {
            return f64::NEG_INFINITY;
        };
        let bound_s = median_s - (SPREAD * (median_s - quartile_s)).max(least_s);
        let below = self.sorted_s.partition_point(|delay_s| *delay_s < bound_s);
        if below <= (len / OVERTAKERS_EACH).max(1) {
            bound_s
        } else {
            f64::NEG_INFINITY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 2000 packets are told for overtakers, sixteen at a time.
    fn told(delay_s: impl Fn(u32) -> f64) -> usize {
        let mut overtakers = Overtakers::new();
        let mut told = 0;
        for first in (0..2000).step_by(16) {
            let delays_s: Vec<f64> = (first..first + 16).map(&delay_s).collect();
            let bound_s = overtakers.bound_s(&delays_s, 0.001);
            told += delays_s
                .iter()
                .filter(|delay_s| **delay_s < bound_s)
                .count();
        }
        told
    }

    #[test]
    fn one_in_a_hundred_that_skips_the_delay_is_told_from_the_first() {
        assert_eq!(told(|number| if number % 100 == 7 { 0.0 } else { 0.1 }), 20);
    }

    #[test]
    fn where_one_in_five_is_earlier_the_others_are_late() {
        assert_eq!(told(|number| if number % 5 == 0 { 0.0 } else { 0.1 }), 0);
    }

    #[test]
    fn jitter_and_queues_that_drain_are_no_overtaking() {
        assert_eq!(told(|number| f64::from(number * 7919 % 1000) * 5e-6), 0);
        assert_eq!(told(|number| 0.1 - f64::from(number) * 4e-5), 0);
    }

    #[test]
    fn a_shorter_route_is_taken_up_within_sixteen_packets() {
        assert!(told(|number| if number < 1000 { 0.1 } else { 0.05 }) <= 8);
    }
}
