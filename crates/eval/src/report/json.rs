//! The figures of a report for programs.

use std::collections::BTreeMap;

use bench_kit::stats::Summary;
use serde::Serialize;

use super::{EvaluationReport, ReportRow};
use crate::{cell::Cell, record::TrialEnd, side::Side};

/// Content of all tables of a report.
#[derive(Debug, Serialize)]
pub struct ReportFigures<'a> {
    title: &'a str,
    versions: &'a [String],
    machines: &'a [String],
    trials: usize,
    rows: Vec<RowFigures<'a>>,
    /// Incomplete trials, in sentences.
    misses: Vec<String>,
}

/// All trials of one side in one cell.
#[derive(Debug, Serialize)]
struct RowFigures<'a> {
    cell: &'a Cell,
    side: Side,
    trials: usize,
    complete: usize,
    /// Fractions of the ideal.
    efficiency: Option<Summary>,
    /// Median of the trials that were tried.
    goodput_bits_per_s: Option<f64>,
    /// Seconds of users' waits, by kind.
    waits_s: BTreeMap<String, Summary>,
    /// Median rate of the neighbour.
    beside_bits_per_s: Option<f64>,
    /// Processor seconds of the near and the far gateway for 1e9 bytes.
    gateway_cpu_s_per_gb: Option<[f64; 2]>,
    /// In how many trials the machine could not keep up with the emulation.
    saturated: usize,
}

impl EvaluationReport {
    /// The figures for programs.
    pub fn figures(&self) -> ReportFigures<'_> {
        ReportFigures {
            title: &self.title,
            versions: &self.version,
            machines: &self.machine,
            trials: self.trials,
            rows: self.rows.iter().map(ReportRow::figures).collect(),
            misses: self.misses(),
        }
    }
}

impl ReportRow {
    fn figures(&self) -> RowFigures<'_> {
        let complete = |outcome: &TrialEnd| *outcome == TrialEnd::Complete;
        let records = &self.records;
        let waits = self.awaited().into_iter().filter_map(|what| {
            let summary = Summary::of(&self.waits_s(&what))?;
            Some((what, summary))
        });
        RowFigures {
            cell: &self.cell,
            side: self.side,
            trials: records.len(),
            complete: records.iter().filter(|one| complete(&one.outcome)).count(),
            efficiency: self.efficiency(),
            goodput_bits_per_s: self.goodput_bits_per_s(),
            waits_s: waits.collect(),
            beside_bits_per_s: self.beside_bits_per_s(),
            gateway_cpu_s_per_gb: self.gateway_cpu_s_per_gb(),
            saturated: records.iter().filter(|record| record.saturated).count(),
        }
    }
}
