//! Plans: which cells, by whom, how often. Read from a TOML file and checked once.
//!
//! Lists multiply: each `[[cells]]` stands for all combinations of what it lists. A cell that occurs twice
//! counts once.

mod section;

use std::{ops::Range, path::Path, time::Duration};

use super::{cell::Cell, side::Side};

/// A plan, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Names files: letters, digits and hyphens.
    pub name: String,
    /// In a line.
    pub title: String,
    /// What it is about and where it comes from.
    pub about: String,
    /// In the order in which they are tried.
    pub tasks: Vec<Task>,
}

/// A cell, and who tries it.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Path and work.
    pub cell: Cell,
    /// Who is compared.
    pub sides: Vec<Side>,
    /// How often each side does it.
    pub repetitions: u32,
    /// A trial is cut off after this time and scored at the rate that it reached.
    pub limit: Duration,
}

/// What is wrong with a plan, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct PlanError {
    file: String,
    line: usize,
    column: usize,
    message: String,
}

/// Where in the text, and what.
type Problem = (Range<usize>, String);

impl Plan {
    /// Reads and checks a plan. `published` takes the subset that is meant for publication.
    ///
    /// # Errors
    /// [`PlanError`] with the first thing that is wrong.
    pub fn parse(text: &str, path: &Path, published: bool) -> Result<Self, PlanError> {
        let problem = |(span, message): Problem| {
            let before = text.get(..span.start).unwrap_or(text);
            let line_start = before.rfind('\n').map_or(0, |at| at + 1);
            PlanError {
                file: path.display().to_string(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message,
            }
        };
        let file: section::File = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            problem((span, error.message().replace('`', "\"")))
        })?;
        file.plan(published).map_err(problem)
    }

    /// How many trials there are.
    pub fn trials(&self) -> usize {
        let of_task = |task: &Task| task.sides.len() * task.repetitions as usize;
        self.tasks.iter().map(of_task).sum()
    }

    /// How long all trials will take, by the formulas of [`probe::calc`].
    pub fn estimate(&self) -> Duration {
        self.tasks.iter().map(Task::estimate).sum()
    }
}

impl Task {
    /// The sides in the order of one repetition: each comes first in its turn.
    pub fn turn(&self, repetition: u32) -> impl Iterator<Item = Side> + '_ {
        let first = repetition as usize % self.sides.len();
        let (last, rest) = self.sides.split_at(first);
        rest.iter().chain(last).copied()
    }

    fn estimate(&self) -> Duration {
        let of_side = |side: &Side| {
            let work = side.estimate(&self.cell).min(self.limit);
            let outage = self.cell.work.outage();
            let neighbour = self.cell.neighbour_head_start().unwrap_or_default();
            work + outage + neighbour + TRIAL_SETUP
        };
        let turn: Duration = self.sides.iter().map(of_side).sum();
        CELL_SETUP + self.repetitions * turn
    }
}

/// Sites, servers and gateways.
const CELL_SETUP: Duration = Duration::from_secs(2);

/// Logging in, looking at counters, the link's warm-up.
const TRIAL_SETUP: Duration = Duration::from_millis(900);

#[cfg(test)]
mod tests;
