//! Statistics of a numbered stream at its receiver: loss, duplication, reordering and jitter. This
//! module uses no socket and no clock.

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};

/// Collector of the statistics of one stream.
#[derive(Debug)]
pub struct UdpReceiver {
    packets: u64,
    /// Bitmap of the numbers that have arrived.
    seen: Vec<u64>,
    /// Arrival rank and number of each leader. A leader is a packet whose number was the largest at
    /// its arrival. The packets are in the order of arrival, without duplicates.
    leaders: VecDeque<(u64, u64)>,
    leaders_dropped: bool,
    /// Numbers of the packets that arrived last, without duplicates.
    recent: VecDeque<u64>,
    next_expected: u64,
    last_transit_ns: Option<i128>,
    jitter_ns: f64,
    extent_sum: u64,
    report: ReceiverRecord,
}

/// Measurements of the receiver of a UDP test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiverRecord {
    /// Number of packets that arrived, without duplicates.
    pub packets: u64,
    /// Number of duplicates that arrived.
    pub duplicates: u64,
    /// Number of this test's datagrams that had an impossible number.
    pub foreign: u64,
    /// Number of bytes of UDP payload, without duplicates.
    pub bytes: u64,
    /// Time in nanoseconds from the first packet to the last packet. Duplicates are ignored. The
    /// receiver's kernel measures the times.
    pub span_ns: u64,
    /// Payload rate in bits per second: the payload of all packets except the first, divided by the
    /// span.
    pub rate_bits_per_s: f64,
    /// Interarrival jitter at the end of the test, in microseconds (RFC 3550 section 6.4.1).
    pub jitter_us: f64,
    /// Largest interarrival jitter, in microseconds.
    pub jitter_max_us: f64,
    /// Number of packets that arrived after a packet with a larger number (RFC 4737 section 3).
    /// Duplicates are not counted.
    pub reordered: u64,
    /// Largest extent of reordering. The extent of a packet is the number of arrivals since the
    /// first packet with a larger number (RFC 4737 section 4.2).
    pub extent_max: u64,
    /// Mean extent of the reordered packets.
    pub extent_mean: f64,
    /// Whether an extent exceeded the receiver's memory. If so, the true extents may be larger.
    pub extent_is_bounded: bool,
    /// Numbers of n-reordered packets, beginning with n = 1. A packet is n-reordered if the last n
    /// arrivals before it had larger numbers (RFC 4737 section 5). TCP with three duplicate
    /// acknowledgements declares packets with n = 3 lost.
    pub n_reordered: Vec<u64>,
    /// Number of bytes in each [`ReceiverRecord::INTERVAL`] since the first packet, without
    /// duplicates. At most two hours are recorded.
    #[serde(default)]
    pub interval_bytes: Vec<u64>,
    /// Number of datagrams that this machine dropped after arrival because its buffer was full.
    /// `None` if unknown.
    pub dropped_here: Option<u64>,
    #[serde(skip)]
    first_ns: u64,
    #[serde(skip)]
    first_bytes: u64,
}

impl ReceiverRecord {
    /// Length of the intervals in which bytes are counted.
    pub const INTERVAL: Duration = Duration::from_secs(1);
}

impl UdpReceiver {
    /// Creates the receiver of a stream of `packets` datagrams.
    pub fn new(packets: u64) -> Self {
        Self {
            packets,
            seen: Vec::new(),
            leaders: VecDeque::new(),
            leaders_dropped: false,
            recent: VecDeque::new(),
            next_expected: 0,
            last_transit_ns: None,
            jitter_ns: 0.0,
            extent_sum: 0,
            report: ReceiverRecord::default(),
        }
    }

    /// Records the arrival of a packet with `bytes` bytes of UDP payload. The clocks of sender and
    /// receiver may differ.
    pub fn arrive(&mut self, number: u64, sent_ns: u64, received_ns: u64, bytes: u64) {
        if number >= self.packets {
            self.report.foreign += 1;
            return;
        }
        if !self.is_first_copy(number) {
            self.report.duplicates += 1;
            return;
        }
        self.note_jitter(i128::from(received_ns) - i128::from(sent_ns));
        self.note_order(number);
        let report = &mut self.report;
        if report.packets == 0 {
            (report.first_ns, report.first_bytes) = (received_ns, bytes);
        }
        report.packets += 1;
        report.bytes += bytes;
        let since_first_ns = received_ns.saturating_sub(report.first_ns);
        report.span_ns = report.span_ns.max(since_first_ns);
        let interval = (since_first_ns / ReceiverRecord::INTERVAL.as_nanos() as u64) as usize;
        if interval >= report.interval_bytes.len() && interval < INTERVALS_MAX {
            report.interval_bytes.resize(interval + 1, 0);
        }
        if let Some(sum) = report.interval_bytes.get_mut(interval) {
            *sum += bytes;
        }
    }

    /// Returns the measurements so far.
    pub fn report(&self) -> ReceiverRecord {
        let mut report = self.report.clone();
        let bits = (report.bytes - report.first_bytes) as f64 * 8.0;
        if report.span_ns > 0 {
            report.rate_bits_per_s = bits * 1e9 / report.span_ns as f64;
        }
        report.jitter_us = self.jitter_ns / 1e3;
        if report.reordered > 0 {
            report.extent_mean = self.extent_sum as f64 / report.reordered as f64;
        }
        report
    }

    fn is_first_copy(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        let is_first = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_first
    }

    fn note_jitter(&mut self, transit_ns: i128) {
        if let Some(last) = self.last_transit_ns.replace(transit_ns) {
            let difference = (transit_ns - last).unsigned_abs() as f64;
            self.jitter_ns += (difference - self.jitter_ns) / 16.0;
            let jitter_us = self.jitter_ns / 1e3;
            self.report.jitter_max_us = self.report.jitter_max_us.max(jitter_us);
        }
    }

    fn note_order(&mut self, number: u64) {
        let arrival = self.report.packets;
        if number >= self.next_expected {
            self.next_expected = number + 1;
            if self.leaders.len() == LEADERS_MAX {
                self.leaders.pop_front();
                self.leaders_dropped = true;
            }
            self.leaders.push_back((arrival, number));
        } else {
            self.report.reordered += 1;
            // The first packet with a larger number is a leader: it had the largest number at its
            // arrival.
            let first = self.leaders.partition_point(|(_, leader)| *leader < number);
            let extent = arrival - self.leaders[first].0;
            self.report.extent_is_bounded |= first == 0 && self.leaders_dropped;
            self.report.extent_max = self.report.extent_max.max(extent);
            self.extent_sum += extent;
            let larger = self
                .recent
                .iter()
                .rev()
                .take_while(|recent| **recent > number);
            let degree = larger.count();
            if self.report.n_reordered.len() < degree {
                self.report.n_reordered.resize(degree, 0);
            }
            self.report.n_reordered[..degree]
                .iter_mut()
                .for_each(|count| *count += 1);
        }
        if self.recent.len() == DEGREE_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(number);
    }
}

/// Maximum number of leaders (packets with the largest number so far) in memory. At 100,000 packets
/// per second, this number of leaders covers more than half a second.
const LEADERS_MAX: usize = 1 << 16;
/// Maximum memory of a receiver in bytes, without its bitmap.
pub(super) const FIXED_BYTES: u64 = (LEADERS_MAX * 16 + INTERVALS_MAX * 8 + 16 * 1024) as u64;
const INTERVALS_MAX: usize = 7200;
/// Largest n for which n-reordered packets are counted.
const DEGREE_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn received(numbers: &[u64]) -> ReceiverRecord {
        let mut receiver = UdpReceiver::new(1000);
        for (at, number) in numbers.iter().enumerate() {
            receiver.arrive(
                *number,
                number.wrapping_mul(1000),
                at as u64 * 1000 + 50,
                100,
            );
        }
        receiver.report()
    }

    #[test]
    fn reordering_is_that_of_the_standard() {
        // This is an example of RFC 4737. Packet 4 arrives after 5, 6, 7 and 8, so its extent and
        // its degree are 4.
        let report = received(&[1, 2, 3, 5, 6, 7, 8, 4, 9]);
        assert_eq!((report.reordered, report.extent_max), (1, 4));
        assert_eq!(report.n_reordered, [1, 1, 1, 1]);
        // Directly before packet 5, only one packet with a larger number arrived: packet 6. Packet
        // 7 arrived earlier.
        let report = received(&[0, 7, 1, 6, 5]);
        assert_eq!(report.reordered, 3);
        assert_eq!((report.extent_max, report.extent_mean), (3, 2.0));
        assert_eq!(report.n_reordered, [2]);
    }

    #[test]
    fn further_copies_are_not_reordered() {
        let report = received(&[0, 1, 1, 2, 0, 3]);
        assert_eq!(
            (report.packets, report.duplicates, report.reordered),
            (4, 2, 0)
        );
        assert_eq!(report.bytes, 400);
        let report = received(&[0, 1000, u64::MAX]);
        assert_eq!((report.packets, report.foreign), (1, 2));
    }

    #[test]
    fn bytes_are_summed_up_by_the_second() {
        let mut receiver = UdpReceiver::new(100);
        for (number, at_ms) in [
            (0, 500),
            (1, 1499),
            (2, 1500),
            (2, 1501),
            (3, 4000),
            (4, 3999),
        ] {
            receiver.arrive(number, 0, at_ms * 1_000_000, 10);
        }
        assert_eq!(receiver.report().interval_bytes, [20, 10, 0, 20]);
        // A jump of the clock must not add any number of intervals to the list.
        receiver.arrive(5, 0, u64::MAX, 10);
        assert_eq!(receiver.report().interval_bytes.len(), 4);
    }

    #[test]
    fn jitter_ignores_how_far_the_clocks_are_apart() {
        let mut receiver = UdpReceiver::new(100);
        for number in 0..100 {
            receiver.arrive(number, number * 1_000_000, 5 + number * 1_000_000, 10);
        }
        let report = receiver.report();
        assert_eq!(report.jitter_us, 0.0);
        assert_eq!(report.span_ns, 99_000_000);
        assert!((report.rate_bits_per_s - 80_000.0).abs() < 1e-6);
        // Every second packet is 160 us late. The filter with the factor 1/16 converges to this
        // difference.
        let mut receiver = UdpReceiver::new(1000);
        for number in 0..1000 {
            let late = (number % 2) * 160_000;
            receiver.arrive(number, number * 1_000_000, number * 1_000_000 + late, 10);
        }
        assert!((receiver.report().jitter_us - 160.0).abs() < 0.1);
    }

    proptest! {
        #[test]
        fn any_stream_is_what_a_naive_recount_says(
            numbers in proptest::collection::vec(0u64..60, 0..120),
        ) {
            let report = received(&numbers);
            let mut firsts: Vec<u64> = Vec::new();
            for number in &numbers {
                if !firsts.contains(number) {
                    firsts.push(*number);
                }
            }
            prop_assert_eq!(report.packets, firsts.len() as u64);
            prop_assert_eq!(report.duplicates, (numbers.len() - firsts.len()) as u64);
            let (mut reordered, mut extents, mut degrees) = (0, Vec::new(), Vec::new());
            for (i, number) in firsts.iter().enumerate() {
                let Some(j) = firsts[..i].iter().position(|other| other > number) else {
                    continue;
                };
                reordered += 1;
                extents.push((i - j) as u64);
                degrees.push(firsts[..i].iter().rev().take_while(|o| *o > number).count());
            }
            prop_assert_eq!(report.reordered, reordered);
            prop_assert_eq!(report.extent_max, extents.iter().copied().max().unwrap_or(0));
            for (at, count) in report.n_reordered.iter().enumerate() {
                let naive = degrees.iter().filter(|degree| **degree > at).count() as u64;
                prop_assert_eq!(*count, naive);
            }
        }
    }
}
