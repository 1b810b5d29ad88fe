//! Detection of overtaking packets, which take a shorter route than the others, or skip a queue.
//!
//! The input is one-way delays, or round-trip times, in the order of arrival. The output states
//! whether a packet overtook others.
//!
//! Queueing delay is the present delay less the minimum. If one packet in a hundred overtakes, the
//! minimum is the delay of the overtaking packets, and all other packets seem to be queued.

use std::collections::VecDeque;

/// Detector of packets with a shorter delay than the path's, as long as such packets are few.
#[derive(Debug)]
pub(crate) struct OvertakingDetector {
    /// Delays of the newest packets, in seconds.
    recent_s: VecDeque<f64>,
    /// Time for which early packets have been more than a few.
    early_period: Option<EarlyPeriod>,
    /// Early packets in a row, without others between them.
    early_run: Option<EarlyRun>,
    /// Arrival of the previous packet.
    before_s: f64,
}

/// Duration of a period with many early packets, and their number.
#[derive(Debug, Clone, Copy, Default)]
struct EarlyPeriod {
    lasts_s: f64,
    packets: usize,
}

/// Early packets in a row.
#[derive(Debug, Clone, Copy)]
struct EarlyRun {
    packets: usize,
    /// Arrival of the last of the first [`RUN_MIN`] packets.
    full_s: f64,
}

impl EarlyRun {
    /// Adds a packet. Packets that reports repeat do not count again.
    fn extend(&mut self, at_s: f64) {
        if self.packets < RUN_MIN && at_s > self.full_s {
            self.packets += 1;
            self.full_s = at_s;
        }
    }

    /// Whether the run is too long for overtaking packets, which are early by `early_s`.
    ///
    /// The overtaken packets would have arrived by then. The duration of the run is no evidence:
    /// for most of it perhaps no other packets were sent.
    fn is_the_path(&self, at_s: f64, early_s: f64) -> bool {
        self.packets == RUN_MIN && at_s - self.full_s > RUN_LASTS * early_s
    }
}

impl EarlyPeriod {
    /// Adds a packet that arrived `gap_s` after the previous one.
    fn extend(&mut self, gap_s: f64) {
        if self.packets > 0 {
            self.lasts_s += gap_s;
        }
        self.packets += 1;
    }
}

/// Number of compared delays.
const COMPARED: usize = 64;
/// Fewest delays that permit a judgement about an unknown path.
const COMPARED_MIN: usize = 16;
/// Least fraction, one in this many, of packets with a shorter delay for that delay to be the
/// path's. If one packet in ten overtakes in each direction, one round-trip time in five is
/// shorter.
const OVERTAKERS_EACH: usize = 3;
/// Multiple of the early time after which early packets without others define the path's delay.
///
/// After a pause overtaking packets arrive first, and alone for as long as they are early. The rule
/// also needs [`COMPARED`] packets.
const ALONE_MAX: f64 = 2.0;
/// Largest counted part of a pause, as a fraction of the time by which packets are early.
///
/// The overtaken packets may be in flight meanwhile, and the overtaking packets of the next burst
/// arrive before its other packets.
const PAUSE_PART: f64 = 0.5;
/// Packets in a row that are too many to overtake. If one packet in three overtakes, such a row
/// occurs once in 40 million packets.
const RUN_MIN: usize = 16;
/// Multiple of the early time for which only early packets must arrive after that. The overtaken
/// packets arrive within it.
const RUN_LASTS: f64 = 1.25;

impl OvertakingDetector {
    pub(crate) fn new() -> Self {
        Self {
            recent_s: VecDeque::with_capacity(COMPARED),
            early_period: None,
            early_run: None,
            before_s: f64::NEG_INFINITY,
        }
    }

    /// Adds the delay of a packet that arrived at `at_s`, and returns whether the packet overtook
    /// others.
    ///
    /// `base_s` is the minimum delay of the path, if it is known. A difference below `least_s` does
    /// not count.
    pub(crate) fn is_overtaking(
        &mut self,
        delay_s: f64,
        at_s: f64,
        base_s: Option<f64>,
        least_s: f64,
    ) -> bool {
        if self.recent_s.len() == COMPARED {
            self.recent_s.pop_front();
        }
        self.recent_s.push_back(delay_s);
        let Some(base_s) = base_s.or_else(|| self.median_s()) else {
            return true;
        };
        let is_early = |delay_s: f64| delay_s < base_s - least_s;
        let early_s = base_s - delay_s;
        let gap_s = (at_s - self.before_s).clamp(0.0, PAUSE_PART * early_s.max(0.0));
        // Reports repeat some packets.
        self.before_s = self.before_s.max(at_s);
        if is_early(delay_s) {
            let row = self.early_run.get_or_insert(EarlyRun {
                packets: 0,
                full_s: f64::NEG_INFINITY,
            });
            row.extend(at_s);
            // These packets show that a queue has drained. Overtaking packets have others between
            // them once the overtaken packets arrive.
            if row.is_the_path(at_s, early_s) {
                return false;
            }
        } else {
            self.early_run = None;
        }
        let earlier = self.recent_s.iter().filter(|delay_s| is_early(**delay_s));
        if earlier.count() < (self.recent_s.len() / OVERTAKERS_EACH).max(2) {
            self.early_period = None;
            return is_early(delay_s);
        }
        let many = self.early_period.get_or_insert_default();
        many.extend(gap_s);
        let is_young = many.lasts_s < ALONE_MAX * early_s;
        is_early(delay_s) && (is_young || many.packets < COMPARED)
    }

    fn median_s(&self) -> Option<f64> {
        let mut sorted_s: Vec<f64> = self.recent_s.iter().copied().collect();
        sorted_s.sort_unstable_by(f64::total_cmp);
        (sorted_s.len() >= COMPARED_MIN).then(|| sorted_s[sorted_s.len() / 2])
    }
}

/// First samples of a path. The very first may have overtaken the others.
#[derive(Debug, Default)]
pub(crate) struct FirstSamples {
    sorted_s: Vec<f64>,
}

impl FirstSamples {
    /// Returns a value as if the first samples had arrived long ago.
    #[cfg(test)]
    pub(crate) fn over() -> Self {
        Self {
            sorted_s: vec![0.0; COMPARED_MIN],
        }
    }

    /// Whether enough samples have arrived.
    pub(crate) fn is_over(&self) -> bool {
        self.sorted_s.len() == COMPARED_MIN
    }

    /// Adds a sample. Returns the base while the samples are the first ones.
    ///
    /// The base is the median. It is close to the least sample if packets of ours that wait in a
    /// queue for `queue_max_s` explain the difference.
    pub(crate) fn base_with(&mut self, sample_s: f64, queue_max_s: f64) -> Option<f64> {
        if self.is_over() {
            return None;
        }
        let place = self.sorted_s.partition_point(|other_s| *other_s < sample_s);
        self.sorted_s.insert(place, sample_s);
        let count = self.sorted_s.len();
        // The least sample may belong to an overtaking packet.
        let least_s = self.sorted_s[usize::from(count > 1)];
        let median_s = self.sorted_s[count / 2];
        let is_ours = median_s - least_s <= queue_max_s;
        Some(if is_ours { least_s } else { median_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of 4000 packets, one each 100 us, are detected as overtaking, if the others
    /// make the base. The first sixteen cannot be distinguished yet.
    fn detected(delay_s: impl Fn(u32) -> f64) -> Vec<u32> {
        let mut detector = OvertakingDetector::new();
        let mut base_s = None;
        let mut detected = Vec::new();
        let sent_s = |number: u32| f64::from(number) * 1e-4 + if number < 2000 { 0.0 } else { 1.0 };
        let mut packets: Vec<u32> = (0..4000).collect();
        packets.sort_by(|a, b| (sent_s(*a) + delay_s(*a)).total_cmp(&(sent_s(*b) + delay_s(*b))));
        for number in packets {
            let delay_s = delay_s(number);
            if detector.is_overtaking(delay_s, sent_s(number) + delay_s, base_s, 0.001) {
                detected.push(number);
            } else {
                base_s = Some(base_s.map_or(delay_s, |least: f64| least.min(delay_s)));
            }
        }
        detected
    }

    /// Every hundredth packet skips the delay.
    fn skips(number: u32) -> bool {
        number % 100 == 7
    }

    #[test]
    fn one_early_packet_in_a_hundred_is_detected_also_after_a_pause() {
        let detected = detected(|number| if skips(number) { 0.0 } else { 0.1 });
        assert_eq!(detected.iter().filter(|number| skips(**number)).count(), 40);
        assert!(detected.len() < 40 + COMPARED_MIN);
    }

    #[test]
    fn a_queue_that_grows_and_drains_hides_no_overtaking_packet() {
        let queue_s = |number: u32| f64::from(number % 500) * 1e-4;
        let detected = detected(|number| queue_s(number) + if skips(number) { 0.0 } else { 0.1 });
        assert_eq!(detected.iter().filter(|number| skips(**number)).count(), 40);
    }

    /// Lone early packets, pauses, and a burst whose overtaking packets arrive before the others.
    #[test]
    fn overtakers_of_a_burst_after_pauses_are_not_the_path() {
        let mut detector = OvertakingDetector::new();
        let mut is_overtaking = |sent_s: f64, delay_s: f64| {
            detector.is_overtaking(delay_s, sent_s + delay_s, Some(0.09), 0.01)
        };
        for number in 0..64 {
            assert!(!is_overtaking(f64::from(number) * 0.001, 0.09));
        }
        for sent_s in [1.0, 1.044] {
            assert!(is_overtaking(sent_s, 0.045));
        }
        // One packet in ten overtakes in a burst that lasts as long as they are early.
        for number in 0..30 {
            assert!(
                is_overtaking(1.072 + f64::from(number) * 0.0015, 0.045),
                "{number}"
            );
        }
        assert!(!is_overtaking(1.072, 0.09));
    }

    #[test]
    fn where_one_in_five_is_earlier_the_others_are_late() {
        let detected = detected(|number| if number % 5 == 4 { 0.0 } else { 0.1 });
        assert!(!detected.is_empty());
        assert!(
            detected.iter().all(|number| *number < 2000),
            "within a fifth of a second"
        );
    }

    #[test]
    fn the_first_sample_of_all_does_not_make_the_base() {
        let mut first = FirstSamples::default();
        assert_eq!(first.base_with(0.0, 0.0), Some(0.0), "there is no other");
        for _ in 2..=COMPARED_MIN {
            assert_eq!(first.base_with(0.1, 0.0), Some(0.1));
        }
        assert_eq!(first.base_with(0.1, 0.0), None);
    }

    #[test]
    fn jitter_and_queues_that_drain_are_no_overtaking() {
        // The first packets cannot be distinguished yet, and jitter shows its least delay only
        // gradually.
        assert!(detected(|number| f64::from(number * 7919 % 1000) * 5e-6).len() < 2 * COMPARED_MIN);
        assert!(detected(|number| 0.5 - f64::from(number) * 4e-5).len() < COMPARED_MIN);
    }

    #[test]
    fn a_shorter_route_is_taken_up_when_its_packets_have_come_alone_for_long_enough() {
        let detected = detected(|number| if number < 3000 { 0.1 } else { 0.05 });
        assert!(detected.len() > 1000, "twice as long as they are early");
        assert!(
            detected.iter().all(|number| *number < 3000 + 1000 + 16),
            "{detected:?}"
        );
    }
}
