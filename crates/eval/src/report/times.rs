//! Table of the times of each mover in each cell, and of its incomplete trials.

use bench_kit::{stats::median, table::Table};

use super::{EvaluationReport, ReportRow, table::NONE};
use crate::record::{TrialEnd, TrialRecord};

impl EvaluationReport {
    /// Returns the table of times, with one row for each cell that compares movers.
    pub(super) fn times(&self) -> Table {
        let mut head = vec!["cell".to_owned()];
        head.extend(self.sides.iter().map(|side| side.title().to_owned()));
        let mut cells = self.cells();
        cells.retain(|cell| cell.work.threads.is_some());
        let rows = cells.into_iter().map(|cell| -> Vec<String> {
            let times = self
                .sides
                .iter()
                .map(|side| self.row(cell, *side).map_or(NONE.to_owned(), time));
            [cell.to_string()].into_iter().chain(times).collect()
        });
        Table {
            rows: rows.collect(),
            head,
        }
    }
}

/// Formats the median time of the complete trials in seconds, and the outcomes of the incomplete
/// trials.
fn time(row: &ReportRow) -> String {
    let of = |is: fn(&TrialEnd) -> bool| {
        let records = row.records.iter().filter(move |record| is(&record.outcome));
        records.collect::<Vec<&TrialRecord>>()
    };
    let seconds = |records: &[&TrialRecord]| -> Vec<f64> {
        records.iter().map(|record| record.seconds).collect()
    };
    let complete = of(|outcome| *outcome == TrialEnd::Complete);
    let cut_off = of(|outcome| *outcome == TrialEnd::CutOff);
    let failed = of(|outcome| matches!(outcome, TrialEnd::Failed(_)));
    let share = |records: &[&TrialRecord]| match row.records.len() {
        1 => String::new(),
        all => format!("{} of {all} ", records.len()),
    };
    let mut parts = Vec::new();
    if let Some(median) = median(&seconds(&complete)) {
        parts.push(format!("{median:.1}"));
    }
    if let Some(limit) = median(&seconds(&cut_off)) {
        parts.push(format!("{}not in {limit:.0}", share(&cut_off)));
    }
    if !failed.is_empty() {
        parts.push(format!("{}failed", share(&failed)));
    }
    if parts.is_empty() {
        return "not tried".to_owned();
    }
    parts.join(", ")
}
