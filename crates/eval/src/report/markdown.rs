//! The report as Markdown.

use std::fmt::Write;

use super::EvaluationReport;

impl EvaluationReport {
    /// Returns the report as Markdown, with the tables and the incomplete trials. Only the HTML
    /// page has plots.
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

    /// Returns the table over all cells as text for a terminal.
    pub fn summary(&self) -> String {
        let first = self.tables().into_iter().next();
        let table = first.map(|(_, table)| table.markdown()).unwrap_or_default();
        let plot = self
            .distribution()
            .map(|plot| plot.text(60, 13))
            .unwrap_or_default();
        format!("\n{table}\n{plot}")
    }

    /// Returns the conditions of the measurement: machine, version and number of trials.
    pub(super) fn conditions(&self) -> Vec<String> {
        let mut lines = vec![
            format!("{} trials; figures of a cell are medians of its repetitions", self.trials),
            format!("machine: {}", self.machine.join("; ")),
            format!("Longhaul {}", self.version.join("; ")),
            "of ideal: the time of a perfect sender by the measured time (docs/measuring.md); trials that were cut off \
             count by the rate that they reached, failed ones as zero"
                .to_owned(),
            "behind a cell's figures: c, a trial was cut off; f, one failed; m, the machine could not keep up in one"
                .to_owned(),
        ];
        let distorted = self.sides.iter().filter_map(|side| {
            let count = self
                .records(*side)
                .filter(|record| record.saturated)
                .count();
            let all = self.records(*side).count();
            (count > 0).then(|| format!("{} {count} of {all}", side.title()))
        });
        let distorted: Vec<_> = distorted.collect();
        if !distorted.is_empty() {
            lines.push(format!(
                "trials in which the machine could not keep up with the emulation, which say less about the path: {}",
                distorted.join("; ")
            ));
        }
        lines
    }
}
