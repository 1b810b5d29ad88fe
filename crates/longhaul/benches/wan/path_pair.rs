//! Routes: the paths between the two sites in both directions, and the goodput of a perfect sender
//! from site A to site B.

use std::time::Duration;

use units::{BitRate, ByteCount};
use wansim::PathConfig;

use crate::cell::PAYLOAD_SHARE;

/// The two paths of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct PathPair {
    /// Path from site A to site B, in the direction of the data.
    pub forward: PathConfig,
    pub backward: PathConfig,
    /// Round-trip time without queueing delay, for packets that do not overtake other packets.
    pub rtt: Duration,
}

impl PathPair {
    /// Creates a route with the same path in both directions. It has the default queue and no
    /// impairments.
    pub fn plain(rate: BitRate, rtt: Duration) -> Self {
        let path = PathConfig::line(rate, rtt);
        Self {
            forward: path.clone(),
            backward: path,
            rtt,
        }
    }

    /// Applies `change` to the paths of both directions.
    pub fn with(mut self, change: impl Fn(&mut PathConfig)) -> Self {
        change(&mut self.forward);
        change(&mut self.backward);
        self
    }

    /// Applies `change` to the path in the direction of the data.
    pub fn with_forward(mut self, change: impl Fn(&mut PathConfig)) -> Self {
        change(&mut self.forward);
        self
    }

    /// Returns the path from A to B, and the path from B to A.
    pub fn paths(&self) -> [PathConfig; 2] {
        [self.forward.clone(), self.backward.clone()]
    }

    /// Returns the goodput of a perfect sender, as defined in `docs/measuring.md`.
    pub fn goodput_bytes_per_s(&self) -> f64 {
        let rate = self.forward.rate.map_or(0.0, BitRate::as_bytes_per_s);
        rate * PAYLOAD_SHARE * (1.0 - self.lost())
    }

    /// Returns the number of bytes that a perfect sender delivers in this time.
    pub fn size(&self, sending: Duration) -> ByteCount {
        ByteCount::new((sending.as_secs_f64() * self.goodput_bytes_per_s()) as u64)
    }

    /// Returns the time that a perfect sender needs for a transfer.
    pub fn ideal(&self, size: ByteCount) -> Duration {
        let trips = if self.lost() > 0.0 { 2 } else { 1 };
        let sending = size.bytes() as f64 / self.goodput_bytes_per_s();
        Duration::from_secs_f64(sending) + trips * self.rtt
    }

    /// Returns the fraction of data packets that are lost or corrupted.
    pub fn lost(&self) -> f64 {
        let path = &self.forward;
        let in_bursts = path.bursts.map_or(0.0, |chain| chain.mean_loss());
        1.0 - (1.0 - path.loss) * (1.0 - in_bursts) * (1.0 - path.corruption)
    }
}
