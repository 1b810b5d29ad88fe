//! One-way delays of packets in excess of the base delay. The base delay is the shortest delay of
//! the recent past.
//!
//! The input is packet arrivals. The first output is the arrivals that are evidence about the path.
//! The second output is the least excess delay of each bucket of packets, and the jitter of delays.
//!
//! The fastest packets of a bucket may have overtaken other packets, so they do not count. In a
//! bucket of 16 or more packets, *least* therefore means the first quartile.
//!
//! The clocks of the two gateways need not agree, because only differences of delays count. The
//! module [`queue`](super) interprets the excess.

use super::{
    super::extremes::{WindowedMax, WindowedMin, path_window_s},
    visible_delay_s,
};
use crate::congestion::knee::Mechanism;
use crate::{congestion::PacketArrival, overtaking_detector::OvertakingDetector};

/// One-way delays of packets, and their base delay.
#[derive(Debug)]
pub(super) struct OneWayDelays {
    detector: OvertakingDetector,
    /// Base delay before a pause, in seconds. A packet with a shorter delay may have overtaken
    /// other packets.
    base_before_pause_s: Option<f64>,
    base: WindowedMin,
    /// Highest packet number that has arrived. Packets that overtook other packets do not count.
    newest: u64,
    bucket: DelayBucket,
    /// Least delay in the previous bucket of packets, in seconds.
    least_before_s: Option<f64>,
    /// Largest jitter within [`path_window_s`], in seconds.
    jitter: WindowedMax,
    /// Jitter in the previous bucket of packets, in seconds.
    jitter_before_s: f64,
}

impl OneWayDelays {
    pub(super) fn new() -> Self {
        Self {
            detector: OvertakingDetector::new(),
            base_before_pause_s: None,
            base: WindowedMin::default(),
            newest: 0,
            bucket: DelayBucket::default(),
            least_before_s: None,
            jitter: WindowedMax::default(),
            jitter_before_s: 0.0,
        }
    }

    /// Returns the measurements that stay valid after a pause.
    pub(super) fn after_pause(self) -> Self {
        Self {
            base_before_pause_s: self.base.get().or(self.base_before_pause_s),
            detector: self.detector,
            ..Self::new()
        }
    }

    /// Whether the arrival is evidence about the path: the packet neither overtook other packets
    /// nor arrived after later packets.
    ///
    /// A packet that arrives after later packets shows only its own delay, not the delay of a
    /// queue. Such packets are frequent when the sender pauses.
    pub(super) fn is_telling(&mut self, arrival: &PacketArrival, base_rtt_s: f64) -> bool {
        if Mechanism::Overtakers.acts(self.is_overtaker(arrival, base_rtt_s))
            || Mechanism::Stragglers.acts(self.newest >= arrival.number)
        {
            return false;
        }
        self.newest = arrival.number;
        true
    }

    fn is_overtaker(&mut self, arrival: &PacketArrival, base_rtt_s: f64) -> bool {
        let delay_s = arrival.received_s - arrival.sent_s;
        let visible_s = visible_delay_s(base_rtt_s);
        let base_s = self.base.get().or(self.base_before_pause_s);
        let detector = &mut self.detector;
        detector.is_overtaking(delay_s, arrival.received_s, base_s, visible_s)
            // The delays of a train's packets are not measured.
            && !(arrival.in_train && base_s.is_none())
    }

    /// Adds the delay of an arrival. `is_fresh` states whether the packet was sent after the last
    /// cut.
    ///
    /// If the arrival completes a bucket of packets, returns the least delay of the bucket in
    /// excess of the base delay, in seconds.
    pub(super) fn insert(
        &mut self,
        arrival: &PacketArrival,
        is_fresh: bool,
        base_rtt_s: f64,
        now_s: f64,
    ) -> Option<f64> {
        if is_fresh && !self.bucket.is_fresh {
            self.bucket.clear();
            self.bucket.is_fresh = true;
        }
        self.bucket.push(arrival);
        let span_s = arrival.received_s - self.bucket.first_received_s;
        let count = self.bucket.delays_s.len();
        let is_full = count >= BUCKET_COUNT && span_s >= BUCKET_SPAN * base_rtt_s
            || count >= BUCKET_COUNT_MAX;
        is_full.then(|| self.judge_bucket(span_s, base_rtt_s, now_s))?
    }

    fn judge_bucket(&mut self, span_s: f64, base_rtt_s: f64, now_s: f64) -> Option<f64> {
        let least_s = self.bucket.least_s(AHEAD * base_rtt_s)?;
        let least_before_s = self.least_before_s.replace(least_s).unwrap_or(least_s);
        // If only one bucket has a short delay, a clock or a scheduler may be the cause.
        let seen_twice_s = Mechanism::BaseSeenTwice.value(least_s.max(least_before_s), least_s);
        // While a queue drains, the least delay falls. A bucket of more than a round trip shows no
        // jitter, since a queue can build and drain within it.
        let jitter_s = if span_s <= base_rtt_s {
            self.bucket.fall_s(least_s) - (least_before_s - least_s).max(0.0)
        } else {
            0.0
        };
        let jitter_before_s = std::mem::replace(&mut self.jitter_before_s, jitter_s);
        let jittered_twice_s = jitter_s.min(jitter_before_s).max(0.0);
        self.jitter
            .insert(jittered_twice_s, now_s, path_window_s(base_rtt_s));
        self.base
            .insert(seen_twice_s, now_s, path_window_s(base_rtt_s));
        let base_s = self.base.get().unwrap_or(least_s);
        self.bucket.clear();
        Some((least_s - base_s).max(0.0))
    }

    /// Returns the jitter in seconds: how far the delays fall and rise again within a short time.
    ///
    /// While a queue grows, delays only rise. While a queue shrinks, delays only fall. Jitter makes
    /// delays rise and fall.
    pub(super) fn jitter_s(&self) -> f64 {
        self.jitter.get().unwrap_or(0.0)
    }

    /// Discards the present bucket at a cut. Its delays were measured before the cut.
    pub(super) fn forget_bucket(&mut self) {
        self.bucket.is_fresh = false;
        self.bucket.clear();
    }

    /// Discards the base delay because it is too old.
    pub(super) fn forget_base(&mut self) {
        self.base = WindowedMin::default();
        self.least_before_s = None;
        self.jitter = WindowedMax::default();
        self.jitter_before_s = 0.0;
    }

    pub(super) fn base_is_known(&self) -> bool {
        self.base.get().is_some()
    }

    /// Raises the base delay by `excess_s` seconds.
    pub(super) fn rebase(&mut self, excess_s: f64, now_s: f64) {
        if let Some(base_s) = self.base.get() {
            self.base.reset(base_s + excess_s, now_s);
        }
    }

    /// Sets the base delay as if it had been measured.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, base_s: f64, now_s: f64) {
        self.base.insert(base_s, now_s, path_window_s(base_s));
    }
}

/// One-way delays of packets that arrived consecutively.
#[derive(Debug, Default)]
struct DelayBucket {
    delays_s: Vec<f64>,
    first_received_s: f64,
    /// Whether the packets were sent after the last cut.
    is_fresh: bool,
}

impl DelayBucket {
    fn clear(&mut self) {
        self.delays_s.clear();
    }

    fn push(&mut self, arrival: &PacketArrival) {
        // If the clock has jumped, a later packet may have an earlier receive time.
        if self.delays_s.is_empty() || arrival.received_s < self.first_received_s {
            self.first_received_s = arrival.received_s;
        }
        self.delays_s.push(arrival.received_s - arrival.sent_s);
    }

    /// Returns the largest decrease of the delay within the bucket, in seconds. Delays below
    /// `least_s` count as `least_s`.
    fn fall_s(&self, least_s: f64) -> f64 {
        let mut longest_s = f64::NEG_INFINITY;
        let falls_s = self.delays_s.iter().map(|delay_s| {
            longest_s = longest_s.max(*delay_s);
            longest_s - delay_s.max(least_s)
        });
        falls_s.fold(0.0, f64::max)
    }

    /// Returns the least delay of the bucket, without packets that may have overtaken other
    /// packets.
    ///
    /// In a bucket of at least [`MANY`] packets, the fastest quarter does not count.
    ///
    /// In a smaller bucket, each delay of the fastest quarter is compared with another delay. This
    /// other delay stands a quarter of the bucket later in the sorted order. The shorter delay is
    /// excluded only if the difference is at least `ahead_s`.
    fn least_s(&self, ahead_s: f64) -> Option<f64> {
        let mut delays_s = self.delays_s.clone();
        delays_s.sort_unstable_by(f64::total_cmp);
        let few = delays_s.len() / FAST_EACH;
        let few = if Mechanism::FastSetAside.acts(few > 0) {
            few
        } else {
            0
        };
        let is_shared = |place: &usize| delays_s[place + few] - delays_s[*place] < ahead_s;
        let place = if Mechanism::FewAhead.acts(delays_s.len() < MANY) {
            (0..few).find(is_shared).unwrap_or(few)
        } else {
            few
        };
        delays_s.get(place).copied()
    }
}

/// Least size of a bucket: this number of packets, and this fraction of a round trip. The bucket is
/// short enough to be recent, and has enough packets to remove the jitter of single packets.
const BUCKET_COUNT: usize = 4;
const BUCKET_SPAN: f64 = 1.0 / 8.0;
/// Maximum number of packets in a bucket. The limit applies even if the peer's clock hardly
/// advances.
const BUCKET_COUNT_MAX: usize = 4096;
/// Divisor of the bucket size. The quotient is the number of packets in a bucket that may have
/// overtaken other packets.
///
/// Packets that were overtaken do not enter the bucket. Overtaking packets are therefore several
/// times more frequent in a bucket than on the path.
const FAST_EACH: usize = 4;
/// Least lead of an overtaking packet, as a fraction of the base round-trip time. The value applies
/// to a bucket of fewer than [`MANY`] packets.
///
/// In a small bucket, jitter makes the distance between two delays larger than in a large bucket.
const AHEAD: f64 = 1.0 / 5.0;
/// Least number of packets in a large bucket. The fastest quarter of a large bucket never counts. A
/// quarter of fewer than four packets is too small to be typical.
const MANY: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(number: u64, delay_s: f64) -> PacketArrival {
        let sent_s = number as f64 * 1e-3;
        PacketArrival {
            number,
            sent_s,
            received_s: sent_s + delay_s,
            sent_bytes_before: number * 1500,
            in_train: false,
        }
    }

    /// Inserts arrivals on a path of 20 ms, all sent after the last cut. Returns the last measured
    /// excess delay.
    fn insert(
        delays: &mut OneWayDelays,
        arrivals: impl IntoIterator<Item = PacketArrival>,
    ) -> Option<f64> {
        let mut shown_s = None;
        for arrival in arrivals {
            if delays.is_telling(&arrival, 0.02) {
                shown_s = delays.insert(&arrival, true, 0.02, 0.0).or(shown_s);
            }
        }
        shown_s
    }

    #[test]
    fn stragglers_and_overtakers_say_nothing_of_the_path() {
        let mut delays = OneWayDelays::new();
        insert(&mut delays, (1..100).map(|number| arrival(number, 0.01)));
        assert!(delays.is_telling(&arrival(100, 0.01), 0.02));
        assert!(!delays.is_telling(&arrival(50, 0.06), 0.02), "a straggler");
        assert!(!delays.is_telling(&arrival(101, 0.001), 0.02));
    }

    /// Each overtaking packet is only a little faster than the others. The detector therefore
    /// detects none of these packets.
    #[test]
    fn the_few_that_overtake_by_little_do_not_make_the_base() {
        let rtt_s = 0.18;
        let ahead_s = 0.8 * visible_delay_s(rtt_s);
        // The choice of packets is random, but the same in each run.
        let mut state = 1_u64;
        let mut overtakes = || {
            let (factor, term) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
            state = state.wrapping_mul(factor).wrapping_add(term);
            (state >> 33).is_multiple_of(100)
        };
        let mut arrivals: Vec<PacketArrival> = Vec::new();
        for number in 1..10_000 {
            let sent_s = number as f64 * 2e-4;
            let delay_s = if overtakes() { 0.09 - ahead_s } else { 0.09 };
            arrivals.push(PacketArrival {
                sent_s,
                received_s: sent_s + delay_s,
                ..arrival(number, 0.0)
            });
        }
        arrivals.sort_by(|a, b| a.received_s.total_cmp(&b.received_s));
        let mut delays = OneWayDelays::new();
        for arrival in arrivals {
            if delays.is_telling(&arrival, rtt_s)
                && let Some(shown_s) = delays.insert(&arrival, true, rtt_s, arrival.received_s)
            {
                assert!(shown_s < 1e-9, "{shown_s} at {}", arrival.number);
            }
        }
        assert!(delays.base_is_known());
    }

    /// Returns the measured jitter of 200 packets, sent one per millisecond.
    fn jitter_s(delay_s: impl Fn(u64) -> f64) -> f64 {
        let mut delays = OneWayDelays::new();
        insert(&mut delays, (1..200).map(|it| arrival(it, delay_s(it))));
        delays.jitter_s()
    }

    #[test]
    fn delays_that_rise_and_fall_again_and_again_are_jitter() {
        let jitters = |number| 0.01 + (number % 2) as f64 * 1.5e-3;
        assert!((jitter_s(jitters) - 1.5e-3).abs() < 1e-9);
    }

    #[test]
    fn a_queue_that_grows_or_drains_and_a_hiccup_are_no_jitter() {
        assert_eq!(jitter_s(|number| 0.01 + number as f64 * 1e-4), 0.0);
        assert_eq!(jitter_s(|number| 0.05 - number as f64 * 1e-4), 0.0);
        let comes_and_goes = |number: u64| 0.05 - number.abs_diff(100) as f64 * 1e-4;
        assert_eq!(jitter_s(comes_and_goes), 0.0);
        let hiccup = |number| if number == 100 { 0.015 } else { 0.01 };
        assert_eq!(jitter_s(hiccup), 0.0);
    }

    #[test]
    fn a_queue_that_comes_and_goes_within_a_slow_bucket_is_no_jitter() {
        let mut delays = OneWayDelays::new();
        let arrivals = (1..200).map(|number| {
            let slow = arrival(10 * number, 0.0);
            let delay_s = 0.01 + (number % 4) as f64 * 2e-3;
            PacketArrival {
                received_s: slow.sent_s + delay_s,
                ..slow
            }
        });
        insert(&mut delays, arrivals);
        assert_eq!(delays.jitter_s(), 0.0);
    }

    #[test]
    fn a_fast_quarter_of_a_bucket_is_no_fall() {
        let fall_ms = |fast: u64| {
            let delay_s = |number: u64| if number % 16 < fast { 0.008 } else { 0.01 };
            let mut bucket = DelayBucket::default();
            for number in 1..=16 {
                bucket.push(&arrival(number, delay_s(number)));
            }
            let least_s = bucket.least_s(4e-3).expect("it has packets");
            (bucket.fall_s(least_s) * 1e3).round()
        };
        assert_eq!(fall_ms(4), 0.0);
        assert_eq!(fall_ms(5), 2.0);
    }

    #[test]
    fn jitter_is_not_known_on_another_route() {
        let mut delays = OneWayDelays::new();
        let jitters = |number| arrival(number, 0.01 + (number % 2) as f64 * 1.5e-3);
        insert(&mut delays, (1..200).map(jitters));
        assert!(delays.jitter_s() > 1e-3);
        delays.forget_base();
        assert_eq!(delays.jitter_s(), 0.0);
    }

    #[test]
    fn what_a_bucket_shows_is_the_excess_over_the_base() {
        let mut delays = OneWayDelays::new();
        let usual = (1..100).map(|number| arrival(number, 0.01));
        assert_eq!(insert(&mut delays, usual), Some(0.0));
        let waits = (100..200).map(|number| arrival(number, 0.015));
        let shown_s = insert(&mut delays, waits).expect("buckets were full");
        assert!((shown_s - 0.005).abs() < 1e-9);
        delays.rebase(shown_s, 0.3);
        let no_more = (200..300).map(|number| arrival(number, 0.015));
        assert!(insert(&mut delays, no_more).expect("as before") < 1e-9);
    }
}
