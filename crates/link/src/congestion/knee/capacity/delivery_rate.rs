//! Delivery rate: bytes that arrive at the peer per second.
//!
//! The input is totals of the bytes that the peer has received, with times of the peer's clock. The
//! output is the delivery rate. Each lost packet lowers the delivery rate.

use std::collections::VecDeque;

/// Estimator of the rate at which bytes arrive at the peer.
#[derive(Debug, Default)]
pub(super) struct DeliveryRate {
    /// Totals of bytes received by the peer, each with its time in seconds of the peer's clock.
    counts: VecDeque<(u64, f64)>,
    /// Newest delivery rate in bytes per second. `None` before the first measurement.
    rate_bytes_per_s: Option<f64>,
}

impl DeliveryRate {
    pub(super) fn rate_bytes_per_s(&self) -> Option<f64> {
        self.rate_bytes_per_s
    }

    /// Adds a measurement: the total of bytes received and its time on the peer's clock.
    ///
    /// `base_s` is the base round-trip time of the path.
    pub(super) fn measure(&mut self, count: (u64, f64), base_s: f64) {
        let span_min_s = (SPAN * base_s).max(SPAN_MIN_S);
        if self.counts.back().is_some_and(|(_, at)| *at >= count.1) {
            return;
        }
        self.counts.push_back(count);
        while self
            .counts
            .get(1)
            .is_some_and(|(_, at)| count.1 - at >= span_min_s)
        {
            self.counts.pop_front();
        }
        let first = self.counts[0];
        let span_s = count.1 - first.1;
        if span_s >= span_min_s {
            self.rate_bytes_per_s = Some((count.0 - first.0.min(count.0)) as f64 / span_s);
        }
    }
}

/// Least time span of the measurement: a fraction of the base round-trip time, but at least
/// [`SPAN_MIN_S`].
///
/// Random loss makes the delivery rate noisy. The delivery rate therefore needs a longer span than
/// the packet-number rate.
const SPAN: f64 = 0.75;
const SPAN_MIN_S: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_known_after_three_quarters_of_a_round_trip() {
        let mut delivered = DeliveryRate::default();
        delivered.measure((1000, 1.0), 0.1);
        delivered.measure((2000, 1.05), 0.1);
        assert_eq!(delivered.rate_bytes_per_s(), None);
        delivered.measure((3000, 1.1), 0.1);
        let rate_bytes_per_s = delivered.rate_bytes_per_s().expect("0.1 s have passed");
        assert!((rate_bytes_per_s - 20e3).abs() < 1.0, "{rate_bytes_per_s}");
        delivered.measure((9000, 1.1), 0.1);
        assert_eq!(
            delivered.rate_bytes_per_s(),
            Some(rate_bytes_per_s),
            "the clock stood still"
        );
    }
}
