//! Plots of results: as SVG for a page, and as characters for a terminal.

#[cfg_attr(not(feature = "plotter"), path = "no_svg.rs")]
mod svg;
mod text;

use crate::stats;

/// Several series over two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// What the plot shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// In the order of the legend.
    pub series: Vec<Series>,
}

/// An axis; it covers all values that the series have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// The quantity and its unit.
    pub label: String,
    /// How values become distances.
    pub scale: Scale,
}

/// How values become distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Distances are in proportion to values; the axis begins at zero or below.
    #[default]
    Linear,
    /// Distances are in proportion to logarithms; values that are not above zero are left out.
    Logarithmic,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Horizontal and vertical values, in the order in which a line joins them.
    pub points: Vec<(f64, f64)>,
    /// How the points are shown.
    pub mark: Mark,
}

/// How points are shown.
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
    /// A linear axis.
    pub fn linear(label: &str) -> Self {
        Self::new(label, Scale::Linear)
    }

    /// A logarithmic axis.
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
    /// The cumulative distributions of samples: which share of the values lies below each value.
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

    /// The least and the largest place on an axis; `None` if there are no points.
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

    /// The points that both axes can show, each with the number of its series.
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

    /// A value as a label beside the axis.
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
