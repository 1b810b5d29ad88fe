//! The report as Markdown.

use std::fmt::Write;

use super::Report;

impl Report {
    /// The report as Markdown: tables and what failed; plots are in the page.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n", self.title);
        if !self.about.is_empty() {
            let _ = writeln!(text, "{}\n", self.about);
        }
        for line in self.conditions() {
            let _ = writeln!(text, "- {line}");
        }
        let _ = write!(
            text,
            "\n## All cells together\n\n{}",
            self.headline().markdown()
        );
        let _ = write!(text, "\n## Cells\n\n{}", self.cells_table().markdown());
        let company = self.company();
        if !company.rows.is_empty() {
            let _ = write!(
                text,
                "\n## What is left to others\n\n{}",
                company.markdown()
            );
        }
        let cost = self.cost();
        if !cost.rows.is_empty() {
            let _ = write!(text, "\n## What Longhaul costs\n\n{}", cost.markdown());
        }
        let misses = self.misses();
        let _ = write!(text, "\n## What did not complete\n\n");
        for miss in &misses {
            let _ = writeln!(text, "- {miss}");
        }
        if misses.is_empty() {
            text.push_str("Everything completed.\n");
        }
        text
    }

    /// The sides in a few lines, for a terminal.
    pub fn summary(&self) -> String {
        let headline = self.headline().markdown();
        format!("\n{headline}\n{}", self.distribution().text(60, 13))
    }

    /// Under which conditions the figures were taken.
    pub(super) fn conditions(&self) -> Vec<String> {
        let mut lines = vec![
            format!("{} trials; figures are medians of a cell's repetitions", self.trials),
            format!("machine: {}", self.machine.join("; ")),
            format!("Longhaul {}", self.version.join("; ")),
            "of ideal: the time of a perfect sender by the measured time (docs/measuring.md); trials that were cut off \
             count by the rate that they reached, failed ones as zero"
                .to_owned(),
        ];
        if self.saturated > 0 {
            lines.push(format!(
                "in {} trials the machine could not keep up with the emulation: these say less about the path",
                self.saturated
            ));
        }
        lines
    }
}
