//! Route: both directions of the path between the sites, and the goodput of a perfect sender from A
//! to B.

use std::time::Duration;

use units::{BitRate, ByteCount};
use wansim::PathConfig;

use crate::cell::PAYLOAD_SHARE;

/// The paths of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// From A to B, the direction of the data.
    pub forward: PathConfig,
    pub backward: PathConfig,
    /// Round-trip time without queue, of packets that do not overtake others.
    pub rtt: Duration,
}

impl Route {
    /// Creates a route that is equal in both directions, with the default queue and no other
    /// impairment.
    pub fn plain(rate: BitRate, rtt: Duration) -> Self {
        let path = PathConfig::line(rate, rtt);
        Self {
            forward: path.clone(),
            backward: path,
            rtt,
        }
    }

    /// Changes both directions.
    pub fn with(mut self, change: impl Fn(&mut PathConfig)) -> Self {
        change(&mut self.forward);
        change(&mut self.backward);
        self
    }

    /// Changes the direction of the data.
    pub fn with_forward(mut self, change: impl Fn(&mut PathConfig)) -> Self {
        change(&mut self.forward);
        self
    }

    /// Returns the paths: A to B, then B to A.
    pub fn paths(&self) -> [PathConfig; 2] {
        [self.forward.clone(), self.backward.clone()]
    }

    /// Returns the goodput of a perfect sender: `docs/measuring.md`.
    pub fn goodput_bytes_per_s(&self) -> f64 {
        let rate = self.forward.rate.map_or(0.0, BitRate::as_bytes_per_s);
        rate * PAYLOAD_SHARE * (1.0 - self.lost())
    }

    /// Returns the bytes that a perfect sender delivers in this time.
    pub fn size(&self, sending: Duration) -> ByteCount {
        ByteCount::new((sending.as_secs_f64() * self.goodput_bytes_per_s()) as u64)
    }

    /// Returns the time of a perfect sender.
    pub fn ideal(&self, size: ByteCount) -> Duration {
        let trips = if self.lost() > 0.0 { 2 } else { 1 };
        let sending = size.bytes() as f64 / self.goodput_bytes_per_s();
        Duration::from_secs_f64(sending) + trips * self.rtt
    }

    /// Returns the share of data packets that do not arrive intact.
    pub fn lost(&self) -> f64 {
        let path = &self.forward;
        let in_bursts = path.bursts.map_or(0.0, |chain| chain.mean_loss());
        1.0 - (1.0 - path.loss) * (1.0 - in_bursts) * (1.0 - path.corruption)
    }
}
