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
        for (title, table) in self.tables() {
            let _ = write!(text, "\n## {title}\n\n{}", table.markdown());
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
        let first = self.tables().into_iter().next();
        let table = first.map(|(_, table)| table.markdown()).unwrap_or_default();
        let plot = self
            .distribution()
            .map(|plot| plot.text(60, 13))
            .unwrap_or_default();
        format!("\n{table}\n{plot}")
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
