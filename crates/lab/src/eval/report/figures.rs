//! Plots: each quantity that varies within a plan makes one, for each combination of the others.

use std::collections::BTreeSet;

use super::{Report, Row};
use crate::{
    eval::cell::{Cell, Work},
    plot::{Axis, Mark, Plot, Series},
};

/// A quantity of cells that a plot may run over.
struct Dimension {
    name: &'static str,
    axis: fn() -> Axis,
    value: fn(&Cell) -> Option<f64>,
}

const DIMENSIONS: [Dimension; 6] = [
    Dimension {
        name: "RTT",
        axis: || Axis::linear("RTT, ms"),
        value: |cell| Some(cell.path.rtt_ms),
    },
    Dimension {
        name: "loss",
        axis: || Axis::linear("loss, %"),
        value: |cell| Some(cell.path.loss * 100.0),
    },
    Dimension {
        name: "corruption",
        axis: || Axis::linear("corruption, %"),
        value: |cell| Some(cell.path.corruption * 100.0),
    },
    Dimension {
        name: "reordering",
        axis: || Axis::linear("reordering, %"),
        value: |cell| Some(cell.path.reordering * 100.0),
    },
    Dimension {
        name: "TCP window",
        axis: || Axis::logarithmic("TCP window, KiB"),
        value: |cell| Some(cell.work.window_bytes? as f64 / 1024.0),
    },
    Dimension {
        name: "size",
        axis: || Axis::logarithmic("file, MB"),
        value: |cell| Some(cell.work.size_bytes as f64 / 1e6),
    },
];

/// More combinations than this make no picture; the tables have them.
const PLOTS_PER_DIMENSION_MAX: usize = 12;

impl Report {
    /// Goodput over each quantity that varies, and the distribution of all fractions of the ideal.
    pub(super) fn plots(&self) -> Vec<Plot> {
        let cells = self.cells();
        let mut plots = Vec::new();
        for dimension in &DIMENSIONS {
            let mut groups: Vec<(String, Vec<&Cell>)> = Vec::new();
            let with_value = cells
                .iter()
                .filter(|cell| (dimension.value)(cell).is_some());
            for cell in with_value {
                let label = others(cell, dimension);
                match groups.iter_mut().find(|(name, _)| *name == label) {
                    Some((_, group)) => group.push(cell),
                    None => groups.push((label, vec![cell])),
                }
            }
            let varies = groups.into_iter().filter(|(_, group)| {
                let first = (dimension.value)(group[0]);
                group.iter().any(|cell| (dimension.value)(cell) != first)
            });
            let of_group = varies.take(PLOTS_PER_DIMENSION_MAX);
            plots.extend(of_group.map(|(label, group)| self.over(dimension, &label, &group)));
        }
        plots.extend(self.waits());
        plots.extend(self.distribution());
        plots
    }

    fn over(&self, dimension: &Dimension, label: &str, cells: &[&Cell]) -> Plot {
        let series = self.sides.iter().map(|side| {
            let mut points: Vec<(f64, f64)> = cells
                .iter()
                .filter_map(|cell| {
                    let rate = self.row(cell, *side)?.goodput_bits_per_s()?;
                    Some(((dimension.value)(cell)?, rate / 1e6))
                })
                .collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            Series {
                label: side.title().to_owned(),
                points,
                mark: Mark::LineAndPoints,
            }
        });
        Plot {
            title: format!("Goodput over {}: {label}", dimension.name),
            x: (dimension.axis)(),
            y: Axis::linear("Mbit/s"),
            series: series.collect(),
        }
    }

    /// The distribution of waits, for each cell and what was waited for.
    fn waits(&self) -> Vec<Plot> {
        let mut plots = Vec::new();
        for cell in self.cells() {
            let rows: Vec<_> = self.rows.iter().filter(|row| row.cell == *cell).collect();
            let awaited: BTreeSet<_> = rows.iter().flat_map(|row| row.awaited()).collect();
            plots.extend(awaited.into_iter().map(|what| {
                let waits = |row: &&Row| (row.side.title().to_owned(), row.waits_s(&what));
                let samples: Vec<_> = rows.iter().map(waits).collect();
                let title = format!("Waits for {what}: {cell}");
                Plot::cdf(&title, Axis::logarithmic("seconds"), &samples)
            }));
        }
        plots
    }

    /// All fractions of the ideal that each side reached; `None` if nothing was about bytes.
    pub(super) fn distribution(&self) -> Option<Plot> {
        let samples = self.sides.iter().map(|side| {
            let rows = self.rows.iter().filter(|row| row.side == *side);
            let records = rows.flat_map(|row| &row.records);
            let values = records.filter_map(|record| record.efficiency());
            (side.title().to_owned(), values.collect())
        });
        let samples: Vec<(String, Vec<f64>)> = samples.collect();
        let x = Axis::linear("fraction of the ideal");
        let any = samples.iter().any(|(_, values)| !values.is_empty());
        any.then(|| Plot::cdf("Distribution over all trials", x, &samples))
    }
}

/// What cells of one plot have in common, in words.
fn others(cell: &Cell, dimension: &Dimension) -> String {
    let mut common = cell.clone();
    let mut left_out = String::new();
    match dimension.name {
        "RTT" => common.path.rtt_ms = 0.0,
        "loss" => common.path.loss = 0.0,
        "corruption" => common.path.corruption = 0.0,
        "reordering" => common.path.reordering = 0.0,
        "TCP window" => common.work.window_bytes = None,
        _ => {
            common.work.size_bytes = 0;
            let Work {
                files, direction, ..
            } = cell.work;
            left_out = format!("{}, {files} files {direction}", cell.path);
        }
    }
    if left_out.is_empty() {
        let text = common.to_string();
        let zero = match dimension.name {
            "RTT" => ", 0 ms",
            "loss" => ", loss 0%",
            _ => "",
        };
        text.replacen(zero, "", 1)
    } else {
        left_out
    }
}
