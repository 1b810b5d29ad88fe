//! What the knee controller measures: base delay, queueing delay, and rates.
//!
//! In: the receive times and byte counts of reports. Out: the path's minimum delays, how much longer
//! packets take now (the queue), the rate at which the bottleneck passes packets, and the rate at which
//! bytes arrive. Losses are counted elsewhere ([`losses`](super::losses)).

use std::collections::VecDeque;

use super::ramp::Ramp;
use crate::{
    congestion::{Arrival, Digest},
    overtakers::{FirstSamples, Overtakers},
};

/// Delays and rates of the path, from receive times.
#[derive(Debug)]
pub(super) struct Measure {
    overtakers: Overtakers,
    /// The base delay before a pause: what is shorter may have overtaken the others.
    delay_before_pause_s: Option<f64>,
    delay_base: WindowedMin,
    first_rtts: FirstSamples,
    rtt_base: WindowedMin,
    /// The highest packet number whose arrival was reported, overtakers aside.
    newest: u64,
    bucket: Bucket,
    /// The least delay in the bucket before, in seconds.
    least_before_s: Option<f64>,
    /// Queueing delay, one way, in seconds.
    pub(super) queue_s: f64,
    /// When the packets were sent that `queue_s` was measured on.
    pub(super) queue_sent_s: f64,
    /// Packets sent before this time measured the queue as it was before the last cut.
    queue_since_s: f64,
    /// Whether `queue_s` was measured on packets sent after the last cut.
    pub(super) queue_is_fresh: bool,
    /// The least round-trip time of packets sent after the last cut.
    rtt_since_cut_s: Option<f64>,
    /// Whether the delay grows over packets of a span of time, while that is of interest.
    ramp: Option<Ramp>,
    /// Arrivals that the capacity is measured on, oldest first.
    points: VecDeque<Arrival>,
    /// Bytes received in all, and when, in seconds of the peer's clock.
    received: VecDeque<(u64, f64)>,
    /// Packet-number rate: what the bottleneck passes in the sending domain, bytes per second.
    pub(super) capacity: Option<f64>,
    /// Negated, so that the least is the highest capacity of the recent past.
    capacity_peak: WindowedMin,
    /// Negated, so that the least is the longest queueing delay of the recent past.
    queue_peak: WindowedMin,
    /// Delivered bytes per second.
    pub(super) delivered: Option<f64>,
    /// Capacity as the spreading of a packet train shows it.
    pub(super) train: Option<Train>,
    /// Arrivals of the newest train.
    train_arrivals: Vec<Arrival>,
    last_report_s: f64,
    /// Negated, so that the least is the longest time between two reports of late.
    report_gap: WindowedMin,
}

/// One-way delays of packets that arrived one after the other.
#[derive(Debug, Default)]
struct Bucket {
    delays_s: Vec<f64>,
    first_received_s: f64,
    /// Whether they were sent after the last cut.
    is_fresh: bool,
}

/// What a packet train shows of the capacity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Train {
    /// Bytes per second.
    pub(super) rate: f64,
    /// The train arrived within the receiver's timer: the capacity is this or more.
    pub(super) is_lower_bound: bool,
}

/// A minimum over the recent past, kept in sub-windows that expire one by one.
#[derive(Debug)]
struct WindowedMin {
    /// When each sub-window began, and its minimum.
    minima: VecDeque<(f64, f64)>,
}

impl Train {
    /// What arrivals of a train show, if they are far enough apart.
    ///
    /// Each pair of them shows a rate, and the median counts. Where a quarter of the pairs shows twice that, jitter
    /// has spread the packets, and not the bottleneck alone.
    fn of(arrivals: &[Arrival]) -> Option<Self> {
        let mut s_per_byte = Vec::new();
        let mut bytes_max: u64 = 0;
        for (place, last) in arrivals.iter().enumerate() {
            for first in &arrivals[..place] {
                let (first, last) = match first.number < last.number {
                    true => (first, last),
                    false => (last, first),
                };
                if last.number - first.number >= TRAIN_PACKETS_MIN {
                    let bytes = last.sent_bytes_before - first.sent_bytes_before;
                    s_per_byte.push((last.received_s - first.received_s) / bytes as f64);
                    bytes_max = bytes_max.max(bytes);
                }
            }
        }
        s_per_byte.sort_unstable_by(f64::total_cmp);
        let median = *s_per_byte.get(s_per_byte.len() / 2)?;
        let spread_s = median * bytes_max as f64;
        let is_spread_by_jitter = s_per_byte[s_per_byte.len() / 4] < median / 2.0;
        Some(Self {
            rate: bytes_max as f64 / spread_s.max(TRAIN_SPREAD_MIN_S),
            is_lower_bound: spread_s <= TRAIN_SPREAD_MIN_S || is_spread_by_jitter,
        })
    }
}

impl Bucket {
    fn clear(&mut self) {
        self.delays_s.clear();
    }

    fn push(&mut self, arrival: &Arrival) {
        // A clock that has jumped may put it before the first.
        if self.delays_s.is_empty() || arrival.received_s < self.first_received_s {
            self.first_received_s = arrival.received_s;
        }
        self.delays_s.push(arrival.received_s - arrival.sent_s);
    }

    /// The least delay that is not that of a few packets that overtook the others by `ahead_s` or more.
    fn least_s(&mut self, ahead_s: f64) -> Option<f64> {
        let delays_s = &mut self.delays_s;
        delays_s.sort_unstable_by(f64::total_cmp);
        let few = delays_s.len() / FAST_EACH;
        let is_shared = |place: usize| delays_s[place + few] - delays_s[place] < ahead_s;
        let place = (0..few).find(|place| is_shared(*place)).unwrap_or(few);
        delays_s.get(place).copied()
    }
}

impl WindowedMin {
    fn new() -> Self {
        Self {
            minima: VecDeque::new(),
        }
    }

    fn insert(&mut self, value: f64, now_s: f64, window_s: f64) {
        let part_s = window_s / WINDOW_PARTS;
        while self
            .minima
            .front()
            .is_some_and(|(began, _)| now_s - began > window_s)
        {
            self.minima.pop_front();
        }
        match self.minima.back_mut() {
            Some((began, least)) if now_s - *began < part_s => *least = least.min(value),
            _ => self.minima.push_back((now_s, value)),
        }
    }

    fn get(&self) -> Option<f64> {
        self.minima.iter().map(|(_, least)| *least).reduce(f64::min)
    }

    fn reset(&mut self, value: f64, now_s: f64) {
        self.minima.clear();
        self.minima.push_back((now_s, value));
    }
}

impl Measure {
    pub(super) fn new() -> Self {
        Self {
            overtakers: Overtakers::new(),
            delay_before_pause_s: None,
            delay_base: WindowedMin::new(),
            first_rtts: FirstSamples::default(),
            rtt_base: WindowedMin::new(),
            newest: 0,
            bucket: Bucket::default(),
            least_before_s: None,
            queue_s: 0.0,
            queue_sent_s: 0.0,
            queue_since_s: 0.0,
            queue_is_fresh: false,
            rtt_since_cut_s: None,
            ramp: None,
            points: VecDeque::new(),
            received: VecDeque::new(),
            capacity: None,
            capacity_peak: WindowedMin::new(),
            queue_peak: WindowedMin::new(),
            delivered: None,
            train: None,
            train_arrivals: Vec::new(),
            last_report_s: 0.0,
            report_gap: WindowedMin::new(),
        }
    }

    /// What is left to measure with after a pause.
    pub(super) fn after_pause(self) -> Self {
        let delay_before_pause_s = self.delay_base.get().or(self.delay_before_pause_s);
        Self {
            overtakers: self.overtakers,
            delay_before_pause_s,
            ..Self::new()
        }
    }

    /// The least round-trip time of the recent past, in seconds; [`BASE_RTT_GUESS_S`] before any sample.
    pub(super) fn base_rtt_s(&self) -> f64 {
        self.rtt_base
            .get()
            .unwrap_or(BASE_RTT_GUESS_S)
            .max(BASE_RTT_MIN_S)
    }

    /// As if it had measured this.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, base_s: f64, capacity: f64, now_s: f64) {
        self.first_rtts = FirstSamples::over();
        self.rtt_base.insert(base_s, now_s, BASE_WINDOW_S);
        self.delay_base.insert(base_s / 2.0, now_s, BASE_WINDOW_S);
        self.capacity = Some(capacity);
        self.capacity_peak.insert(-capacity, now_s, BASE_WINDOW_S);
    }

    /// The highest capacity of the recent past: in company what is measured is only our share.
    pub(super) fn capacity_peak(&self) -> Option<f64> {
        self.capacity_peak.get().map(|negated| -negated)
    }

    /// Takes the capacity for one that the path has. Where the path drops packets, those count as passed, too.
    pub(super) fn remember_capacity(&mut self, now_s: f64) {
        let is_since_cut = |first: &Arrival| first.sent_s > self.queue_since_s;
        if let Some(capacity) = self.capacity
            && self.points.front().is_some_and(is_since_cut)
        {
            let window_s = base_window_s(self.base_rtt_s());
            self.capacity_peak.insert(-capacity, now_s, window_s);
        }
    }

    /// The longest time between two reports of late: bursts of losses take reports, too.
    pub(super) fn report_gap_s(&self) -> f64 {
        self.report_gap.get().map_or(0.0, |negated| -negated)
    }

    /// Whether the queue is about as long as it was at its longest of late.
    pub(super) fn queue_is_at_peak(&self) -> bool {
        self.queue_peak
            .get()
            .is_some_and(|negated| self.queue_s >= -AT_PEAK * negated)
    }

    /// A cut: from now on only packets sent after `now_s` show whether the queue empties.
    pub(super) fn forget_queue(&mut self, now_s: f64) {
        self.queue_since_s = now_s;
        self.queue_is_fresh = false;
        self.rtt_since_cut_s = None;
        self.bucket.is_fresh = false;
        self.bucket.clear();
    }

    /// Watches the delays of the packets that are sent in a span of time.
    pub(super) fn watch_ramp(&mut self, from_s: f64, until_s: f64) {
        self.ramp = Some(Ramp::new(from_s, until_s));
    }

    /// How much longer the last of those packets took than the first, once that is known.
    pub(super) fn ramp_rise_s(&self) -> Option<f64> {
        self.ramp?.rise_s()
    }

    pub(super) fn forget_ramp(&mut self) {
        self.ramp = None;
    }

    /// Takes the present delay for the base: the route has changed.
    pub(super) fn rebase(&mut self, now_s: f64) {
        let (Some(delay), Some(rtt)) = (self.delay_base.get(), self.rtt_base.get()) else {
            return;
        };
        // The way back may have become longer, too.
        let longer_rtt_s = self.rtt_since_cut_s.unwrap_or(rtt + self.queue_s);
        self.delay_base.reset(delay + self.queue_s, now_s);
        self.rtt_base.reset(longer_rtt_s, now_s);
        self.forget_queue(now_s);
        self.queue_s = 0.0;
    }

    /// The delays of before are too old to count, as the round-trip times are.
    pub(super) fn forget_delay(&mut self, now_s: f64) {
        self.delay_base = WindowedMin::new();
        self.least_before_s = None;
        self.forget_queue(now_s);
        self.queue_s = 0.0;
    }

    pub(super) fn update(&mut self, digest: &Digest<'_>, now_s: f64) {
        if let Some(rtt_s) = digest.rtt_s {
            let window_s = base_window_s(rtt_s);
            match self.first_rtts.median_with(rtt_s) {
                Some(median_s) => self.rtt_base.reset(median_s, now_s),
                None => self.rtt_base.insert(rtt_s, now_s, window_s),
            }
            let was_sent_after_cut = now_s - rtt_s > self.queue_since_s;
            if was_sent_after_cut {
                let least_s = self.rtt_since_cut_s.unwrap_or(rtt_s);
                self.rtt_since_cut_s = Some(least_s.min(rtt_s));
            }
        }
        let base_s = self.base_rtt_s();
        if self.last_report_s > 0.0 && !digest.app_limited {
            let gap_max_s = REPORT_GAP_ROUND_TRIPS * base_s + REPORT_GAP_MAX_S;
            let gap_s = (now_s - self.last_report_s).min(gap_max_s);
            let window_s = REPORT_GAP_WINDOW_S.max(WINDOW_ROUND_TRIPS * base_s);
            self.report_gap.insert(-gap_s, now_s, window_s);
        }
        self.last_report_s = now_s;
        for arrival in digest.arrivals {
            if self.is_overtaker(arrival, base_s) {
                continue;
            }
            // A packet older than the newest arrived late, as stragglers do once the sender pauses. It
            // shows its own delay and no queue.
            if self.newest < arrival.number {
                self.newest = arrival.number;
                self.on_arrival(arrival, base_s, now_s);
            }
        }
        self.measure_train(digest.arrivals);
        self.measure_capacity(base_s);
        if digest.app_limited {
            // What arrived is what the application sent.
            self.received.clear();
            self.delivered = None;
        } else {
            self.measure_delivered(digest.received, base_s);
        }
    }

    fn is_overtaker(&mut self, arrival: &Arrival, base_s: f64) -> bool {
        let delay_s = arrival.received_s - arrival.sent_s;
        let visible_s = visible_delay_s(base_s);
        let delay_base_s = self.delay_base.get().or(self.delay_before_pause_s);
        let overtakers = &mut self.overtakers;
        overtakers.is_one(delay_s, arrival.received_s, delay_base_s, visible_s)
            // A train is not measured by its delays.
            && !(arrival.in_train && delay_base_s.is_none())
    }

    fn on_arrival(&mut self, arrival: &Arrival, base_s: f64, now_s: f64) {
        let paused_s = |last: &Arrival| arrival.sent_s - last.sent_s;
        let pause_s = self.points.back().map_or(0.0, paused_s);
        if pause_s > POINTS_PAUSE_S.max(base_s) {
            // A rate over the pause would be the application's.
            self.points.clear();
        }
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(*arrival);
        if arrival.in_train {
            return;
        }
        if let Some(ramp) = &mut self.ramp {
            ramp.on_arrival(arrival);
        }
        let is_fresh = arrival.sent_s > self.queue_since_s;
        if is_fresh && !self.bucket.is_fresh {
            self.bucket.clear();
            self.bucket.is_fresh = true;
        }
        self.bucket.push(arrival);
        let span_s = arrival.received_s - self.bucket.first_received_s;
        let count = self.bucket.delays_s.len();
        if count >= BUCKET_COUNT && span_s >= BUCKET_SPAN * base_s || count >= BUCKET_COUNT_MAX {
            self.queue_sent_s = arrival.sent_s;
            self.judge_bucket(base_s, now_s);
        }
    }

    fn judge_bucket(&mut self, base_s: f64, now_s: f64) {
        let Some(least_s) = self.bucket.least_s(AHEAD * base_s) else {
            return;
        };
        let window_s = base_window_s(base_s);
        // What only one bucket saw may be a hiccup of a clock or a scheduler.
        let seen_twice_s = least_s.max(self.least_before_s.unwrap_or(least_s));
        self.least_before_s = Some(least_s);
        self.delay_base.insert(seen_twice_s, now_s, window_s);
        let delay_base_s = self.delay_base.get().unwrap_or(least_s);
        self.queue_s = (least_s - delay_base_s).max(0.0);
        self.queue_peak.insert(-self.queue_s, now_s, window_s);
        self.queue_is_fresh = self.bucket.is_fresh;
        self.bucket.clear();
    }

    /// The arrivals of a train may be spread over several reports: it is measured anew with each.
    fn measure_train(&mut self, arrivals: &[Arrival]) {
        for arrival in arrivals.iter().filter(|arrival| arrival.in_train) {
            let first = self.train_arrivals.first();
            if first.is_some_and(|first| arrival.sent_s - first.sent_s >= TRAIN_SENT_WITHIN_S) {
                self.train_arrivals.clear();
            }
            if self.train_arrivals.len() == TRAIN_ARRIVALS_MAX {
                continue;
            }
            self.train_arrivals.push(*arrival);
            let Some(train) = Train::of(&self.train_arrivals) else {
                continue;
            };
            // A lower bound says nothing against a higher rate.
            if !train.is_lower_bound || self.train.is_none_or(|before| before.rate < train.rate) {
                self.train = Some(train);
            }
        }
    }

    fn measure_capacity(&mut self, base_s: f64) {
        let span_min_s = (CAPACITY_SPAN * base_s).max(CAPACITY_SPAN_MIN_S);
        let Some(last) = self.points.back().copied() else {
            return;
        };
        // Keep one point that is old enough, and all newer ones.
        while self.points.get(1).is_some_and(|point| {
            last.received_s - point.received_s >= span_min_s
                && last.number >= point.number + CAPACITY_PACKETS_MIN
        }) {
            self.points.pop_front();
        }
        let first = self.points[0];
        let span_s = last.received_s - first.received_s;
        if span_s >= span_min_s && last.number >= first.number + CAPACITY_PACKETS_MIN {
            let bytes = last.sent_bytes_before - first.sent_bytes_before;
            self.capacity = Some(bytes as f64 / span_s);
        }
    }

    fn measure_delivered(&mut self, received: (u64, f64), base_s: f64) {
        let span_min_s = (DELIVERED_SPAN * base_s).max(DELIVERED_SPAN_MIN_S);
        if self
            .received
            .back()
            .is_some_and(|(_, at)| *at >= received.1)
        {
            return;
        }
        self.received.push_back(received);
        while self
            .received
            .get(1)
            .is_some_and(|(_, at)| received.1 - at >= span_min_s)
        {
            self.received.pop_front();
        }
        let first = self.received[0];
        let span_s = received.1 - first.1;
        if span_s >= span_min_s {
            self.delivered = Some((received.0 - first.0.min(received.0)) as f64 / span_s);
        }
    }
}

/// Queueing delay that shows over jitter, on a path with the round-trip time `base_s`.
pub(super) fn visible_delay_s(base_s: f64) -> f64 {
    (VISIBLE_PART * base_s).max(VISIBLE_MIN_S)
}

/// The time over which the minima of a path with the round-trip time `base_s` are taken.
fn base_window_s(base_s: f64) -> f64 {
    BASE_WINDOW_S.max(WINDOW_ROUND_TRIPS * base_s)
}

/// A delay of this part of the round-trip time shows: large enough to be seen over jitter, small enough to
/// fit, with its overshoot, a queue of a tenth of the bandwidth-delay product.
const VISIBLE_PART: f64 = 1.0 / 16.0;
/// ... and of this much at least: timers and reports are no more precise.
const VISIBLE_MIN_S: f64 = 0.002;

/// The round-trip time before any sample: that of a path across a continent.
const BASE_RTT_GUESS_S: f64 = 0.1;
/// Reports are at least a millisecond apart, and half a millisecond of what seems queued is the timers of both
/// sides: the rate must hardly follow that. Nor must a peer that claims to have held a report for all of the
/// round trip make it nothing.
const BASE_RTT_MIN_S: f64 = 0.008;
/// Minima are taken over this time, or this many round trips if that is longer. A change of route that
/// makes the path longer is found after this time at the latest, and a queue that lasts as long is taken
/// for the path.
const BASE_WINDOW_S: f64 = 30.0;
const WINDOW_ROUND_TRIPS: f64 = 20.0;
/// Parts of such a window that expire one by one: a minimum is forgotten to 7 % of the window.
const WINDOW_PARTS: f64 = 15.0;

/// The least delay is taken of this many packets at least, over this part of a round trip at least: few
/// and soon enough to be fresh, enough to take out the jitter of single packets.
const BUCKET_COUNT: usize = 4;
const BUCKET_SPAN: f64 = 1.0 / 8.0;
/// One packet in this many may have overtaken the others in a bucket: half as many again as the path may let overtake,
/// since few packets vary.
const FAST_EACH: usize = 4;
/// ... by this part of the base RTT at least. Few packets may be farther apart than jitter makes most.
const AHEAD: f64 = 1.0 / 5.0;
/// A bucket ends with this many packets, however little time a peer's clock says has passed.
const BUCKET_COUNT_MAX: usize = 4096;
/// A queue of this part of the longest of late is at its peak.
const AT_PEAK: f64 = 0.9;

/// Fewer packets between the first and the last do not measure a train: the receiver's timer may bring
/// that many at once.
const TRAIN_PACKETS_MIN: u64 = 8;
/// Arrivals of a train that are looked at: each with each of the others.
const TRAIN_ARRIVALS_MAX: usize = 48;
/// A spread shorter than this is the receiver's timer, not the path.
const TRAIN_SPREAD_MIN_S: f64 = 0.000_5;
/// Trains are a round trip apart, and their packets leave at once.
const TRAIN_SENT_WITHIN_S: f64 = 0.000_9;

/// The capacity is measured over this part of a round trip, this time and this many packet numbers at
/// least. Longer spans are less noisy and follow changes later.
const CAPACITY_SPAN: f64 = 1.0 / 4.0;
const CAPACITY_SPAN_MIN_S: f64 = 0.002;
const CAPACITY_PACKETS_MIN: u64 = 16;
/// The capacity is measured anew after so long without packets, or after a round trip if that is longer.
const POINTS_PAUSE_S: f64 = 1.0;
/// Arrivals that the capacity is measured on at most.
const POINTS_MAX: usize = 4096;
/// The delivered rate is measured over this part of a round trip and this time at least. Unlike the
/// capacity it is noisy by random loss, so the span is longer.
const DELIVERED_SPAN: f64 = 0.75;
const DELIVERED_SPAN_MIN_S: f64 = 0.005;

/// The link goes on for this many round trips, and this much longer, without a report, if the time between
/// two reports was as long before, within [`REPORT_GAP_WINDOW_S`].
const REPORT_GAP_ROUND_TRIPS: f64 = 2.0;
const REPORT_GAP_MAX_S: f64 = 0.3;
const REPORT_GAP_WINDOW_S: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// The queueing delay seen after a packet each millisecond, `delay_ms` late each.
    fn queue_ms(count: u64, delay_ms: impl Fn(u64) -> f64) -> f64 {
        let mut measure = Measure::new();
        for number in 0..count {
            let sent_s = number as f64 * 1e-3;
            let arrivals = [Arrival {
                number: number + 1,
                sent_s,
                received_s: sent_s + delay_ms(number) * 1e-3,
                sent_bytes_before: number * 1500,
                in_train: false,
            }];
            let digest = Digest {
                arrivals: &arrivals,
                rtt_s: Some(0.02),
                ..Digest::default()
            };
            measure.update(&digest, sent_s + 0.02);
        }
        measure.queue_s * 1e3
    }

    #[test]
    fn no_path_is_shorter_than_the_timers_of_both_sides() {
        let mut measure = Measure::new();
        assert_eq!(measure.base_rtt_s(), 0.1, "before any sample");
        measure.pretend(0.02, 1e6, 0.0);
        assert_eq!(measure.base_rtt_s(), 0.02);
        measure.pretend(0.0, 1e6, 1.0);
        assert_eq!(measure.base_rtt_s(), BASE_RTT_MIN_S);
    }

    #[test]
    fn a_base_is_believed_when_two_buckets_have_seen_it() {
        let hiccup = |number| if number == 500 { 9.0 } else { 10.0 };
        assert!(queue_ms(1000, hiccup) < 0.001);
        let shorter = |number| {
            if (500..600).contains(&number) {
                9.0
            } else {
                10.0
            }
        };
        assert!((queue_ms(1000, shorter) - 1.0).abs() < 0.001);
    }

    #[test]
    fn the_fast_quarter_of_a_bucket_is_neither_the_base_nor_an_empty_queue() {
        let fast = |number: u64| if number % 16 == 3 { 2.0 } else { 10.0 };
        assert!(queue_ms(1000, fast) < 0.001, "as a queue");
        let waits = |number: u64| fast(number) + if number < 500 { 0.0 } else { 8.0 };
        assert!(
            (queue_ms(1000, waits) - 8.0).abs() < 0.001,
            "not an empty one"
        );
    }

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
        let jitter = train(|number| number as f64 * spacing_ms + (number * 7919 % 10) as f64);
        assert!(jitter.is_lower_bound);
        assert!(train(|_| 0.0).is_lower_bound, "the receiver's timer");
    }

    #[test]
    fn packets_that_come_in_last_and_late_are_no_queue() {
        let grows = |number| if number < 990 { 10.0 } else { 110.0 };
        assert!(queue_ms(1000, grows) > 90.0, "those sent last do show one");
        // These were sent before the others, and come in after a pause.
        let mut measure = Measure::new();
        let arrival = |number: u64, delay_s: f64| Arrival {
            number,
            sent_s: number as f64 * 1e-3,
            received_s: number as f64 * 1e-3 + delay_s,
            sent_bytes_before: number * 1500,
            in_train: false,
        };
        let mut arrivals: Vec<Arrival> = (20..1000).map(|number| arrival(number, 0.01)).collect();
        arrivals.extend((1..20).map(|number| arrival(number, 1.1)));
        let digest = Digest {
            arrivals: &arrivals,
            rtt_s: Some(0.02),
            ..Digest::default()
        };
        measure.update(&digest, 1.2);
        assert!(measure.queue_s < 1e-6);
    }
}
