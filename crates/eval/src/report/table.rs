//! The tables of a report.

use super::{Report, Row};
use crate::{
    cell::{Cell, Job},
    record::{Outcome, Record},
    side::Side,
};
use bench_kit::{
    stats::{Summary, median},
    table::Table,
};

/// What nothing is known of.
pub(super) const NONE: &str = "-";

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

    /// Each side in a line, over all cells that are about bytes alone: beside a neighbour the larger share is not
    /// the better one.
    fn headline(&self) -> Table {
        let head = [
            "",
            "of ideal: median of the cells",
            "least",
            "most",
            "Longhaul in the same cells",
            "ahead in",
            "cells",
            "complete",
            "trials",
        ];
        let mut cells = self.cells();
        cells.retain(|cell| cell.work.job == Job::Files && cell.work.beside.is_none());
        let reached = |cell: &Cell, side: Side| Some(self.row(cell, side)?.efficiency()?.median);
        let best = |cell: &Cell, of: &dyn Fn(Side) -> bool| {
            let sides = self.sides.iter().filter(|side| of(**side));
            let all = sides.filter_map(|side| reached(cell, *side));
            all.reduce(f64::max)
        };
        let line = |name: &str, of: &dyn Fn(&Cell) -> Option<f64>, counts: [String; 3]| {
            let there = || cells.iter().filter(|cell| of(cell).is_some());
            let values: Vec<f64> = there().filter_map(|cell| of(cell)).collect();
            let ours = there().filter_map(|cell| reached(cell, Side::Longhaul));
            let ours = median(&ours.collect::<Vec<_>>());
            let summary = Summary::of(&values)?;
            let mut line = vec![name.to_owned()];
            line.extend([summary.median, summary.min, summary.max].map(|x| fraction(Some(x))));
            let [ahead, complete, trials] = counts;
            line.extend([
                fraction(ours),
                ahead,
                values.len().to_string(),
                complete,
                trials,
            ]);
            Some(line)
        };
        let of_side = |side: Side| {
            let is_ahead = |cell: &&&Cell| {
                let others = best(cell, &|other| other != side);
                reached(cell, side)
                    .zip(others)
                    .is_some_and(|(mine, others)| mine > others)
            };
            let ahead = cells.iter().filter(is_ahead).count();
            let trials = || {
                self.records(side)
                    .filter(|record| cells.contains(&&record.cell))
            };
            let complete = trials().filter(|record| record.outcome == Outcome::Complete);
            let counts = [ahead, complete.count(), trials().count()].map(|count| count.to_string());
            line(side.title(), &|cell| reached(cell, side), counts)
        };
        let mut rows: Vec<_> = self
            .sides
            .iter()
            .filter_map(|side| of_side(*side))
            .collect();
        if self.sides.contains(&Side::Longhaul) && self.sides.len() > 2 {
            let none = [(); 3].map(|()| NONE.to_owned());
            let of_others = |cell: &Cell| best(cell, &|side| side != Side::Longhaul);
            rows.extend(line("best of the others in each cell", &of_others, none));
        }
        Table::new(&head, rows)
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
                let waits = Summary::of(&row.waits_s(&what));
                let ms = |of: fn(&Summary) -> f64| {
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
        Table::new(&head, rows)
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
        Table::new(&head, rows)
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
                format!("{near:.1}"),
                format!("{far:.1}"),
                row.feedback_bytes_per_gb()
                    .map_or(NONE.to_owned(), |bytes| format!("{bytes:.0}")),
            ])
        });
        Table::new(&head, rows)
    }
}

fn shown(row: &Row) -> String {
    let Some(summary) = row.efficiency() else {
        return "not tried".to_owned();
    };
    let rate = row.goodput_bits_per_s().unwrap_or_default() / 1e6;
    let any = |is: fn(&Record) -> bool| row.records.iter().any(is);
    let marks = [
        (" c", any(|record| record.outcome == Outcome::CutOff)),
        (
            " f",
            any(|record| matches!(record.outcome, Outcome::Failed(_))),
        ),
        (" m", any(|record| record.saturated)),
    ];
    let marks = marks.into_iter().filter(|(_, is_so)| *is_so);
    let marks: String = marks.map(|(mark, _)| mark).collect();
    match summary.count {
        1 => format!("{:.3}, {rate:.1}{marks}", summary.median),
        _ => format!(
            "{:.3} ({:.3}..{:.3}), {rate:.1}{marks}",
            summary.median, summary.min, summary.max
        ),
    }
}

pub(super) fn fraction(value: Option<f64>) -> String {
    value.map_or(NONE.to_owned(), |value| format!("{value:.3}"))
}
