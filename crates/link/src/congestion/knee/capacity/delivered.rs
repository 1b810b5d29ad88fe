//! How many bytes arrive in a second?
//!
//! In: what the peer has received in all, by its own clock. Out: the delivered rate. Unlike the packet-number rate
//! it falls with each loss.

use std::collections::VecDeque;

/// The rate at which bytes arrive.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    /// Bytes received in all, and when, in seconds of the peer's clock.
    counts: VecDeque<(u64, f64)>,
    /// Bytes per second.
    rate: Option<f64>,
}

impl Delivered {
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Takes in a count of bytes and its time, on a path with the base RTT `base_s`.
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
            self.rate = Some((count.0 - first.0.min(count.0)) as f64 / span_s);
        }
    }
}

/// The delivered rate is measured over this part of a round trip and this time at least. Unlike the
/// capacity it is noisy by random loss, so the span is longer.
const SPAN: f64 = 0.75;
const SPAN_MIN_S: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_known_after_three_quarters_of_a_round_trip() {
        let mut delivered = Delivered::default();
        delivered.measure((1000, 1.0), 0.1);
        delivered.measure((2000, 1.05), 0.1);
        assert_eq!(delivered.rate(), None);
        delivered.measure((3000, 1.1), 0.1);
        let rate = delivered.rate().expect("0.1 s have passed");
        assert!((rate - 20e3).abs() < 1.0, "{rate}");
        delivered.measure((9000, 1.1), 0.1);
        assert_eq!(delivered.rate(), Some(rate), "the clock stood still");
    }
}
