//! Tables as rows of text, for both kinds of pages.

use super::{Report, Row};
use crate::eval::{cell::Job, record::Record, side::Side};

/// A table with a heading for each column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// What nothing is known of.
const NONE: &str = "-";

impl Table {
    pub(super) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: String = "---|".repeat(self.head.len());
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}|{rule}\n{rows}", line(&self.head))
    }
}

impl Report {
    /// Those that have anything to say, with their titles.
    pub(super) fn tables(&self) -> Vec<(&'static str, Table)> {
        let all = [
            ("All cells together", self.headline()),
            ("Cells", self.cells_table()),
            ("What users waited for", self.answers()),
            ("What is left to others", self.company()),
            ("What Longhaul costs", self.cost()),
        ];
        all.into_iter()
            .filter(|(_, table)| !table.rows.is_empty())
            .collect()
    }

    /// Each side in a line, over all cells that are about bytes.
    fn headline(&self) -> Table {
        let head = [
            "",
            "of ideal: median",
            "least",
            "most",
            "complete",
            "trials",
        ];
        let rows = self.sides.iter().filter_map(|side| {
            let records = || {
                let rows = self.rows.iter().filter(|row| row.side == *side);
                rows.flat_map(|row| &row.records)
            };
            let values: Vec<f64> = records().filter_map(Record::efficiency).collect();
            let complete =
                records().filter(|record| record.outcome == crate::eval::record::Outcome::Complete);
            let summary = crate::stats::Summary::of(&values)?;
            let share = |of: fn(&crate::stats::Summary) -> f64| fraction(Some(of(&summary)));
            Some(vec![
                side.title().to_owned(),
                share(|s| s.median),
                share(|s| s.min),
                share(|s| s.max),
                complete.count().to_string(),
                records().count().to_string(),
            ])
        });
        Table {
            head: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }

    /// Every cell: the fraction of the ideal of each side, and its rate.
    fn cells_table(&self) -> Table {
        let mut head = vec!["cell".to_owned()];
        head.extend(
            self.sides
                .iter()
                .map(|side| format!("{}: of ideal (least..most), Mbit/s", side.title())),
        );
        let cells = self
            .cells()
            .into_iter()
            .filter(|cell| cell.work.job == Job::Files);
        let rows = cells.map(|cell| {
            let mut line = vec![cell.to_string()];
            line.extend(
                self.sides
                    .iter()
                    .map(|side| self.row(cell, *side).map_or(NONE.to_owned(), shown)),
            );
            line
        });
        Table {
            rows: rows.collect(),
            head,
        }
    }

    /// How long users waited, and what they got of what they wanted.
    fn answers(&self) -> Table {
        let head = [
            "cell",
            "side",
            "what",
            "complete",
            "of",
            "median, ms",
            "99 %, ms",
            "longest, ms",
            "failures",
        ];
        let mut rows = Vec::new();
        for row in &self.rows {
            for what in row.awaited() {
                let waits = crate::stats::Summary::of(&row.waits_s(&what));
                let ms = |of: fn(&crate::stats::Summary) -> f64| {
                    waits
                        .as_ref()
                        .map_or(NONE.to_owned(), |waits| format!("{:.1}", of(waits) * 1e3))
                };
                let counts = row
                    .complete(&what)
                    .map(|counts| counts.map(|count| count.to_string()));
                let [complete, all] = counts.unwrap_or([NONE, NONE].map(str::to_owned));
                rows.push(vec![
                    row.cell.to_string(),
                    row.side.title().to_owned(),
                    what.clone(),
                    complete,
                    all,
                    ms(|waits| waits.median),
                    ms(|waits| waits.p99),
                    ms(|waits| waits.max),
                    row.failures(),
                ]);
            }
        }
        Table {
            head: head.map(str::to_owned).to_vec(),
            rows,
        }
    }

    /// What is left to a neighbour, by cell and side.
    fn company(&self) -> Table {
        let head = [
            "cell",
            "who comes",
            "it gets, Mbit/s",
            "the neighbour gets, Mbit/s",
            "neighbour by its rate beside FTP with CUBIC",
            "Jain",
        ];
        let rows = self.rows.iter().filter_map(|row| {
            let theirs = row.beside_bits_per_s()?;
            let ours = row.goodput_bits_per_s()?;
            let peer = self.row(&row.cell, Side::FtpCubic);
            let keeps = peer
                .and_then(Row::beside_bits_per_s)
                .map(|rate| theirs / rate);
            let jain = (ours + theirs).powi(2) / (2.0 * (ours.powi(2) + theirs.powi(2)));
            Some(vec![
                row.cell.to_string(),
                row.side.title().to_owned(),
                format!("{:.1}", ours / 1e6),
                format!("{:.1}", theirs / 1e6),
                fraction(keeps),
                format!("{jain:.3}"),
            ])
        });
        Table {
            head: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }

    /// What Longhaul costs, by cell.
    fn cost(&self) -> Table {
        let head = [
            "cell",
            "near gateway, CPU s/GB",
            "far gateway, CPU s/GB",
            "feedback, bytes/GB",
        ];
        let rows = self.rows.iter().filter(|row| row.side == Side::Longhaul);
        let rows = rows.filter_map(|row| {
            let [near, far] = row.gateway_cpu_s_per_gb()?;
            Some(vec![
                row.cell.to_string(),
                format!("{near:.2}"),
                format!("{far:.2}"),
                row.feedback_bytes_per_gb()
                    .map_or(NONE.to_owned(), |bytes| format!("{bytes:.0}")),
            ])
        });
        Table {
            head: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }
}

fn shown(row: &Row) -> String {
    let Some(summary) = row.efficiency() else {
        return "not tried".to_owned();
    };
    let rate = row.goodput_bits_per_s().unwrap_or_default() / 1e6;
    match summary.count {
        1 => format!("{:.3}, {rate:.1}", summary.median),
        _ => format!(
            "{:.3} ({:.3}..{:.3}), {rate:.1}",
            summary.median, summary.min, summary.max
        ),
    }
}

fn fraction(value: Option<f64>) -> String {
    value.map_or(NONE.to_owned(), |value| format!("{value:.3}"))
}

pub(super) fn compare(before: &[Record], after: &[Record]) -> String {
    let reports = [before, after].map(|records| Report::new("", "", records).ok());
    let [Some(before), Some(after)] = reports else {
        return "one of the files has no records\n".to_owned();
    };
    let head = [
        "cell",
        "side",
        "before, of ideal",
        "after, of ideal",
        "after / before",
    ];
    let rows = before.rows.iter().map(|row| {
        let then = row.efficiency().map(|summary| summary.median);
        let now = after.row(&row.cell, row.side).and_then(Row::efficiency);
        let now = now.map(|summary| summary.median);
        let ratio = then.zip(now).filter(|(then, _)| *then > 0.0);
        let ratio = ratio.map(|(then, now)| now / then);
        vec![
            row.cell.to_string(),
            row.side.title().to_owned(),
            fraction(then),
            fraction(now),
            fraction(ratio),
        ]
    });
    let mut table = Table {
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    };
    let new = after
        .rows
        .iter()
        .filter(|row| before.row(&row.cell, row.side).is_none());
    table.rows.extend(new.map(|row| {
        let now = row.efficiency().map(|summary| summary.median);
        let side = row.side.title().to_owned();
        vec![
            row.cell.to_string(),
            side,
            NONE.to_owned(),
            fraction(now),
            NONE.to_owned(),
        ]
    }));
    table.markdown()
}
