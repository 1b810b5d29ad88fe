//! The plots of a report. If a quantity varies within a plan, the report has plots with this
//! quantity on the horizontal axis and the goodput on the vertical axis. There is one such plot for
//! each combination of the other quantities.

use std::collections::BTreeSet;

use super::{EvaluationReport, ReportRow};
use crate::cell::{Cell, WorkKind};
use bench_kit::plot::{Axis, Mark, Plot, Series};

/// A quantity of cells that can be the horizontal axis of a plot.
struct Dimension {
    name: &'static str,
    axis: fn() -> Axis,
    value: fn(&Cell) -> Option<f64>,
    /// Function that removes the quantity from a cell. Cells that are then equal share a plot.
    clear: fn(&mut Cell),
    /// Text that replaces the removed quantity in the description of a cell.
    cleared: &'static str,
}

const DIMENSIONS: [Dimension; 8] = [
    Dimension {
        name: "RTT",
        axis: || Axis::linear("RTT, ms"),
        value: |cell| Some(cell.path.rtt_ms),
        clear: |cell| cell.path.rtt_ms = 0.0,
        cleared: ", 0 ms",
    },
    Dimension {
        name: "loss",
        axis: || Axis::linear("loss, %"),
        value: |cell| Some(cell.path.loss * 100.0),
        clear: |cell| cell.path.loss = 0.0,
        cleared: ", loss 0%",
    },
    Dimension {
        name: "corruption",
        axis: || Axis::linear("corruption, %"),
        value: |cell| Some(cell.path.corruption * 100.0),
        clear: |cell| cell.path.corruption = 0.0,
        cleared: "",
    },
    Dimension {
        name: "reordering",
        axis: || Axis::linear("reordering, %"),
        value: |cell| Some(cell.path.reordering * 100.0),
        clear: |cell| cell.path.reordering = 0.0,
        cleared: "",
    },
    Dimension {
        name: "duplication",
        axis: || Axis::linear("duplication, %"),
        value: |cell| Some(cell.path.duplication * 100.0),
        clear: |cell| cell.path.duplication = 0.0,
        cleared: "",
    },
    Dimension {
        name: "TCP window",
        axis: || Axis::logarithmic("TCP window, KiB"),
        value: |cell| Some(cell.work.window_bytes? as f64 / 1024.0),
        clear: |cell| cell.work.window_bytes = None,
        cleared: "",
    },
    Dimension {
        name: "threads",
        axis: || Axis::linear("threads"),
        value: |cell| cell.work.threads.map(f64::from),
        clear: |cell| cell.work.threads = None,
        cleared: "",
    },
    Dimension {
        name: "size",
        axis: || Axis::logarithmic("file, MB"),
        value: |cell| Some(cell.work.size_bytes as f64 / 1e6),
        clear: |cell| cell.work.size_bytes = 0,
        cleared: "0 B ",
    },
];

impl EvaluationReport {
    /// Returns the plots of goodput over each quantity that varies, and of the distribution of
    /// efficiency (ideal time divided by measured time).
    pub(super) fn plots(&self) -> Vec<Plot> {
        let mut cells = self.cells();
        cells.retain(|cell| cell.work.job == WorkKind::Files);
        let mut plots = Vec::new();
        for dimension in &DIMENSIONS {
            let mut groups: Vec<(Cell, Vec<&Cell>)> = Vec::new();
            let with_value = cells
                .iter()
                .filter(|cell| (dimension.value)(cell).is_some());
            for cell in with_value {
                let mut common = Cell::clone(cell);
                (dimension.clear)(&mut common);
                match groups.iter_mut().find(|(other, _)| *other == common) {
                    Some((_, group)) => group.push(cell),
                    None => groups.push((common, vec![cell])),
                }
            }
            // The cells of a group differ only in this quantity.
            let vary = groups.into_iter().filter(|(_, group)| group.len() > 1);
            plots.extend(vary.map(|(common, group)| {
                let label = common.to_string().replacen(dimension.cleared, "", 1);
                self.over(dimension, &label, &group)
            }));
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

    /// Returns the distribution of waiting times, as one plot for each cell and kind of wait.
    fn waits(&self) -> Vec<Plot> {
        let mut plots = Vec::new();
        for cell in self.cells() {
            let rows: Vec<_> = self.rows.iter().filter(|row| row.cell == *cell).collect();
            let awaited: BTreeSet<_> = rows.iter().flat_map(|row| row.awaited()).collect();
            plots.extend(awaited.into_iter().map(|what| {
                let waits = |row: &&ReportRow| (row.side.title().to_owned(), row.waits_s(&what));
                let samples: Vec<_> = rows.iter().map(waits).collect();
                let title = format!("Waits for {what}: {cell}");
                Plot::cdf(&title, Axis::logarithmic("seconds"), &samples)
            }));
        }
        plots
    }

    /// Returns the distribution of the efficiency (ideal time divided by measured time) of each
    /// program. Returns `None` if no trial measured goodput.
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
