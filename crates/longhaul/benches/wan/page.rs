//! Output of the bench: progress, tables on the screen, and a copy of the tables in a file.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context;
use bench_kit::{machine, options};

/// The output file, and the tables of all finished sections.
pub struct ResultsPage {
    out: Option<PathBuf>,
    began: Instant,
    machine: String,
    text: String,
}

impl ResultsPage {
    pub fn new(out: Option<PathBuf>) -> Self {
        let machine = machine::describe();
        println!("{machine}");
        Self {
            out,
            began: Instant::now(),
            machine,
            text: String::new(),
        }
    }

    /// Prints how long a section takes if no failure occurs.
    ///
    /// # Errors
    /// If the section has no rows.
    pub fn announce(&self, rows: usize, runs: usize, expected: Duration) -> anyhow::Result<()> {
        anyhow::ensure!(rows > 0, "the section has no such row");
        let minutes = (expected.as_secs_f64() / 60.0).ceil();
        println!("{rows} rows, {runs} runs each, about {minutes:.0} min\n");
        Ok(())
    }

    /// Prints a line about a finished step.
    pub fn progress(&self, done: &str) {
        let elapsed = self.began.elapsed().as_secs();
        let (minutes, seconds) = (elapsed / 60, elapsed % 60);
        eprintln!("{minutes:3}:{seconds:02}  {done}");
    }

    /// Writes the incomplete table of a section to the file. If the bench is interrupted, the file
    /// thus contains the results so far.
    pub fn draft(&self, section: &str) -> anyhow::Result<()> {
        let Some(out) = &self.out else {
            return Ok(());
        };
        let command: Vec<String> = options::given().collect();
        let text = format!(
            "# `cargo xtask bench wan -- {}`\n\n{}. What the columns mean: `docs/measuring.md`.\n\n{}{section}",
            command.join(" "),
            self.machine,
            self.text
        );
        std::fs::write(out, text).with_context(|| out.display().to_string())
    }

    /// Adds the complete table of a section to the output.
    pub fn finish(&mut self, section: &str) -> anyhow::Result<()> {
        print!("\n{section}");
        self.draft(section)?;
        self.text += &format!("{section}\n");
        if let Some(out) = &self.out {
            println!("written to {}", out.display());
        }
        Ok(())
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}
