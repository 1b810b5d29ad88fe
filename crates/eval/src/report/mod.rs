//! Reports, from records alone: tables of every cell, plots over varying settings, and failures.

mod compare;
mod figures;
mod html;
mod json;
mod markdown;
mod table;
mod times;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    cell::Cell,
    record::{TrialEnd, TrialRecord},
    side::Side,
};
use bench_kit::stats::{Summary, median};

pub use compare::RecordComparison;

/// The evaluated records of one plan.
#[derive(Debug, Clone)]
pub struct EvaluationReport {
    title: String,
    about: String,
    machine: Vec<String>,
    version: Vec<String>,
    /// In the order of the records.
    rows: Vec<ReportRow>,
    sides: Vec<Side>,
    trials: usize,
}

/// All trials of one side in one cell.
#[derive(Debug, Clone)]
pub(crate) struct ReportRow {
    pub(crate) cell: Cell,
    pub(crate) side: Side,
    pub(crate) records: Vec<TrialRecord>,
}

/// A count of successes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct SuccessShare {
    pub(crate) complete: u64,
    pub(crate) wanted: u64,
}

/// The file of records is empty.
#[derive(Debug, thiserror::Error)]
#[error("there are no records to report")]
pub struct NoRecords;

impl EvaluationReport {
    /// Groups the records of a plan by cell and side.
    ///
    /// # Errors
    /// [`NoRecords`] for an empty slice.
    pub fn new(title: &str, about: &str, records: &[TrialRecord]) -> Result<Self, NoRecords> {
        if records.is_empty() {
            return Err(NoRecords);
        }
        let mut rows: Vec<ReportRow> = Vec::new();
        let mut sides = Vec::new();
        for record in records {
            if !sides.contains(&record.side) {
                sides.push(record.side);
            }
            let same = |row: &&mut ReportRow| row.side == record.side && row.cell == record.cell;
            match rows.iter_mut().find(same) {
                Some(row) => row.records.push(record.clone()),
                None => rows.push(ReportRow {
                    cell: record.cell.clone(),
                    side: record.side,
                    records: vec![record.clone()],
                }),
            }
        }
        Ok(Self {
            title: title.to_owned(),
            about: about.to_owned(),
            machine: distinct(records, |record| &record.machine),
            version: distinct(records, |record| &record.version),
            rows,
            sides,
            trials: records.len(),
        })
    }

    /// The cells in the order of their records.
    fn cells(&self) -> Vec<&Cell> {
        let mut cells: Vec<&Cell> = Vec::new();
        for row in &self.rows {
            if !cells.contains(&&row.cell) {
                cells.push(&row.cell);
            }
        }
        cells
    }

    /// Returns the side for comparisons: Longhaul, or in plans for movers `longhaul copy` behind a
    /// pair.
    fn own(&self) -> Option<Side> {
        let ours = [
            Side::Longhaul,
            Side::MoverPeer,
            Side::MoverGateway,
            Side::MoverDirect,
        ];
        ours.into_iter().find(|side| self.sides.contains(side))
    }

    /// All trials of a side.
    fn records(&self, side: Side) -> impl Iterator<Item = &TrialRecord> {
        let rows = self.rows.iter().filter(move |row| row.side == side);
        rows.flat_map(|row| &row.records)
    }

    fn row(&self, cell: &Cell, side: Side) -> Option<&ReportRow> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.side == side && row.cell == *cell)
    }

    /// The trials and waits that did not complete, as sentences.
    fn misses(&self) -> Vec<String> {
        let mut misses = Vec::new();
        for row in &self.rows {
            for record in &row.records {
                let place = format!(
                    "{}, {}, time {}",
                    row.side.title(),
                    row.cell,
                    record.repetition + 1
                );
                let failures = record.answers.iter().flat_map(|answers| &answers.failures);
                let failures = by_kind(failures);
                if !failures.is_empty() {
                    misses.push(format!("{place}: failed: {failures}"));
                }
                match &record.outcome {
                    TrialEnd::Complete => {}
                    TrialEnd::CutOff => misses.push(format!(
                        "{place}: cut off after {:.0} s with {:.1} % of the bytes",
                        record.seconds,
                        record.bytes as f64 * 100.0 / row.cell.work.bytes().bytes() as f64
                    )),
                    TrialEnd::Failed(why) => misses.push(format!("{place}: failed: {why}")),
                    TrialEnd::NotTried(why) => misses.push(format!("{place}: not tried: {why}")),
                }
            }
        }
        misses
    }
}

impl ReportRow {
    /// Fractions of the ideal, of all trials that were tried.
    pub(crate) fn efficiency(&self) -> Option<Summary> {
        let values: Vec<f64> = self
            .records
            .iter()
            .filter_map(TrialRecord::efficiency)
            .collect();
        Summary::of(&values)
    }

    /// Median bits per second, of the trials that were tried.
    pub(crate) fn goodput_bits_per_s(&self) -> Option<f64> {
        let tried = self
            .records
            .iter()
            .filter(|record| record.efficiency().is_some());
        let rates: Vec<f64> = tried.map(TrialRecord::goodput_bits_per_s).collect();
        median(&rates)
    }

    /// The kinds of waits of the row's users.
    pub(crate) fn awaited(&self) -> BTreeSet<String> {
        let answers = self
            .records
            .iter()
            .filter_map(|record| record.answers.as_ref());
        answers
            .flat_map(|answers| answers.seconds.keys().cloned())
            .collect()
    }

    /// All waits of one kind, seconds.
    pub(crate) fn waits_s(&self, what: &str) -> Vec<f64> {
        let answers = self
            .records
            .iter()
            .filter_map(|record| record.answers.as_ref());
        answers
            .filter_map(|answers| answers.seconds.get(what))
            .flatten()
            .copied()
            .collect()
    }

    /// How many waits of one kind ended well; `None` if no trial counted any.
    pub(crate) fn complete(&self, what: &str) -> Option<SuccessShare> {
        let answers = self
            .records
            .iter()
            .filter_map(|record| record.answers.as_ref());
        answers
            .filter_map(|answers| answers.complete.get(what))
            .map(|&[complete, wanted]| SuccessShare { complete, wanted })
            .reduce(|sum, trial| SuccessShare {
                complete: sum.complete + trial.complete,
                wanted: sum.wanted + trial.wanted,
            })
    }

    /// The failures and their numbers, as text.
    pub(crate) fn failures(&self) -> String {
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for answers in self
            .records
            .iter()
            .filter_map(|record| record.answers.as_ref())
        {
            for (kind, count) in &answers.failures {
                *kinds.entry(kind).or_default() += count;
            }
        }
        if kinds.is_empty() {
            return "none".to_owned();
        }
        by_kind(kinds.iter())
    }

    /// Median rate of the neighbour, bits per second.
    pub(crate) fn beside_bits_per_s(&self) -> Option<f64> {
        let tried = self
            .records
            .iter()
            .filter(|record| record.efficiency().is_some());
        let rates: Vec<f64> = tried
            .filter_map(|record| record.beside_bits_per_s)
            .collect();
        median(&rates)
    }

    /// Processor seconds of the near and the far gateway for each 10^9 bytes; `None` without
    /// measured gateways.
    pub(crate) fn gateway_cpu_s_per_gb(&self) -> Option<[f64; 2]> {
        let of = |name: &str| {
            let shares = self.records.iter().filter_map(|record| {
                let seconds = record.cpu_seconds.get(name)?;
                (record.bytes > 0).then(|| seconds * 1e9 / record.bytes as f64)
            });
            median(&shares.collect::<Vec<_>>())
        };
        (self.side.uses_gateways()).then_some([of("near gateway")?, of("far gateway")?])
    }

    /// Bytes on the wire against the data's direction, for each 10^9 bytes of data. `None` with a
    /// neighbour, whose acknowledgements would count.
    pub(crate) fn feedback_bytes_per_gb(&self) -> Option<f64> {
        if self.cell.work.beside.is_some() {
            return None;
        }
        let back = match self.cell.work.direction {
            super::cell::TrialDirection::Down => 0,
            super::cell::TrialDirection::Up => 1,
        };
        let shares = self.records.iter().filter(|record| record.bytes > 0);
        let shares =
            shares.map(|record| record.wire_bytes[back] as f64 * 1e9 / record.bytes as f64);
        median(&shares.collect::<Vec<_>>())
    }
}

/// Failures as text; empty without any.
fn by_kind(counts: impl Iterator<Item = (impl fmt::Display, impl fmt::Display)>) -> String {
    let all: Vec<_> = counts
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    all.join(", ")
}

fn distinct<'a>(
    records: &'a [TrialRecord],
    of: impl Fn(&'a TrialRecord) -> &'a String,
) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in records.iter().map(of) {
        if !all.contains(text) {
            all.push(text.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests;
