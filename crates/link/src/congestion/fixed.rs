//! Controller that sends at a fixed rate.
//!
//! Operators use the controller on links with reserved capacity. The benches use it as a baseline.
//!
//! The sending rate does not depend on the peer's reports. Only the window depends on the
//! round-trip time.

use super::{Controller, Digest, PathMemory};

/// Controller that sends at one fixed rate and ignores the peer's reports.
#[derive(Debug, Clone)]
pub struct FixedRate {
    rate_bytes_per_s: f64,
    rtt_s: f64,
}

impl FixedRate {
    /// Creates a controller for `rate_bytes_per_s` bytes per second on the wire.
    pub fn new(rate_bytes_per_s: f64) -> Self {
        Self {
            rate_bytes_per_s,
            rtt_s: 1.0,
        }
    }
}

impl Controller for FixedRate {
    fn on_sent(&mut self, _: u64, _: usize, _: f64) {}

    fn on_report(&mut self, digest: &Digest<'_>, _: f64) {
        if let Some(rtt_s) = digest.rtt_s {
            self.rtt_s = self.rtt_s.min(rtt_s);
        }
    }

    fn rate_bytes_per_s(&self) -> f64 {
        self.rate_bytes_per_s
    }

    /// Returns three bandwidth-delay products: one for packets in flight, one for packets whose
    /// reports are in flight, and one for a queue.
    fn window_bytes(&self) -> f64 {
        3.0 * self.rate_bytes_per_s * self.rtt_s.max(0.02)
    }

    fn memory(&self) -> Option<PathMemory> {
        Some(PathMemory {
            capacity_bytes_per_s: self.rate_bytes_per_s,
            loss_floor: 0.0,
        })
    }

    fn state(&self) -> &'static str {
        "fixed"
    }
}
