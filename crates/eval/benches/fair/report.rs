//! Table on the screen and page of plots, for the bench in virtual time and the bench over the
//! kernel.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use bench_kit::{
    figure::{Figure, FigureBound},
    page::{Caption, Page, Panel},
    stats::{mean, median},
};
use link::sim::{CrowdRecord, SymmetricPath};

use crate::plots;

/// Outcome of one run of a row.
#[derive(Debug)]
pub struct RowOutcome {
    pub figures: Vec<Figure>,
    pub record: CrowdRecord,
    pub line: SymmetricPath,
    /// Whether the machine was too slow to emulate the path.
    pub is_distorted: bool,
}

/// Output of the bench: a table that is printed row by row, and a page of plots.
pub struct FairnessReport {
    page: Page,
    /// Panels of the group whose rows are being reported.
    panels: Vec<Panel>,
    is_traced: bool,
    reached: usize,
    count: usize,
}

impl FairnessReport {
    /// Prints the head of the table. `note` describes the runs, and appears on the page.
    pub fn open(note: &str, is_traced: bool) -> Self {
        println!(
            "{:<46} {:<36} {:>8} {:>8} {:>8}",
            "row", "figure", "required", "median", "worst"
        );
        let mut page = Page::open("How the link shares a bottleneck");
        page.paragraph(note);
        page.paragraph(
            "Each point is the mean of half a second. The band above the delay of the queue shows what the \
             first link takes the path for.",
        );
        Self {
            page,
            panels: Vec::new(),
            is_traced,
            reached: 0,
            count: 0,
        }
    }

    /// Begins a group of rows.
    pub fn group(&mut self, name: &str) {
        self.end_group();
        println!("{name}");
        self.page.heading(name);
    }

    /// Prints the figures of a row, and adds the plots of its first run to the page.
    pub fn row(&mut self, name: &str, outcomes: &[RowOutcome]) {
        let mut captions = Vec::new();
        for (index, figure) in outcomes[0].figures.iter().enumerate() {
            let values: Vec<f64> = outcomes
                .iter()
                .map(|outcome| outcome.figures[index].value)
                .collect();
            let worst = figure.bound.worst(&values);
            let middle = if figure.is_mean {
                mean(&values)
            } else {
                median(&values).expect("each row has a run at least")
            };
            let judged = if figure.is_mean { middle } else { worst };
            let is_missed = !figure.bound.holds(judged);
            let name = if index == 0 { name } else { "" };
            let mark = if is_missed { "  MISSED" } else { "" };
            let (label, bound) = (figure.label, figure.bound);
            println!("  {name:<44} {label:<36} {bound:>8} {middle:>8.3} {worst:>8.3}{mark}");
            let mut text = match bound {
                FigureBound::None => format!("{label}: {middle:.2}"),
                _ => format!("{label} {bound}: {middle:.2}"),
            };
            if outcomes.len() > 1 {
                let _ = write!(text, ", worst {worst:.2}");
            }
            captions.push(Caption { text, is_missed });
        }
        self.count += 1;
        self.reached += usize::from(captions.iter().all(|caption| !caption.is_missed));
        if outcomes.iter().any(|outcome| outcome.is_distorted) {
            let text = "MACHINE TOO SLOW for the path";
            println!("{:46} {text}", "");
            captions.push(Caption {
                text: text.to_owned(),
                is_missed: false,
            });
        }
        let first = &outcomes[0];
        if self.is_traced {
            print!("{}", first.record.trace());
        }
        self.panels.push(Panel {
            title: name.to_owned(),
            plots: plots::of(&first.record, first.line.bits_per_s()),
            captions,
        });
    }

    /// Writes the page to `out`. Without `out`, writes it under `name` to cargo's target folder.
    /// Prints the path of the page and the overall result.
    pub fn finish(mut self, out: Option<&Path>, name: &str) -> anyhow::Result<()> {
        self.end_group();
        let out = out.map_or_else(|| target_folder().join(name), Path::to_owned);
        std::fs::write(&out, self.page.finish()).with_context(|| out.display().to_string())?;
        println!("plots: {}", out.display());
        println!("{} of {} reached", self.reached, self.count);
        Ok(())
    }

    fn end_group(&mut self) {
        if !self.panels.is_empty() {
            self.page.panels(&self.panels);
            self.panels.clear();
        }
    }
}

/// Returns cargo's target folder. If this program was not started from such a folder, returns the
/// system's folder for temporary files.
fn target_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let found = program
        .ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").is_file());
    found.map_or_else(std::env::temp_dir, PathBuf::from)
}
