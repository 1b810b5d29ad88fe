//! Detection of overtaking packets. Such packets take a shorter route than other packets, or skip a
//! queue.
//!
//! The input is one-way delays or round-trip times in the order of arrival. The output states
//! whether a packet overtook others.
//!
//! Queueing delay is the present delay minus the minimum delay. If one packet in a hundred
//! overtakes, the minimum comes from the overtaking packets. All other packets would then seem to
//! wait in a queue.

use std::collections::VecDeque;

/// Detector of packets that are faster than the path's usual delay. Fast packets count as
/// overtaking only while they are a minority.
#[derive(Debug)]
pub(crate) struct OvertakingDetector {
    /// Delays of the newest packets, in seconds.
    recent_s: VecDeque<f64>,
    /// Present period in which more than a few packets are early. `None` outside such a period.
    early_period: Option<EarlyPeriod>,
    /// Present run of consecutive early packets. `None` if the last packet was not early.
    early_run: Option<EarlyRun>,
    /// Arrival time of the previous packet, in seconds.
    before_s: f64,
}

/// Period in which more than a few packets are early: its duration and its number of packets.
#[derive(Debug, Clone, Copy, Default)]
struct EarlyPeriod {
    lasts_s: f64,
    packets: usize,
}

/// Run of consecutive early packets.
#[derive(Debug, Clone, Copy)]
struct EarlyRun {
    packets: usize,
    /// Arrival time of the newest counted packet of the run. At most [`RUN_MIN`] packets are
    /// counted.
    full_s: f64,
}

impl EarlyRun {
    /// Adds a packet to the run. A packet counts only once, even if several reports contain it.
    fn extend(&mut self, at_s: f64) {
        if self.packets < RUN_MIN && at_s > self.full_s {
            self.packets += 1;
            self.full_s = at_s;
        }
    }

    /// Whether the run is too long to consist of overtaking packets. The packets are early by
    /// `early_s` seconds.
    ///
    /// If the packets had overtaken others, the overtaken packets would have arrived by now. The
    /// duration of the whole run does not count, because the sender may have paused during the run.
    fn is_the_path(&self, at_s: f64, early_s: f64) -> bool {
        self.packets == RUN_MIN && at_s - self.full_s > RUN_LASTS * early_s
    }
}

impl EarlyPeriod {
    /// Adds a packet to the period. The packet arrived `gap_s` seconds after the previous packet.
    fn extend(&mut self, gap_s: f64) {
        if self.packets > 0 {
            self.lasts_s += gap_s;
        }
        self.packets += 1;
    }
}

/// Number of recent delays that are compared.
const COMPARED: usize = 64;
/// Minimum number of delays that a result needs if the base delay of the path is unknown.
const COMPARED_MIN: usize = 16;
/// Divisor of the number of compared packets. If the number of early packets reaches the quotient,
/// the shorter delay may be the delay of the path ([`ALONE_MAX`]).
///
/// If one packet in ten overtakes in each direction, one round-trip time in five is shorter. Such a
/// path must stay below the limit.
const OVERTAKERS_EACH: usize = 3;
/// Factor of a duration. The duration is this factor times the time that an early packet saves. If
/// more than a few packets are early for at least this duration, their delay counts as the delay of
/// the path.
///
/// After a pause, only overtaking packets arrive at first. These arrivals last as long as the time
/// that an early packet saves. The rule therefore also requires at least [`COMPARED`] packets.
const ALONE_MAX: f64 = 2.0;
/// Limit on the counted part of a gap between two packets, as a fraction of the time that an early
/// packet saves.
///
/// During a gap the overtaken packets may still be in flight. The overtaking packets of the next
/// burst arrive before the other packets of that burst.
const PAUSE_PART: f64 = 0.5;
/// Length of a run of early packets that overtaking packets hardly ever reach. If one packet in
/// three overtakes, a run of this length occurs once in 40 million packets.
const RUN_MIN: usize = 16;
/// Factor of a duration. The duration is this factor times the time that an early packet saves. If
/// only early packets arrive for longer than this duration after a run of [`RUN_MIN`] early
/// packets, they have not overtaken others. Overtaken packets would have arrived within this
/// duration.
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

    /// Adds the delay of a packet that arrived at `at_s`. Returns whether the packet overtook
    /// others.
    ///
    /// `base_s` is the base delay of the path, if it is known. A packet is early if its delay is
    /// shorter than the base delay by more than `least_s`. If `base_s` is `None`, the base delay is
    /// the median of the recent delays. In that case, the first [`COMPARED_MIN`] - 1 packets count
    /// as overtaking.
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
        // Reports may contain a packet again, so `at_s` may be earlier than `before_s`.
        self.before_s = self.before_s.max(at_s);
        if is_early(delay_s) {
            let row = self.early_run.get_or_insert(EarlyRun {
                packets: 0,
                full_s: f64::NEG_INFINITY,
            });
            row.extend(at_s);
            // These packets show that a queue has drained. If they had overtaken others, the
            // overtaken packets would have arrived between them by now.
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

/// First round-trip time samples of a path. The very first sample may come from an overtaking
/// packet.
#[derive(Debug, Default)]
pub(crate) struct FirstSamples {
    sorted_s: Vec<f64>,
}

impl FirstSamples {
    /// Returns the state in which all first samples have arrived.
    #[cfg(test)]
    pub(crate) fn over() -> Self {
        Self {
            sorted_s: vec![0.0; COMPARED_MIN],
        }
    }

    /// Whether all first samples have arrived.
    pub(crate) fn is_over(&self) -> bool {
        self.sorted_s.len() == COMPARED_MIN
    }

    /// Adds a sample. Returns the base round-trip time from the first samples. Returns `None` once
    /// there are enough samples.
    ///
    /// The base is the median or the second shortest of the samples. The second shortest sample is
    /// used if it differs from the median by at most `queue_max_s`. A queue of this sender's own
    /// packets explains such a difference.
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

    /// Returns the packets that are detected as overtaking, among 4000 packets. The sender sends
    /// one packet each 100 us.
    ///
    /// Packets that are not detected define the base delay. The first 15 packets are always
    /// detected, because no base delay is known.
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

    /// Whether the packet overtakes others: one packet in a hundred has no delay.
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

    /// The test has single early packets, pauses, and a burst whose overtaking packets arrive
    /// before the other packets.
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
        // One packet in ten of a burst overtakes. The burst lasts as long as the time that these
        // packets save.
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
        // The first packets cannot be distinguished yet. With jitter, a packet with almost the
        // least delay arrives only after a while.
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
