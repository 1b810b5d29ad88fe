//! Plots of results, as SVG for a page or as characters for a terminal.

#[cfg_attr(not(feature = "plotter"), path = "no_svg.rs")]
mod svg;
mod text;

use crate::stats;

/// A plot of several series with two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// Subject of the plot.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Series, in the order of the legend.
    pub series: Vec<Series>,
}

/// An axis. Its range includes all values of the series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// Quantity of the axis, with its unit.
    pub label: String,
    /// Scale of the axis: linear or logarithmic.
    pub scale: Scale,
}

/// Relation between values and positions on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Positions are proportional to values. The axis begins at zero or at the lowest negative
    /// value.
    #[default]
    Linear,
    /// Positions are proportional to the logarithms of values. Values of zero or below are not
    /// shown.
    Logarithmic,
}

/// A series of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub label: String,
    /// Points with their horizontal and vertical values. A line joins the points in this order.
    pub points: Vec<(f64, f64)>,
    /// Style of the points.
    pub mark: Mark,
}

/// Style in which the points of a series are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mark {
    /// A line joins the points.
    #[default]
    Line,
    /// A line joins the points, and each point has a mark.
    LineAndPoints,
    /// Each point has a mark, and no line joins the points.
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
    /// Creates a plot of the cumulative distributions of samples. The vertical value is the
    /// fraction of values up to the horizontal value.
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

    /// Returns the lowest and the highest position on an axis. Returns `None` if there are no
    /// points.
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

    /// Returns the points that both axes can show, each with the index of its series.
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

    /// Formats the value at a position as a label of the axis.
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
