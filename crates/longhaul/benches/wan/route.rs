//! Both directions of the path between the sites, and what a perfect sender gets through from A to B.

use std::time::Duration;

use units::{BitRate, ByteCount};
use wansim::PathConfig;

use crate::cell::PAYLOAD_SHARE;

/// The paths of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// From A to B, which is the way of the data.
    pub forward: PathConfig,
    pub backward: PathConfig,
    /// Round-trip time of what does not overtake, without a queue.
    pub rtt: Duration,
}

impl Route {
    /// The same both ways, with the default queue, and nothing else that disturbs.
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

    /// A to B, then B to A.
    pub fn paths(&self) -> [PathConfig; 2] {
        [self.forward.clone(), self.backward.clone()]
    }

    /// What a perfect sender gets through: `docs/measuring.md`.
    pub fn goodput_bytes_per_s(&self) -> f64 {
        let rate = self.forward.rate.map_or(0.0, BitRate::as_bytes_per_s);
        rate * PAYLOAD_SHARE * (1.0 - self.lost())
    }

    /// What a perfect sender gets through in this time.
    pub fn size(&self, sending: Duration) -> ByteCount {
        ByteCount::new((sending.as_secs_f64() * self.goodput_bytes_per_s()) as u64)
    }

    /// The time that a perfect sender needs.
    pub fn ideal(&self, size: ByteCount) -> Duration {
        let trips = if self.lost() > 0.0 { 2 } else { 1 };
        let sending = size.bytes() as f64 / self.goodput_bytes_per_s();
        Duration::from_secs_f64(sending) + trips * self.rtt
    }

    /// Share of the packets that do not arrive whole, of those with data.
    pub fn lost(&self) -> f64 {
        let path = &self.forward;
        let in_bursts = path.bursts.map_or(0.0, |chain| chain.mean_loss());
        1.0 - (1.0 - path.loss) * (1.0 - in_bursts) * (1.0 - path.corruption)
    }
}
