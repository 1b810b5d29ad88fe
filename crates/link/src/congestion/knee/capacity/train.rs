//! Capacity from packet trains: the path spreads packets that were sent back to back.
//!
//! The input is arrivals of trains. The output is the capacity that the newest train shows, or a
//! lower bound of it. The modes decide when a train is worth sending.

use crate::congestion::PacketArrival;
use crate::congestion::knee::Mechanism;

/// Trains of a connection.
#[derive(Debug, Default)]
pub(in super::super) struct PacketTrains {
    /// Capacity from the spread of the newest train.
    newest: Option<TrainCapacity>,
    /// Arrivals of that train.
    arrivals: Vec<PacketArrival>,
    /// Packets of a train that waits for room in the window and for data; zero for none.
    wanted: usize,
    /// Whether the data filled only a part of the last train.
    is_short: bool,
}

/// Capacity that a packet train shows.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct TrainCapacity {
    /// Bytes per second.
    pub(in super::super) rate_bytes_per_s: f64,
    /// Whether the train arrived within the receiver's timer, so that the capacity is this or more.
    pub(in super::super) is_lower_bound: bool,
}

impl PacketTrains {
    /// Requests a train of `packets` packets. Zero cancels the request.
    pub(in super::super) fn ask_for(&mut self, packets: usize) {
        self.wanted = packets;
    }

    /// Records that a train of `packets` packets begins.
    pub(in super::super) fn begin(&mut self, packets: usize) {
        self.is_short = packets < self.wanted;
        self.wanted = 0;
    }

    /// Whether a train waits to be sent.
    pub(in super::super) fn is_waiting(&self) -> bool {
        self.wanted > 0
    }

    /// Returns the length in packets of a train to send now, if packets are `packet` bytes and the
    /// window has room for `room_bytes`.
    pub(in super::super) fn wanted(&self, packet_bytes: f64, room_bytes: f64) -> usize {
        let fits = self.wanted as f64 * packet_bytes <= room_bytes;
        if fits { self.wanted } else { 0 }
    }

    pub(in super::super) fn newest(&self) -> Option<TrainCapacity> {
        self.newest
    }

    /// Returns the capacity that the newest train shows, in bytes per second; infinite where it may
    /// be more.
    pub(in super::super) fn shown_max(&self) -> f64 {
        let train = self.newest.filter(|train| !train.is_lower_bound);
        train.map_or(f64::INFINITY, |train| train.rate_bytes_per_s)
    }

    /// Returns the highest rate that the newest train confirms, in bytes per second. `None` before
    /// any train.
    ///
    /// A train of the requested length would have shown a bottleneck slower than expected, so its
    /// lower bound confirms any rate. The lower bound of a shorter train confirms only itself.
    pub(in super::super) fn believed_max(&self) -> Option<f64> {
        let train = self.newest?;
        let is_open = train.is_lower_bound && !self.is_short;
        Some(if is_open {
            f64::INFINITY
        } else {
            train.rate_bytes_per_s
        })
    }

    /// Whether no train has shown the capacity because the data did not fill it.
    pub(in super::super) fn lacked_data(&self) -> bool {
        let shows = self.newest.is_some_and(|train| !train.is_lower_bound);
        self.is_waiting() || self.is_short && !shows
    }

    /// Whether enough packets of the newest train have arrived to show a rate.
    pub(in super::super) fn newest_is_seen(&self) -> bool {
        self.arrivals.len() >= SEEN_MIN
    }

    /// Forgets the newest train, which may have measured the path before a change of route.
    pub(in super::super) fn forget_newest(&mut self) {
        self.newest = None;
        self.arrivals.clear();
    }

    /// Measures the newest train again with each report, since its arrivals may be spread over
    /// several reports.
    pub(super) fn measure(&mut self, arrivals: &[PacketArrival]) {
        for arrival in arrivals.iter().filter(|arrival| arrival.in_train) {
            let first = self.arrivals.first();
            if first.is_some_and(|first| arrival.sent_s - first.sent_s >= SENT_WITHIN_S) {
                self.arrivals.clear();
            }
            if self.arrivals.len() == ARRIVALS_MAX {
                continue;
            }
            self.arrivals.push(*arrival);
            let Some(train) = TrainCapacity::of(&self.arrivals) else {
                continue;
            };
            // A lower bound does not contradict a higher rate.
            if !train.is_lower_bound
                || self
                    .newest
                    .is_none_or(|before| before.rate_bytes_per_s < train.rate_bytes_per_s)
            {
                self.newest = Some(train);
            }
        }
    }
}

impl TrainCapacity {
    /// Returns the capacity that arrivals of a train show, if they are far enough apart.
    ///
    /// Each pair of arrivals shows a rate, and the median counts. If a quarter of the pairs shows
    /// twice that, jitter has spread the packets, and not the bottleneck alone.
    ///
    /// If one packet is in more than half of the pairs, and a gap is most of the spread, the
    /// arrivals show no rate. That packet may have overtaken the others.
    fn of(arrivals: &[PacketArrival]) -> Option<Self> {
        let mut s_per_byte = Vec::new();
        let mut bytes_max: u64 = 0;
        let mut pairs_with = [0; ARRIVALS_MAX];
        for (place, last) in arrivals.iter().enumerate() {
            for (place_before, first) in arrivals[..place].iter().enumerate() {
                let (first, last) = match first.number < last.number {
                    true => (first, last),
                    false => (last, first),
                };
                if last.number - first.number >= APART_MIN {
                    let bytes = last.sent_bytes_before - first.sent_bytes_before;
                    s_per_byte.push((last.received_s - first.received_s) / bytes as f64);
                    bytes_max = bytes_max.max(bytes);
                    pairs_with[place] += 1;
                    pairs_with[place_before] += 1;
                }
            }
        }
        let is_one_in_most = pairs_with.iter().any(|pairs| 2 * pairs > s_per_byte.len());
        if Mechanism::TrainOvertaker.acts(is_one_in_most && has_gap(arrivals)) {
            return None;
        }
        s_per_byte.sort_unstable_by(f64::total_cmp);
        let median = *s_per_byte.get(s_per_byte.len() / 2)?;
        let spread_s = median * bytes_max as f64;
        let fast_quarter = s_per_byte[s_per_byte.len() / 4];
        let is_spread_by_jitter =
            Mechanism::TrainJitter.acts(fast_quarter < median / FASTER_BY_JITTER);
        Some(Self {
            rate_bytes_per_s: bytes_max as f64 / spread_s.max(SPREAD_MIN_S),
            is_lower_bound: spread_s <= SPREAD_MIN_S || is_spread_by_jitter,
        })
    }
}

/// Whether a gap between two arrivals is most of the time from the first to the last.
fn has_gap(arrivals: &[PacketArrival]) -> bool {
    let mut received_s: Vec<f64> = arrivals.iter().map(|it| it.received_s).collect();
    received_s.sort_unstable_by(f64::total_cmp);
    let gaps_s = received_s.windows(2).map(|pair| pair[1] - pair[0]);
    let widest_s = gaps_s.fold(0.0, f64::max);
    let spread_s = received_s.last().unwrap_or(&0.0) - received_s[0];
    widest_s > GAP_PART * spread_s
}

/// Returns the number of packets of `packet` bytes that take long enough to be measured at
/// `rate_bytes_per_s` bytes per second.
pub(in super::super) fn packets_to_time(rate_bytes_per_s: f64, packet_bytes: f64) -> f64 {
    rate_bytes_per_s * TRAIN_TIME_S / packet_bytes
}

/// Wanted duration of a train at the bottleneck: well above the receiver's timer.
const TRAIN_TIME_S: f64 = 0.001_5;
/// Fewest packets of a train after the first: half of the usual threshold's worth of queue, and
/// more.
pub(in super::super) const TRAIN_PACKETS_MIN: f64 = 16.0;
/// Maximum number of packets of a train after the first: 1.5 ms of 2 Gbit/s. A longer train would
/// be a burst that shallow queues drop.
pub(in super::super) const TRAIN_PACKETS_MAX: f64 = 256.0;
/// Least distance between the numbers of two compared packets of a train: the receiver's timer may
/// deliver fewer at once.
const APART_MIN: u64 = 8;
/// Fewest arrivals that show a rate. One of two arrivals may have overtaken the other.
const SEEN_MIN: usize = 3;
/// Maximum number of arrivals of a train that are compared, each with each of the others.
const ARRIVALS_MAX: usize = 48;
/// Least spread that shows the path. A shorter one is the receiver's timer.
const SPREAD_MIN_S: f64 = 0.000_5;
/// Multiple of the median rate that shows jitter if a quarter of the pairs reaches it. A bottleneck
/// alone spreads all pairs alike.
const FASTER_BY_JITTER: f64 = 2.0;
/// Part of a train's spread from which on a gap cannot come from a bottleneck, which spaces packets
/// evenly.
const GAP_PART: f64 = 0.75;
/// Time within which the packets of a train leave. Trains are a round trip apart.
const SENT_WITHIN_S: f64 = 0.000_9;

#[cfg(test)]
mod tests {
    use super::*;

    fn train(received_ms: impl Fn(u64) -> f64) -> TrainCapacity {
        let arrival = |number: u64| PacketArrival {
            number,
            sent_s: 0.0,
            received_s: 0.1 + received_ms(number) * 1e-3,
            sent_bytes_before: number * 1500,
            in_train: true,
        };
        let arrivals: Vec<PacketArrival> = (0..32).map(arrival).collect();
        TrainCapacity::of(&arrivals).expect("they are far enough apart")
    }

    #[test]
    fn a_train_that_jitter_has_spread_shows_a_lower_bound() {
        let spacing_ms = 0.1;
        let plain = train(|number| number as f64 * spacing_ms);
        assert!(!plain.is_lower_bound && (plain.rate_bytes_per_s - 15e6).abs() < 1e4);
        let late =
            train(|number| number as f64 * spacing_ms + if number % 5 == 3 { 5.0 } else { 0.0 });
        assert!(
            (late.rate_bytes_per_s - 15e6).abs() < 3e6,
            "{}",
            late.rate_bytes_per_s
        );
        assert!(train(|_| 0.0).is_lower_bound, "the receiver's timer");
        let jitter = |number: u64| number as f64 * spacing_ms + (number * 7919 % 10) as f64;
        assert!(train(jitter).is_lower_bound);
    }

    #[test]
    fn a_packet_that_overtakes_its_train_shows_no_low_rate() {
        for overtaker in 0..16 {
            let received_s = |number: u64| {
                let early_s = if number == overtaker { 0.01 } else { 0.0 };
                0.1 + number as f64 * 1e-4 - early_s
            };
            let mut numbers: Vec<u64> = (0..16).collect();
            numbers.sort_by(|a, b| received_s(*a).total_cmp(&received_s(*b)));
            let mut trains = PacketTrains::default();
            for number in numbers {
                // Each in a report of its own.
                trains.measure(&[PacketArrival {
                    number,
                    sent_s: 0.0,
                    received_s: received_s(number),
                    sent_bytes_before: number * 1500,
                    in_train: true,
                }]);
                let shown = trains.shown_max();
                assert!(shown > 14e6, "{overtaker} early, then {number}: {shown}");
            }
            assert!(trains.newest().is_some());
        }
    }

    #[test]
    fn a_train_waits_for_room() {
        let mut trains = PacketTrains::default();
        trains.ask_for(32);
        assert_eq!(trains.wanted(1500.0, 40_000.0), 0);
        assert_eq!(trains.wanted(1500.0, 48_000.0), 32);
        trains.ask_for(0);
        assert_eq!(trains.wanted(1500.0, 48_000.0), 0);
    }

    #[test]
    fn a_lower_bound_of_a_short_train_lets_no_higher_rate_be_believed() {
        for (packets, believed) in [(32, f64::INFINITY), (16, 45e6)] {
            let mut trains = PacketTrains::default();
            trains.ask_for(32);
            trains.begin(packets);
            let arrivals = (0..16).map(|number| PacketArrival {
                number,
                sent_s: 0.0,
                received_s: 0.1,
                sent_bytes_before: number * 1500,
                in_train: true,
            });
            trains.measure(&arrivals.collect::<Vec<_>>());
            assert_eq!(trains.believed_max(), Some(believed));
            assert_eq!(trains.lacked_data(), packets < 32);
        }
    }
}
