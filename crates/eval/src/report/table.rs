//! The tables of a report.

use super::{EvaluationReport, ReportRow, SuccessShare};
use crate::{
    cell::{Cell, WorkKind},
    record::{TrialEnd, TrialRecord},
    side::Side,
};
use bench_kit::{
    stats::{Summary, median},
    table::Table,
};

/// Text in a table in place of an unknown value.
pub(super) const NONE: &str = "-";

impl EvaluationReport {
    /// Returns all tables that have at least one row, each with its title.
    pub(super) fn tables(&self) -> Vec<(&'static str, Table)> {
        let all = [
            ("All cells together", self.headline()),
            ("Times of movers, seconds", self.times()),
            ("Cells", self.cells_table()),
            ("What users waited for", self.answers()),
            ("What is left to others", self.company()),
            ("What Longhaul costs", self.cost()),
        ];
        all.into_iter()
            .filter(|(_, table)| !table.rows.is_empty())
            .collect()
    }

    /// Returns the summary table with one row for each program. It covers all cells that compare
    /// programs by their goodput.
    fn headline(&self) -> Table {
        let own = self.own().unwrap_or(Side::Longhaul);
        let own_column = format!("{} in the same cells", own.title());
        let head = [
            "",
            "of ideal: median of the cells",
            "least",
            "most",
            &own_column,
            "ahead in",
            "cells",
            "complete",
            "trials",
        ];
        let cells = self.goodput_cells();
        let mut lines: Vec<Headline> = self
            .sides
            .iter()
            .filter_map(|side| self.side_headline(*side, &cells, own))
            .collect();
        let others = self.sides.iter().filter(|side| !side.is_ours()).count();
        if others > 1 && others < self.sides.len() {
            lines.extend(self.others_headline(&cells, own));
        }
        Table::new(&head, lines.iter().map(Headline::columns))
    }

    /// Returns the cells that compare programs by their goodput. These cells move files, and have
    /// no competing flow.
    fn goodput_cells(&self) -> Vec<&Cell> {
        let mut cells = self.cells();
        cells.retain(|cell| cell.work.job == WorkKind::Files && cell.work.beside.is_none());
        cells
    }

    /// Returns the summary row of one program. Returns `None` if the program was not tried in any
    /// cell.
    fn side_headline(&self, side: Side, cells: &[&Cell], own: Side) -> Option<Headline> {
        let counts = HeadlineCounts {
            cells_ahead: cells
                .iter()
                .filter(|cell| self.is_ahead(cell, side))
                .count(),
            trials_complete: self
                .trials(side, cells)
                .filter(|record| record.outcome == TrialEnd::Complete)
                .count(),
            trials: self.trials(side, cells).count(),
        };
        self.line_of(side.title(), cells, own, Some(counts), |cell| {
            self.reached(cell, side)
        })
    }

    /// Returns the summary row of the best program other than Longhaul in each cell.
    fn others_headline(&self, cells: &[&Cell], own: Side) -> Option<Headline> {
        let name = "best of the others in each cell";
        self.line_of(name, cells, own, None, |cell| self.best_rival(cell, own))
    }

    /// Returns a summary row over the cells for which `reached` returns a value. Returns `None` if
    /// there is no such cell.
    fn line_of(
        &self,
        name: &'static str,
        cells: &[&Cell],
        own: Side,
        counts: Option<HeadlineCounts>,
        reached: impl Fn(&Cell) -> Option<f64>,
    ) -> Option<Headline> {
        let mut fractions = Vec::new();
        let mut of_own = Vec::new();
        for cell in cells {
            if let Some(fraction) = reached(cell) {
                fractions.push(fraction);
                of_own.extend(self.reached(cell, own));
            }
        }
        Some(Headline {
            name,
            reached: Summary::of(&fractions)?,
            own: median(&of_own),
            counts,
        })
    }

    /// Returns the median efficiency (ideal time divided by measured time) of a program's trials in
    /// a cell.
    fn reached(&self, cell: &Cell, side: Side) -> Option<f64> {
        Some(self.row(cell, side)?.efficiency()?.median)
    }

    /// Returns the highest efficiency (ideal time divided by measured time) of the rivals of `side`
    /// in a cell. Variants of Longhaul are not rivals of each other.
    fn best_rival(&self, cell: &Cell, side: Side) -> Option<f64> {
        let is_rival = |other: &&Side| **other != side && !(side.is_ours() && other.is_ours());
        let rivals = self.sides.iter().filter(is_rival);
        rivals
            .filter_map(|side| self.reached(cell, *side))
            .reduce(f64::max)
    }

    /// Returns whether a program was more efficient than every rival in a cell. Returns false if
    /// the program has no rival.
    fn is_ahead(&self, cell: &Cell, side: Side) -> bool {
        let reached = self.reached(cell, side);
        reached
            .zip(self.best_rival(cell, side))
            .is_some_and(|(own, rival)| own > rival)
    }

    /// Returns all trials of a program in these cells.
    fn trials<'a>(
        &'a self,
        side: Side,
        cells: &'a [&Cell],
    ) -> impl Iterator<Item = &'a TrialRecord> {
        self.records(side)
            .filter(|record| cells.contains(&&record.cell))
    }

    /// Returns the table of cells that move files. Each row has the efficiency (ideal time divided
    /// by measured time) and the goodput of each program.
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
            .filter(|cell| cell.work.job == WorkKind::Files);
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

    /// Returns the table of waiting times, with one row for each cell, program and kind of wait. A
    /// row has the number of successful waits, and their length.
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
                let waits = Summary::of(&row.waits_s(&what));
                let ms = |of: fn(&Summary) -> f64| {
                    waits
                        .as_ref()
                        .map_or(NONE.to_owned(), |waits| format!("{:.1}", of(waits) * 1e3))
                };
                let share = row.complete(&what);
                let count = |of: fn(&SuccessShare) -> u64| {
                    let share = share.as_ref();
                    share.map_or(NONE.to_owned(), |share| of(share).to_string())
                };
                rows.push(vec![
                    row.cell.to_string(),
                    row.side.title().to_owned(),
                    what.clone(),
                    count(|share| share.complete),
                    count(|share| share.wanted),
                    ms(|waits| waits.median),
                    ms(|waits| waits.p99),
                    ms(|waits| waits.max),
                    row.failures(),
                ]);
            }
        }
        Table::new(&head, rows)
    }

    /// Returns the table of cells with a competing flow, with one row for each cell and program. A
    /// row has the rates of both flows, and Jain's fairness index.
    ///
    /// The index is the square of the rates' sum, divided by twice the sum of their squares (Jain,
    /// Chiu, Hawe, DEC-TR-301, 1984).
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
                .and_then(ReportRow::beside_bits_per_s)
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
        Table::new(&head, rows)
    }

    /// Returns the table of Longhaul's processor time and feedback traffic, with one row for each
    /// cell.
    fn cost(&self) -> Table {
        let head = [
            "cell",
            "near gateway, CPU s/GB",
            "far gateway, CPU s/GB",
            "feedback, bytes/GB",
        ];
        let rows = self.rows.iter().filter_map(|row| {
            let [near, far] = row.gateway_cpu_s_per_gb()?;
            Some(vec![
                row.cell.to_string(),
                format!("{near:.1}"),
                format!("{far:.1}"),
                row.feedback_bytes_per_gb()
                    .map_or(NONE.to_owned(), |bytes| format!("{bytes:.0}")),
            ])
        });
        Table::new(&head, rows)
    }
}

/// One row of the summary table over all cells.
struct Headline {
    name: &'static str,
    /// Summary of the efficiency (ideal time divided by measured time), with one value for each
    /// cell.
    reached: Summary,
    /// Median efficiency of Longhaul in the same cells.
    own: Option<f64>,
    /// Counts of trials and cells. `None` in the row of the best other program, since the best
    /// program differs between cells.
    counts: Option<HeadlineCounts>,
}

struct HeadlineCounts {
    /// Number of cells in which the program was more efficient than every rival.
    cells_ahead: usize,
    trials_complete: usize,
    trials: usize,
}

impl Headline {
    /// Returns the columns of the row, in the order of the table.
    fn columns(&self) -> Vec<String> {
        let count = |of: fn(&HeadlineCounts) -> usize| {
            let counts = self.counts.as_ref();
            counts.map_or(NONE.to_owned(), |counts| of(counts).to_string())
        };
        vec![
            self.name.to_owned(),
            fraction(Some(self.reached.median)),
            fraction(Some(self.reached.min)),
            fraction(Some(self.reached.max)),
            fraction(self.own),
            count(|counts| counts.cells_ahead),
            self.reached.count.to_string(),
            count(|counts| counts.trials_complete),
            count(|counts| counts.trials),
        ]
    }
}

/// Formats a program's entry in the table of cells: efficiency, goodput in Mbit/s, and a mark.
///
/// The marks are `c` for aborted trials, `f` for failed trials, and `m` for a machine that could
/// not keep up.
fn shown(row: &ReportRow) -> String {
    let Some(summary) = row.efficiency() else {
        return "not tried".to_owned();
    };
    let rate = row.goodput_bits_per_s().unwrap_or_default() / 1e6;
    let any = |is: fn(&TrialRecord) -> bool| row.records.iter().any(is);
    let is_cut_off = |record: &TrialRecord| record.outcome == TrialEnd::CutOff;
    let has_failed = |record: &TrialRecord| matches!(record.outcome, TrialEnd::Failed(_));
    let mut marks = String::new();
    for (mark, is_there) in [
        (" c", any(is_cut_off)),
        (" f", any(has_failed)),
        (" m", any(|record| record.saturated)),
    ] {
        if is_there {
            marks += mark;
        }
    }
    match summary.count {
        1 => format!("{:.3}, {rate:.1}{marks}", summary.median),
        _ => format!(
            "{:.3} ({:.3}..{:.3}), {rate:.1}{marks}",
            summary.median, summary.min, summary.max
        ),
    }
}

/// Formats a fraction with three decimals.
pub(super) fn fraction(value: Option<f64>) -> String {
    value.map_or(NONE.to_owned(), |value| format!("{value:.3}"))
}
