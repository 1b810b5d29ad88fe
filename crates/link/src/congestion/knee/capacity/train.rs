//! How fast does the path spread packets that were sent back to back?
//!
//! In: arrivals of trains. Out: the capacity as the newest train shows it, or a lower bound of it. When
//! a train is worth sending is for the modes to say.

use crate::congestion::Arrival;
use crate::congestion::knee::Mechanism;

/// The trains of a connection.
#[derive(Debug, Default)]
pub(in super::super) struct Trains {
    /// Capacity as the spreading of the newest train shows it.
    newest: Option<Train>,
    /// Arrivals of that train.
    arrivals: Vec<Arrival>,
    /// Packets of a train that waits for room in the window and for data; zero for none.
    wanted: usize,
    /// The data filled only a part of the train that began last.
    is_short: bool,
}

/// What a packet train shows of the capacity.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Train {
    /// Bytes per second.
    pub(in super::super) rate: f64,
    /// The train arrived within the receiver's timer: the capacity is this or more.
    pub(in super::super) is_lower_bound: bool,
}

impl Trains {
    /// Asks for a train of so many packets; zero takes the request back.
    pub(in super::super) fn ask_for(&mut self, packets: usize) {
        self.wanted = packets;
    }

    /// A train of so many packets begins.
    pub(in super::super) fn begin(&mut self, packets: usize) {
        self.is_short = packets < self.wanted;
        self.wanted = 0;
    }

    /// Whether a train waits to be sent.
    pub(in super::super) fn is_waiting(&self) -> bool {
        self.wanted > 0
    }

    /// The length in packets of a train to send now, if packets are `packet` bytes and the window has room for
    /// `room_bytes`.
    pub(in super::super) fn wanted(&self, packet: f64, room_bytes: f64) -> usize {
        let fits = self.wanted as f64 * packet <= room_bytes;
        if fits { self.wanted } else { 0 }
    }

    pub(in super::super) fn newest(&self) -> Option<Train> {
        self.newest
    }

    /// The capacity that the newest train shows, in bytes per second; infinite where it may be more.
    pub(in super::super) fn shown_max(&self) -> f64 {
        let train = self.newest.filter(|train| !train.is_lower_bound);
        train.map_or(f64::INFINITY, |train| train.rate)
    }

    /// The highest rate that the newest train bears out, in bytes per second; `None` before any train. A train of the
    /// length that was asked for would have shown a line slower than expected: its lower bound bears out any rate. The
    /// lower bound of a shorter train bears out no more than itself.
    pub(in super::super) fn believed_max(&self) -> Option<f64> {
        let train = self.newest?;
        let is_open = train.is_lower_bound && !self.is_short;
        Some(if is_open { f64::INFINITY } else { train.rate })
    }

    /// Whether no train has shown the line because the data did not fill it.
    pub(in super::super) fn lacked_data(&self) -> bool {
        let shows = self.newest.is_some_and(|train| !train.is_lower_bound);
        self.is_waiting() || self.is_short && !shows
    }

    /// Whether as many packets of the newest train have arrived as show something, if anything does.
    pub(in super::super) fn newest_is_seen(&self) -> bool {
        self.arrivals.len() >= SEEN_MIN
    }

    /// What an earlier train showed may be the line before a change of route.
    pub(in super::super) fn forget_newest(&mut self) {
        self.newest = None;
        self.arrivals.clear();
    }

    /// The arrivals of a train may be spread over several reports: it is measured anew with each.
    pub(super) fn measure(&mut self, arrivals: &[Arrival]) {
        for arrival in arrivals.iter().filter(|arrival| arrival.in_train) {
            let first = self.arrivals.first();
            if first.is_some_and(|first| arrival.sent_s - first.sent_s >= SENT_WITHIN_S) {
                self.arrivals.clear();
            }
            if self.arrivals.len() == ARRIVALS_MAX {
                continue;
            }
            self.arrivals.push(*arrival);
            let Some(train) = Train::of(&self.arrivals) else {
                continue;
            };
            // A lower bound says nothing against a higher rate.
            if !train.is_lower_bound || self.newest.is_none_or(|before| before.rate < train.rate) {
                self.newest = Some(train);
            }
        }
    }
}

impl Train {
    /// What arrivals of a train show, if they are far enough apart.
    ///
    /// Each pair of them shows a rate, and the median counts. Where a quarter of the pairs shows twice that, jitter
    /// has spread the packets, and not the bottleneck alone. Where one packet is in more than half of the
    /// pairs, and a gap is most of the spread, they show nothing: that packet may have overtaken the others.
    fn of(arrivals: &[Arrival]) -> Option<Self> {
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
            rate: bytes_max as f64 / spread_s.max(SPREAD_MIN_S),
            is_lower_bound: spread_s <= SPREAD_MIN_S || is_spread_by_jitter,
        })
    }
}

/// Whether a gap between two arrivals is most of the time from the first to the last.
fn has_gap(arrivals: &[Arrival]) -> bool {
    let mut received_s: Vec<f64> = arrivals.iter().map(|it| it.received_s).collect();
    received_s.sort_unstable_by(f64::total_cmp);
    let gaps_s = received_s.windows(2).map(|pair| pair[1] - pair[0]);
    let widest_s = gaps_s.fold(0.0, f64::max);
    let spread_s = received_s.last().unwrap_or(&0.0) - received_s[0];
    widest_s > GAP_PART * spread_s
}

/// Packets of `packet` bytes that take long enough to be measured at `rate` bytes per second.
pub(in super::super) fn packets_to_time(rate: f64, packet: f64) -> f64 {
    rate * TRAIN_TIME_S / packet
}

/// A train should take this long at the bottleneck: well above the receiver's timer.
const TRAIN_TIME_S: f64 = 0.001_5;
/// Packets of a train after the first at least: half of the usual threshold's worth of queue, and more.
pub(in super::super) const TRAIN_PACKETS_MIN: f64 = 16.0;
/// Packets of a train after the first at most: 1.5 ms of 2 Gbit/s. More would be a burst that shallow queues drop.
pub(in super::super) const TRAIN_PACKETS_MAX: f64 = 256.0;
/// Two packets of a train are compared if their numbers are so far apart at least: the receiver's timer may bring
/// fewer at once.
const APART_MIN: u64 = 8;
/// Two arrivals show no rate, since either may have overtaken the other.
const SEEN_MIN: usize = 3;
/// Arrivals of a train that are looked at: each with each of the others.
const ARRIVALS_MAX: usize = 48;
/// A spread shorter than this is the receiver's timer, not the path.
const SPREAD_MIN_S: f64 = 0.000_5;
/// Where a quarter of the pairs shows this multiple of the median rate, jitter has spread the packets: a bottleneck
/// alone spreads all pairs alike.
const FASTER_BY_JITTER: f64 = 2.0;
/// A gap of this part of a train's spread is none that a bottleneck makes, which spaces packets evenly.
const GAP_PART: f64 = 0.75;
/// Trains are a round trip apart, and their packets leave at once.
const SENT_WITHIN_S: f64 = 0.000_9;

#[cfg(test)]
mod tests {
    use super::*;

    fn train(received_ms: impl Fn(u64) -> f64) -> Train {
        let arrival = |number: u64| Arrival {
            number,
            sent_s: 0.0,
            received_s: 0.1 + received_ms(number) * 1e-3,
            sent_bytes_before: number * 1500,
            in_train: true,
        };
        let arrivals: Vec<Arrival> = (0..32).map(arrival).collect();
        Train::of(&arrivals).expect("they are far enough apart")
    }

    #[test]
    fn a_train_that_jitter_has_spread_shows_a_lower_bound() {
        let spacing_ms = 0.1;
        let plain = train(|number| number as f64 * spacing_ms);
        assert!(!plain.is_lower_bound && (plain.rate - 15e6).abs() < 1e4);
        let late =
            train(|number| number as f64 * spacing_ms + if number % 5 == 3 { 5.0 } else { 0.0 });
        assert!((late.rate - 15e6).abs() < 3e6, "{}", late.rate);
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
            let mut trains = Trains::default();
            for number in numbers {
                // Each in a report of its own.
                trains.measure(&[Arrival {
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
        let mut trains = Trains::default();
        trains.ask_for(32);
        assert_eq!(trains.wanted(1500.0, 40_000.0), 0);
        assert_eq!(trains.wanted(1500.0, 48_000.0), 32);
        trains.ask_for(0);
        assert_eq!(trains.wanted(1500.0, 48_000.0), 0);
    }

    #[test]
    fn a_lower_bound_of_a_short_train_lets_no_higher_rate_be_believed() {
        for (packets, believed) in [(32, f64::INFINITY), (16, 45e6)] {
            let mut trains = Trains::default();
            trains.ask_for(32);
            trains.begin(packets);
            let arrivals = (0..16).map(|number| Arrival {
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
