//! Statistics of repeated measurements of one quantity.

use serde::{Deserialize, Serialize};

/// Summary statistics of a sample of values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// Least value.
    pub min: f64,
    /// Median: the middle value, or the mean of the two middle values.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// The 99th percentile. At least 99 % of the values are less than or equal to it.
    pub p99: f64,
    /// Largest value.
    pub max: f64,
}

impl Summary {
    /// Computes the summary of values in any order. Returns `None` if there are no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self {
            count: sorted.len(),
            min,
            median: median(values)?,
            mean: mean(&sorted),
            p99: quantile(&sorted, 0.99)?,
            max,
        })
    }
}

/// Returns the median of values in any order: the middle value, or the mean of the two middle
/// values. Returns `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Returns the arithmetic mean. Returns NaN if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the quantile for the fraction `share`. At least this fraction of all values is less than
/// or equal to the quantile. The values must be sorted in ascending order.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Returns the cumulative distribution as steps. Each step has a value, and the fraction of all
/// values that are less than or equal to this value.
///
/// If a sample has more values than a page can show, the result has several hundred steps at equal
/// distances in rank. The lowest and the highest value are always included.
pub fn cdf(values: &[f64]) -> Vec<(f64, f64)> {
    let sorted = sorted(values);
    if sorted.len() > CDF_POINTS {
        let last = sorted.len() - 1;
        let at = |point: usize| {
            let rank = point * last / (CDF_POINTS - 1);
            (sorted[rank], (rank + 1) as f64 / sorted.len() as f64)
        };
        return (0..CDF_POINTS).map(at).collect();
    }
    let count = sorted.len() as f64;
    let step = |(index, value): (usize, &f64)| {
        let [before, after] = [index, index + 1].map(|rank| rank as f64 / count);
        [(*value, before), (*value, after)]
    };
    sorted.iter().enumerate().flat_map(step).collect()
}

/// Maximum number of points in a plot on a page. It exceeds the width of a plot in pixels.
const CDF_POINTS: usize = 800;

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_tells_of_order_and_not_of_sequence() {
        let summary = Summary::of(&[5.0, 1.0, 3.0, 2.0, 4.0]).expect("values");
        assert_eq!((summary.min, summary.median, summary.max), (1.0, 3.0, 5.0));
        assert_eq!((summary.mean, summary.p99, summary.count), (3.0, 5.0, 5));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn a_large_distribution_keeps_its_shape_and_its_ends() {
        let points = cdf(&(1..=100_000).map(f64::from).collect::<Vec<_>>());
        assert_eq!(points.len(), CDF_POINTS);
        assert_eq!(points[0].0, 1.0);
        assert_eq!(points[CDF_POINTS - 1], (100_000.0, 1.0));
        for (value, share) in points {
            assert!((value / 100_000.0 - share).abs() < 1e-9);
        }
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_distribution_climbs_from_nothing_to_all() {
        assert_eq!(
            cdf(&[2.0, 1.0]),
            [(1.0, 0.0), (1.0, 0.5), (2.0, 0.5), (2.0, 1.0)]
        );
        let sorted: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(quantile(&sorted, 0.99), Some(198.0));
        assert_eq!(quantile(&sorted, 0.0), Some(1.0));
    }
}
