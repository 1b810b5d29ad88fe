//! Comparison of two runs of the same cells, such as before and after a change.

use std::collections::BTreeSet;

use bench_kit::{stats::median, table::Table};
use serde::Serialize;

use super::{
    EvaluationReport, ReportRow, SuccessShare,
    table::{NONE, fraction},
};
use crate::{
    cell::{Cell, WorkKind},
    record::{TrialEnd, TrialRecord},
    side::Side,
};

/// Comparison of the same cells in two files of records.
#[derive(Debug, Clone, Serialize)]
pub struct RecordComparison {
    before: Option<RecordOrigin>,
    after: Option<RecordOrigin>,
    rows: Vec<Compared>,
}

/// Origin of the records: machine and version.
#[derive(Debug, Clone, Serialize)]
struct RecordOrigin {
    versions: Vec<String>,
    machines: Vec<String>,
}

/// One figure of a compared program in a cell: the median of its trials in each run. The figure is
/// `None` in a run without such trials.
#[derive(Debug, Clone, Serialize)]
struct Compared {
    cell: Cell,
    side: Side,
    /// Kind of a user's wait, if the figure is a wait in seconds. `None` if the figure is the
    /// efficiency (ideal time divided by measured time).
    wait: Option<String>,
    before: Option<f64>,
    after: Option<f64>,
    /// The figure after the change, divided by the figure before it.
    ratio: Option<f64>,
    complete_before: Option<SuccessShare>,
    complete_after: Option<SuccessShare>,
}

/// The rows of the same cell and program in two files. One of the rows may be missing.
type ComparedRow<'a> = [Option<&'a ReportRow>; 2];

impl RecordComparison {
    /// Compares the records of two runs.
    pub fn of(before: &[TrialRecord], after: &[TrialRecord]) -> Self {
        let reports = [before, after].map(|records| EvaluationReport::new("", "", records).ok());
        let rows = match &reports {
            [Some(before), Some(after)] => rows(before, after),
            _ => Vec::new(),
        };
        let [before, after] = reports.map(|report| {
            report.map(|report| RecordOrigin {
                versions: report.version,
                machines: report.machine,
            })
        });
        Self {
            before,
            after,
            rows,
        }
    }

    /// Returns the comparison as a table in Markdown.
    pub fn text(&self) -> String {
        let (Some(before), Some(after)) = (&self.before, &self.after) else {
            return "one of the files has no records\n".to_owned();
        };
        let mut text = String::new();
        for (name, run) in [("before", before), ("after", after)] {
            let (version, machine) = (run.versions.join("; "), run.machines.join("; "));
            text += &format!("- {name}: Longhaul {version}; {machine}\n");
        }
        let head = [
            "cell",
            "side",
            "what, median",
            "before",
            "after",
            "after / before",
            "complete before",
            "complete after",
        ];
        let table = Table::new(&head, self.rows.iter().map(Compared::line));
        text + "\n" + &table.markdown()
    }
}

impl Compared {
    fn line(&self) -> Vec<String> {
        let value = |value: Option<f64>| match (value, &self.wait) {
            (None, _) => NONE.to_owned(),
            (Some(seconds), Some(_)) => format!("{:.1}", seconds * 1e3),
            (Some(share), None) => format!("{share:.3}"),
        };
        let counted = |counts: Option<SuccessShare>| {
            counts.map_or(NONE.to_owned(), |SuccessShare { complete, wanted }| {
                format!("{complete} of {wanted}")
            })
        };
        let what = self.wait.as_ref();
        vec![
            self.cell.to_string(),
            self.side.title().to_owned(),
            what.map_or("of ideal".to_owned(), |wait| format!("{wait}, ms")),
            value(self.before),
            value(self.after),
            fraction(self.ratio),
            counted(self.complete_before),
            counted(self.complete_after),
        ]
    }
}

fn rows(before: &EvaluationReport, after: &EvaluationReport) -> Vec<Compared> {
    let new = after.rows.iter();
    let new = new.filter(|row| before.row(&row.cell, row.side).is_none());
    let known = before.rows.iter();
    let known = known.map(|row| [Some(row), after.row(&row.cell, row.side)]);
    let pairs: Vec<ComparedRow<'_>> = known.chain(new.map(|row| [None, Some(row)])).collect();
    let files = pairs.iter().filter_map(|pair| files(*pair));
    files
        .chain(pairs.iter().flat_map(|pair| waits(*pair)))
        .collect()
}

fn files(pair: ComparedRow<'_>) -> Option<Compared> {
    let row = pair[0].or(pair[1])?;
    if row.cell.work.job != WorkKind::Files {
        return None;
    }
    let reached = |row: Option<&ReportRow>| Some(row?.efficiency()?.median);
    let complete = |row: Option<&ReportRow>| {
        let records = &row?.records;
        let complete = records
            .iter()
            .filter(|record| record.outcome == TrialEnd::Complete);
        Some(SuccessShare {
            complete: complete.count() as u64,
            wanted: records.len() as u64,
        })
    };
    Some(compared(row, None, pair.map(reached), pair.map(complete)))
}

fn waits(pair: ComparedRow<'_>) -> Vec<Compared> {
    let Some(row) = pair[0].or(pair[1]) else {
        return Vec::new();
    };
    let rows = pair.into_iter().flatten();
    let awaited: BTreeSet<_> = rows.flat_map(ReportRow::awaited).collect();
    let of = |wait: String| {
        let waited = pair.map(|row| median(&row?.waits_s(&wait)));
        let complete = pair.map(|row| row?.complete(&wait));
        compared(row, Some(wait), waited, complete)
    };
    awaited.into_iter().map(of).collect()
}

fn compared(
    row: &ReportRow,
    wait: Option<String>,
    [before, after]: [Option<f64>; 2],
    [complete_before, complete_after]: [Option<SuccessShare>; 2],
) -> Compared {
    let ratio = before.zip(after).map(|(before, after)| after / before);
    Compared {
        cell: row.cell.clone(),
        side: row.side,
        wait,
        before,
        after,
        ratio: ratio.filter(|ratio| ratio.is_finite()),
        complete_before,
        complete_after,
    }
}
