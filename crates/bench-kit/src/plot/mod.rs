//! Plots of results: as SVG for a page, and as characters for a terminal.

#[cfg_attr(not(feature = "plotter"), path = "no_svg.rs")]
mod svg;
mod text;

use crate::stats;

/// Several series over two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// Subject of the plot.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Series in the order of the legend.
    pub series: Vec<Series>,
}

/// An axis, which covers all values of the series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// Scale of the axis.
    pub scale: Scale,
}

/// Relation between values and distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Distances are proportional to values. The axis begins at zero or below.
    #[default]
    Linear,
    /// Distances are proportional to logarithms. Values at zero or below are left out.
    Logarithmic,
}

/// A series of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub label: String,
    /// Horizontal and vertical values, in the order in which a line joins them.
    pub points: Vec<(f64, f64)>,
    /// Style of the points.
    pub mark: Mark,
}

/// Style of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mark {
    /// Joined by a line.
    #[default]
    Line,
    /// Joined by a line, and each marked.
    LineAndPoints,
    /// Marked and not joined.
    Points,
}

impl Axis {
    /// Creates a linear axis.
    pub fn linear(label: &str) -> Self {
        Self::new(label, Scale::Linear)
    }

    /// Creates a logarithmic axis.
    pub fn logarithmic(label: &str) -> Self {
        Self::new(label, Scale::Logarithmic)
    }

    fn new(label: &str, scale: Scale) -> Self {
        Self {
            label: label.to_owned(),
            scale,
        }
    }
}

impl Plot {
    /// Plots the cumulative distributions of samples: the share of values up to each value.
    pub fn cdf(title: &str, x: Axis, samples: &[(String, Vec<f64>)]) -> Self {
        let series = samples.iter().map(|(label, values)| Series {
            label: label.clone(),
            points: stats::cdf(values),
            mark: Mark::Line,
        });
        Self {
            title: title.to_owned(),
            x,
            y: Axis::linear("share of them"),
            series: series.collect(),
        }
    }

    /// Returns the least and the largest position on an axis. `None` without points.
    fn bounds(&self, axis: &Axis, of: impl Fn(&(f64, f64)) -> f64) -> Option<(f64, f64)> {
        let values = self
            .visible()
            .map(|(_, point)| axis.scale.place(of(&point)));
        let (min, max) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
            (min.min(value), max.max(value))
        });
        if min > max {
            return None;
        }
        let min = match axis.scale {
            Scale::Linear => min.min(0.0),
            Scale::Logarithmic => min,
        };
        let room = if max > min { 0.0 } else { 1.0 };
        Some((min, max + room))
    }

    /// Yields the points that both axes can show, each with the number of its series.
    fn visible(&self) -> impl Iterator<Item = (usize, (f64, f64))> {
        let shows = |axis: &Axis, value: f64| axis.scale.place(value).is_finite();
        let numbered = self.series.iter().enumerate();
        numbered
            .flat_map(|(number, series)| series.points.iter().map(move |point| (number, *point)))
            .filter(move |(_, (x, y))| shows(&self.x, *x) && shows(&self.y, *y))
    }
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic if value > 0.0 => value.log10(),
            Self::Logarithmic => f64::NAN,
        }
    }

    fn value(self, place: f64) -> f64 {
        match self {
            Self::Linear => place,
            Self::Logarithmic => 10f64.powf(place),
        }
    }

    /// Formats a value as a label beside the axis.
    fn label(self, place: f64) -> String {
        let value = self.value(place);
        match value.abs() {
            v if v >= 1e6 || v > 0.0 && v < 1e-3 => format!("{value:.0e}"),
            v if v >= 100.0 || (value - value.round()).abs() < 1e-9 => format!("{value:.0}"),
            v if v >= 1.0 => format!("{value:.1}"),
            _ => format!("{value:.3}").trim_end_matches('0').to_owned(),
        }
    }
}

#[cfg(all(test, feature = "plotter"))]
mod tests;
