//! Reports, computed from records alone. A report has tables of all cells, plots over varying
//! settings, and a list of failures.

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

/// The records of one plan, grouped for a report.
#[derive(Debug, Clone)]
pub struct EvaluationReport {
    title: String,
    about: String,
    machine: Vec<String>,
    version: Vec<String>,
    /// Rows in the order in which the records first mention them.
    rows: Vec<ReportRow>,
    sides: Vec<Side>,
    trials: usize,
}

/// All trials of one program in one cell.
#[derive(Debug, Clone)]
pub(crate) struct ReportRow {
    pub(crate) cell: Cell,
    pub(crate) side: Side,
    pub(crate) records: Vec<TrialRecord>,
}

/// Number of successes, and number of all attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct SuccessShare {
    pub(crate) complete: u64,
    pub(crate) wanted: u64,
}

/// Error of a report without any record.
#[derive(Debug, thiserror::Error)]
#[error("there are no records to report")]
pub struct NoRecords;

impl EvaluationReport {
    /// Groups the records of a plan by cell and compared program.
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

    /// Returns the cells in the order of their records.
    fn cells(&self) -> Vec<&Cell> {
        let mut cells: Vec<&Cell> = Vec::new();
        for row in &self.rows {
            if !cells.contains(&&row.cell) {
                cells.push(&row.cell);
            }
        }
        cells
    }

    /// Returns the Longhaul variant with which a report compares the other programs. In plans for
    /// movers, the first choice is `longhaul copy --peer`.
    fn own(&self) -> Option<Side> {
        let ours = [
            Side::Longhaul,
            Side::MoverPeer,
            Side::MoverGateway,
            Side::MoverDirect,
            Side::SftpGateway,
            Side::RsyncGateway,
            Side::LftpGateway,
            Side::RcloneGateway,
        ];
        ours.into_iter().find(|side| self.sides.contains(side))
    }

    /// Returns all trials of one program.
    fn records(&self, side: Side) -> impl Iterator<Item = &TrialRecord> {
        let rows = self.rows.iter().filter(move |row| row.side == side);
        rows.flat_map(|row| &row.records)
    }

    fn row(&self, cell: &Cell, side: Side) -> Option<&ReportRow> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.side == side && row.cell == *cell)
    }

    /// Returns one sentence for each trial that did not complete. If users had failures in a trial,
    /// a separate sentence states these failures.
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
    /// Returns a summary of the efficiency (ideal time divided by measured time) of all trials that
    /// were tried.
    pub(crate) fn efficiency(&self) -> Option<Summary> {
        let values: Vec<f64> = self
            .records
            .iter()
            .filter_map(TrialRecord::efficiency)
            .collect();
        Summary::of(&values)
    }

    /// Returns the median goodput in bits per second, over all trials that were tried.
    pub(crate) fn goodput_bits_per_s(&self) -> Option<f64> {
        let tried = self
            .records
            .iter()
            .filter(|record| record.efficiency().is_some());
        let rates: Vec<f64> = tried.map(TrialRecord::goodput_bits_per_s).collect();
        median(&rates)
    }

    /// Returns the kinds of waits that the users of this row measured.
    pub(crate) fn awaited(&self) -> BTreeSet<String> {
        let answers = self
            .records
            .iter()
            .filter_map(|record| record.answers.as_ref());
        answers
            .flat_map(|answers| answers.seconds.keys().cloned())
            .collect()
    }

    /// Returns all waiting times of the kind `what`, in seconds.
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

    /// Returns the number of successful waits and of all waits of the kind `what`. Returns `None`
    /// if no trial counted waits of this kind.
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

    /// Returns each kind of failure with its count, as text.
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

    /// Returns the median rate of the competing flow in bits per second.
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

    /// Returns the processor seconds of the near and the far gateway for each 10^9 bytes. Returns
    /// `None` if no gateway was measured.
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

    /// Returns the bytes on the wire in the reverse direction for each 10^9 bytes of data. Returns
    /// `None` if a competing flow exists, since its acknowledgements would count too.
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

/// Returns kinds with their counts as text. The text is empty if there is no kind.
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
