//! The figures of a report, in a form that is serialised as JSON.

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
    /// One sentence for each incomplete trial.
    misses: Vec<String>,
}

/// Figures of all trials of one program in one cell.
#[derive(Debug, Serialize)]
struct RowFigures<'a> {
    cell: &'a Cell,
    side: Side,
    trials: usize,
    complete: usize,
    /// Summary of the efficiency of all trials (ideal time divided by measured time).
    efficiency: Option<Summary>,
    /// Median goodput of the trials that were tried.
    goodput_bits_per_s: Option<f64>,
    /// Waiting times of users in seconds, by kind of wait.
    waits_s: BTreeMap<String, Summary>,
    /// Median rate of the competing flow.
    beside_bits_per_s: Option<f64>,
    /// Processor seconds of the near gateway and of the far gateway for each 10^9 bytes.
    gateway_cpu_s_per_gb: Option<[f64; 2]>,
    /// Number of trials in which the machine could not keep up with the emulation.
    saturated: usize,
}

impl EvaluationReport {
    /// Returns all figures of the report, for serialisation as JSON.
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
