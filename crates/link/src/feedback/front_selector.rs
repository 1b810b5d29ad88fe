//! Selection of a recently arrived packet whose delay is typical of the path.
//!
//! The input is packet numbers with their receive times. The output is one packet, the *front*. The
//! sender measures rates and queues with fronts.
//!
//! Jitter or another route may delay or speed up single packets. Such a packet would distort the
//! measurements. On some paths, many packets are delayed or sped up.

use std::{collections::VecDeque, time::Duration};

use crate::wire::report::ArrivalSample;

/// Most recently arrived packets.
#[derive(Debug)]
pub(super) struct FrontSelector {
    recent: VecDeque<ArrivalSample>,
}

/// Maximum number of arrivals that are compared.
const COMPARED_MAX: usize = 256;
/// Divisor of the number of compared arrivals. The quotient is the number of packets that may have
/// overtaken other packets.
const OVERTAKERS_EACH: usize = 16;

impl FrontSelector {
    pub(super) fn new() -> Self {
        Self {
            recent: VecDeque::with_capacity(COMPARED_MAX),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    pub(super) fn push(&mut self, arrival: ArrivalSample) {
        if self.recent.len() == COMPARED_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(arrival);
    }

    /// Returns the front, and the number of arrivals that were compared. Returns `None` if no
    /// packet has arrived.
    ///
    /// The function compares the arrivals of the last eighth of a round trip. It excludes the few
    /// highest packet numbers, since those packets may have overtaken others. The front is the
    /// packet with the highest remaining number.
    ///
    /// A late packet has a low number, so it never becomes the front. Jitter hardly matters, since
    /// the packets with the shortest delay have the highest numbers.
    pub(super) fn choose(&self, rtt: Duration) -> Option<(ArrivalSample, usize)> {
        let newest_us = self.recent.back()?.time_us;
        let since_us = newest_us.saturating_sub(rtt.as_micros() as u64 / 8);
        let older = self
            .recent
            .partition_point(|arrival| arrival.time_us < since_us);
        let count = self.recent.len() - older;
        let overtakers = match count {
            // There are too few arrivals to exclude any packet. The sender can still recognise an
            // overtaking packet.
            0..4 => 0,
            _ => count.div_ceil(OVERTAKERS_EACH),
        };
        // The highest numbers found so far, in descending order.
        let mut highest = [ArrivalSample::default(); COMPARED_MAX / OVERTAKERS_EACH + 1];
        let highest = &mut highest[..=overtakers];
        let mut found = 0;
        // Numbers below `from` are not among the highest. If packets arrive in order, all but the
        // first few compared numbers are below `from`.
        let mut from = 0;
        let (oldest, latest) = self.recent.as_slices();
        let parts = [
            &latest[older.saturating_sub(oldest.len())..],
            &oldest[older.min(oldest.len())..],
        ];
        for part in parts {
            for arrival in part.iter().rev() {
                if arrival.number < from {
                    continue;
                }
                let at = highest.partition_point(|higher| higher.number > arrival.number);
                if at <= overtakers {
                    // If packets arrive in order, `highest` contains no lower number.
                    let end = found.min(overtakers);
                    if at < end {
                        highest.copy_within(at..end, at + 1);
                    }
                    highest[at] = *arrival;
                }
                found += 1;
                if found > overtakers {
                    from = highest[overtakers].number + 1;
                }
            }
        }
        Some((highest[overtakers], count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    /// Returns the delays of the selected packets in microseconds. The sender sends one packet each
    /// 12 us for 60 ms.
    fn chosen_us(delay_us: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut front = FrontSelector::new();
        let mut arrivals: Vec<ArrivalSample> = (0..5000)
            .map(|number| ArrivalSample {
                number,
                time_us: number * 12 + delay_us(number),
            })
            .collect();
        arrivals.sort_by_key(|arrival| arrival.time_us);
        let mut chosen_us = Vec::new();
        for arrival in arrivals {
            front.push(arrival);
            let (chosen, _) = front.choose(RTT).expect("one has arrived");
            chosen_us.push(chosen.time_us - chosen.number * 12);
        }
        chosen_us
    }

    #[test]
    fn packets_in_order_are_chosen_a_few_late() {
        assert!(chosen_us(|_| 10_000).iter().all(|us| *us == 10_000));
        let mut front = FrontSelector::new();
        for number in 0..1000 {
            front.push(ArrivalSample {
                number,
                time_us: number * 12,
            });
            let (chosen, _) = front.choose(RTT).expect("one has arrived");
            assert!(number - chosen.number <= 16);
        }
    }

    #[test]
    fn the_few_that_skip_the_delay_are_not_chosen_among_others() {
        let chosen_us = chosen_us(|number| if number % 100 == 7 { 0 } else { 10_000 });
        // The overtaking packets arrive first, without other packets.
        assert!(chosen_us[100..].iter().all(|us| *us == 10_000));
    }

    #[test]
    fn late_ones_are_not_chosen_however_many_while_others_arrive() {
        let chosen_us = chosen_us(|number| if number % 5 == 0 { 10_000 } else { 40_000 });
        let others = chosen_us.iter().filter(|us| **us == 10_000).count();
        // At the end, only late packets arrive.
        assert!(others > 2500, "{others}");
        assert!(chosen_us[100..2600].iter().all(|us| *us == 10_000));
    }

    #[test]
    fn of_jitter_little_is_left() {
        let chosen_us = chosen_us(|number| number * 7919 % 10_000);
        let settled = &chosen_us[500..4000];
        let most = settled.iter().max().expect("some were chosen");
        assert!(*most < 2000, "{most} of 10000 us");
    }
}
