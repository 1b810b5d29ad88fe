//! Histograms of durations and rates. Except for the longest duration, each bound is about three
//! times the preceding bound.

use serde::{Deserialize, Serialize};

/// Histogram: the number of values in each interval of a scale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Number of values in each interval. An interval ends at the bound with the same index, and
    /// starts at the preceding bound. The last count is for values above all bounds.
    pub counts: [u64; BOUNDS + 1],
    /// Sum of all values.
    pub sum: f64,
}

/// Bounds of a histogram's intervals, in ascending order.
pub(crate) type HistogramScale = [f64; BOUNDS];

impl Histogram {
    pub(super) fn add(&mut self, scale: &HistogramScale, value: f64) {
        self.counts[scale.partition_point(|bound| *bound < value)] += 1;
        self.sum += value;
    }

    /// Returns each bound with the number of values that do not exceed it. The last item is
    /// infinity with the number of all values.
    pub(super) fn cumulated(&self, scale: &HistogramScale) -> impl Iterator<Item = (f64, u64)> {
        let bounds = scale.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts).scan(0, |below, (bound, count)| {
            *below += count;
            Some((bound, *below))
        })
    }
}

const BOUNDS: usize = 11;

/// Bounds for the durations of transfers, in seconds. The range covers small files and the contents
/// of a large disk.
pub(super) const SECONDS: HistogramScale = [
    0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0, 36000.0,
];

/// Bounds for the rates of transfers, in bits per second.
pub(super) const BITS_PER_S: HistogramScale =
    [1e5, 3e5, 1e6, 3e6, 1e7, 3e7, 1e8, 3e8, 1e9, 3e9, 1e10];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_bound_counts_there_and_all_count_at_the_end() {
        let mut histogram = Histogram::default();
        for value in [0.05, 0.1, 0.2, 36000.0, 1e9] {
            histogram.add(&SECONDS, value);
        }
        let cumulated: Vec<_> = histogram.cumulated(&SECONDS).collect();
        assert_eq!(cumulated[0], (0.1, 2));
        assert_eq!(cumulated[1], (0.3, 3));
        assert_eq!(cumulated[10], (36000.0, 4));
        assert_eq!(cumulated[11], (f64::INFINITY, 5));
        assert_eq!(histogram.sum, 0.05 + 0.1 + 0.2 + 36000.0 + 1e9);
    }
}
