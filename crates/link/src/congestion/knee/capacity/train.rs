//! Capacity from packet trains: the bottleneck spreads packets that were sent back to back.
//!
//! The input is the arrivals of a train's packets. The output is the capacity that the newest train
//! shows, or a lower limit of the capacity. The modes decide when to send a train.

use crate::congestion::PacketArrival;
use crate::congestion::knee::Mechanism;

/// Packet trains of a connection.
#[derive(Debug, Default)]
pub(in super::super) struct PacketTrains {
    /// Capacity computed from the spread of the newest train.
    newest: Option<TrainCapacity>,
    /// Arrivals of the newest train's packets.
    arrivals: Vec<PacketArrival>,
    /// Number of packets in the requested train, until the train is sent. The train waits for data
    /// and for room in the window. Zero means that no train is requested.
    wanted: usize,
    /// Whether the last train was shorter than requested because the application had too little
    /// data.
    is_short: bool,
}

/// Capacity computed from the arrivals of one packet train.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct TrainCapacity {
    /// Capacity in bytes per second.
    pub(in super::super) rate_bytes_per_s: f64,
    /// Whether the capacity may be higher than `rate_bytes_per_s`.
    ///
    /// The capacity may be higher if the whole train arrived within the resolution of the
    /// receiver's timer, or if jitter spread the train.
    pub(in super::super) is_lower_bound: bool,
}

impl PacketTrains {
    /// Requests a train of `packets` packets. Zero cancels an earlier request.
    pub(in super::super) fn ask_for(&mut self, packets: usize) {
        self.wanted = packets;
    }

    /// Records that the sender starts a train of `packets` packets.
    pub(in super::super) fn begin(&mut self, packets: usize) {
        self.is_short = packets < self.wanted;
        self.wanted = 0;
    }

    /// Whether a requested train has not been sent yet.
    pub(in super::super) fn is_waiting(&self) -> bool {
        self.wanted > 0
    }

    /// Returns the number of packets of the train to send now. Returns zero if no train is
    /// requested, or if the window has no room for the train.
    ///
    /// `packet_bytes` is the size of a packet. `room_bytes` is the room in the window.
    pub(in super::super) fn wanted(&self, packet_bytes: f64, room_bytes: f64) -> usize {
        let fits = self.wanted as f64 * packet_bytes <= room_bytes;
        if fits { self.wanted } else { 0 }
    }

    pub(in super::super) fn newest(&self) -> Option<TrainCapacity> {
        self.newest
    }

    /// Returns the capacity that the newest train shows, in bytes per second.
    ///
    /// The result is infinite if there was no train, or if the train shows only a lower limit.
    pub(in super::super) fn shown_max(&self) -> f64 {
        let train = self.newest.filter(|train| !train.is_lower_bound);
        train.map_or(f64::INFINITY, |train| train.rate_bytes_per_s)
    }

    /// Returns the highest sending rate that the newest train supports, in bytes per second.
    /// Returns `None` if there was no train.
    ///
    /// If a train of full length shows only a lower limit, it supports any rate: a slower
    /// bottleneck would have spread the train. If the train was shorter, it supports only the
    /// limit.
    pub(in super::super) fn believed_max(&self) -> Option<f64> {
        let train = self.newest?;
        let is_open = train.is_lower_bound && !self.is_short;
        Some(if is_open {
            f64::INFINITY
        } else {
            train.rate_bytes_per_s
        })
    }

    /// Whether the application had too little data for a train that shows the capacity.
    pub(in super::super) fn lacked_data(&self) -> bool {
        let shows = self.newest.is_some_and(|train| !train.is_lower_bound);
        self.is_waiting() || self.is_short && !shows
    }

    /// Whether enough packets of the newest train have arrived to compute a rate.
    pub(in super::super) fn newest_is_seen(&self) -> bool {
        self.arrivals.len() >= SEEN_MIN
    }

    /// Discards the newest train. The train may have measured the path before a change of route.
    pub(in super::super) fn forget_newest(&mut self) {
        self.newest = None;
        self.arrivals.clear();
    }

    /// Computes the capacity from the newest train again, with the arrivals of a new report.
    /// Several reports may be needed to cover one train.
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
    /// Returns the capacity that the arrivals of a train show. Returns `None` if no two arrivals
    /// are at least [`APART_MIN`] packet numbers apart.
    ///
    /// Each pair of arrivals shows a rate, and the function uses the median. If a quarter of the
    /// pairs shows more than twice the median, jitter has spread the packets. The median is then
    /// only a lower limit of the capacity.
    ///
    /// The function also returns `None` if more than half of the pairs contain the same packet, and
    /// one gap makes up most of the spread. That packet may have overtaken the other packets.
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

/// Whether a single gap makes up most of the time between the first and the last arrival.
fn has_gap(arrivals: &[PacketArrival]) -> bool {
    let mut received_s: Vec<f64> = arrivals.iter().map(|it| it.received_s).collect();
    received_s.sort_unstable_by(f64::total_cmp);
    let gaps_s = received_s.windows(2).map(|pair| pair[1] - pair[0]);
    let widest_s = gaps_s.fold(0.0, f64::max);
    let spread_s = received_s.last().unwrap_or(&0.0) - received_s[0];
    widest_s > GAP_PART * spread_s
}

/// Returns the number of packets in a train that lasts [`TRAIN_TIME_S`] at `rate_bytes_per_s`. Each
/// packet has `packet_bytes` bytes.
pub(in super::super) fn packets_to_time(rate_bytes_per_s: f64, packet_bytes: f64) -> f64 {
    rate_bytes_per_s * TRAIN_TIME_S / packet_bytes
}

/// Intended duration of a train at the bottleneck: well above the resolution of the receiver's
/// timer.
const TRAIN_TIME_S: f64 = 0.001_5;
/// Least number of packets in every train except the first train. Such a train fills at least half
/// of the usual queue threshold.
pub(in super::super) const TRAIN_PACKETS_MIN: f64 = 16.0;
/// Maximum number of packets in every train except the first train: 1.5 ms at 2 Gbit/s. A longer
/// train would be a burst that shallow queues drop.
pub(in super::super) const TRAIN_PACKETS_MAX: f64 = 256.0;
/// Least difference between the packet numbers of two compared packets of a train. Packets with
/// closer numbers may arrive within one tick of the receiver's timer.
const APART_MIN: u64 = 8;
/// Least number of arrivals from which a rate is computed. With two arrivals, one packet may have
/// overtaken the other.
const SEEN_MIN: usize = 3;
/// Maximum number of arrivals of a train that are compared. Each arrival is compared with every
/// other arrival.
const ARRIVALS_MAX: usize = 48;
/// Least time from the first to the last arrival of a train. A shorter time comes from the
/// resolution of the receiver's timer, not from the path.
const SPREAD_MIN_S: f64 = 0.000_5;
/// Multiple of the median rate. If a quarter of the pairs shows a rate above the multiple, jitter
/// has spread the packets. Without jitter, a bottleneck spreads all pairs equally.
const FASTER_BY_JITTER: f64 = 2.0;
/// Fraction of a train's spread. A bottleneck spaces packets evenly, so a gap longer than this
/// fraction has another cause.
const GAP_PART: f64 = 0.75;
/// Time within which the sender sends all packets of a train. Two trains are at least a round trip
/// apart.
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
                // Each arrival is in a separate report.
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
