//! Round-trip times of a path: smoothed, and the minimum of the recent past.
//!
//! In: samples, and a guess of the peer. Samples of packets that overtook the others are refused.

use std::time::Duration;

use crate::{overtakers::Overtakers, time::Time};

/// Smoothed and minimum round-trip time.
#[derive(Debug)]
pub(crate) struct Rtt {
    smoothed: Duration,
    /// Minima of the present and the previous half of the window.
    minima: [Option<Duration>; 2],
    half_began: Time,
    has_sample: bool,
    overtakers: Overtakers,
}

/// The minimum is taken over the last 15 to 30 s: long enough to outlast a queue that we build
/// ourselves, short enough to follow a change of route.
const HALF_WINDOW: Duration = Duration::from_secs(15);

impl Rtt {
    /// Starts from a guess, which the first sample replaces.
    pub(crate) fn new(guess: Duration) -> Self {
        Self {
            smoothed: guess,
            minima: [None, None],
            half_began: Time::default(),
            has_sample: false,
            overtakers: Overtakers::new(),
        }
    }

    /// Takes in the peer's measurement, unless there is a sample of our own.
    pub(crate) fn suggest(&mut self, guess: Duration) {
        if !self.has_sample {
            self.smoothed = guess;
        }
    }

    /// Takes in a sample, unless its packet overtook the others. Returns whether the sample was taken.
    pub(crate) fn sample(&mut self, rtt: Duration, now: Time) -> bool {
        let base_s = self.base().as_secs_f64();
        let visible_s = (self.smoothed.as_secs_f64() / 16.0).max(0.002);
        let now_s = now.seconds_since(Time::default());
        let overtakers = &mut self.overtakers;
        if self.has_sample && overtakers.is_one(rtt.as_secs_f64(), now_s, Some(base_s), visible_s) {
            return false;
        }
        if self.has_sample {
            self.smoothed = (self.smoothed * 7 + rtt) / 8;
        } else {
            self.smoothed = rtt;
            self.half_began = now;
            self.has_sample = true;
        }
        let window = HALF_WINDOW.max(self.smoothed * 10);
        if now.since(self.half_began) > window {
            self.minima = [None, self.minima[0]];
            self.half_began = now;
        }
        self.minima[0] = Some(self.minima[0].map_or(rtt, |least| least.min(rtt)));
        true
    }

    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// The least round-trip time of the recent past; the guess while there is none.
    pub(crate) fn base(&self) -> Duration {
        self.minima
            .iter()
            .flatten()
            .min()
            .copied()
            .unwrap_or(self.smoothed)
    }

    pub(crate) fn measured(&self) -> Option<Duration> {
        self.has_sample.then_some(self.smoothed)
    }
}
