//! Round-trip times of a path: the smoothed value, and the minimum of the recent past.
//!
//! Input: samples, and an estimate from the peer. Samples of overtaking packets are ignored.

use std::time::Duration;

use crate::{
    overtaking_detector::{FirstSamples, OvertakingDetector},
    time::Time,
};

/// Smoothed round-trip time and recent minimum of a path.
#[derive(Debug)]
pub(crate) struct Rtt {
    smoothed: Duration,
    /// Minimum in the present half of the time window, and in the previous half.
    minima: [Option<Duration>; 2],
    half_began: Time,
    latest: Option<Duration>,
    /// Time at which the last sample was added or requested.
    looked: Time,
    first: FirstSamples,
    detector: OvertakingDetector,
}

/// Half of the time window for the minimum. The minimum thus covers the last 15 to 30 s.
///
/// A queue of this sender's own packets ends within the window. The window is also short enough to
/// follow a change of route.
const HALF_WINDOW: Duration = Duration::from_secs(15);

/// Maximum age of a sample on an idle link: two keep-alive intervals of the peer.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(10);

impl Rtt {
    /// Creates the state with an estimated round-trip time. The first sample replaces the estimate.
    pub(crate) fn new(guess: Duration) -> Self {
        Self {
            smoothed: guess,
            minima: [None, None],
            half_began: Time::default(),
            latest: None,
            looked: Time::default(),
            first: FirstSamples::default(),
            detector: OvertakingDetector::new(),
        }
    }

    /// Sets the round-trip time to the value that the peer measured, unless this side has its own
    /// sample.
    pub(crate) fn suggest(&mut self, guess: Duration) {
        if self.latest.is_none() {
            self.smoothed = guess;
        }
    }

    /// Adds a sample, unless its packet overtook other packets. Returns whether the sample was
    /// added.
    pub(crate) fn sample(&mut self, rtt: Duration, now: Time) -> bool {
        let base_s = self.base().as_secs_f64();
        let visible_s = (self.smoothed.as_secs_f64() / 16.0).max(0.002);
        let now_s = now.seconds_since(Time::default());
        let detector = &mut self.detector;
        let is_overtaking =
            detector.is_overtaking(rtt.as_secs_f64(), now_s, Some(base_s), visible_s);
        if is_overtaking && self.first.is_over() {
            return false;
        }
        if self.latest.is_some() {
            self.smoothed = (self.smoothed * 7 + rtt) / 8;
        } else {
            self.smoothed = rtt;
            self.half_began = now;
        }
        self.latest = Some(rtt);
        self.looked = now;
        let window = HALF_WINDOW.max(self.smoothed * 10);
        let elapsed = now.since(self.half_began);
        if elapsed > window {
            let previous = self.minima[0].filter(|_| elapsed < 2 * window);
            self.minima = [None, previous];
            self.half_began = now;
        }
        self.minima[0] = match self.first.base_with(rtt.as_secs_f64(), 0.0) {
            Some(base_s) => Some(Duration::from_secs_f64(base_s)),
            None => Some(self.minima[0].map_or(rtt, |least| least.min(rtt))),
        };
        true
    }

    /// Discards earlier minimums, because the route has become longer.
    pub(crate) fn forget_base(&mut self, now: Time) {
        self.minima = [self.latest, None];
        self.half_began = now;
    }

    /// Returns whether the last sample is too old and a new sample must be requested. After it has
    /// returned `true`, the method returns `false` for [`SAMPLE_AGE_MAX`].
    pub(crate) fn take_wish(&mut self, now: Time) -> bool {
        let is_old = now.since(self.looked) >= SAMPLE_AGE_MAX;
        if is_old {
            self.looked = now;
        }
        is_old
    }

    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// Returns the minimum round-trip time of the recent past, or the estimate if there is no
    /// sample.
    pub(crate) fn base(&self) -> Duration {
        self.minima
            .iter()
            .flatten()
            .min()
            .copied()
            .unwrap_or(self.smoothed)
    }

    pub(crate) fn measured(&self) -> Option<Duration> {
        self.latest.map(|_| self.smoothed)
    }
}
