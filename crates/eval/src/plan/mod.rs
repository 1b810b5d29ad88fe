//! Plans: the cells, the programs to compare, and the number of repetitions. A plan is read from a
//! TOML file and checked once.
//!
//! Each `[[cells]]` section stands for all combinations of its values. A cell runs only once, even
//! if several sections contain it.

mod section;

use std::{ops::Range, path::Path, time::Duration};

use super::{cell::Cell, side::Side};

/// A checked plan with all trials of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationPlan {
    /// Name of the plan, and prefix of the names of the result files. It consists of letters,
    /// digits and hyphens.
    pub name: String,
    /// Heading of the report.
    pub title: String,
    /// Description of the plan's subject and source, for the report.
    pub about: String,
    /// Cells to measure, in the order of their trials.
    pub tasks: Vec<CellTask>,
}

/// A cell, and the programs to compare in it.
#[derive(Debug, Clone, PartialEq)]
pub struct CellTask {
    /// The emulated path and the work.
    pub cell: Cell,
    /// Programs to compare.
    pub sides: Vec<Side>,
    /// Number of trials of each program.
    pub repetitions: u32,
    /// Time limit of a trial. A trial that takes longer is aborted, and its score is the goodput
    /// until the abort.
    pub limit: Duration,
}

/// An error in a plan, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct PlanError {
    file: String,
    line: usize,
    column: usize,
    message: String,
}

/// An error in a plan: its byte range in the plan's text, and its message.
type PlanProblem = (Range<usize>, String);

impl EvaluationPlan {
    /// Reads and checks a plan. If `published` is true, returns only the subset for publication.
    ///
    /// # Errors
    /// [`PlanError`] with the first error in the plan.
    pub fn parse(text: &str, path: &Path, published: bool) -> Result<Self, PlanError> {
        let problem = |(span, message): PlanProblem| {
            let before = text.get(..span.start).unwrap_or(text);
            let line_start = before.rfind('\n').map_or(0, |at| at + 1);
            PlanError {
                file: path.display().to_string(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message,
            }
        };
        let file: section::PlanFile = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            problem((span, error.message().replace('`', "\"")))
        })?;
        file.plan(published).map_err(problem)
    }

    /// Returns the number of trials.
    pub fn trials(&self) -> usize {
        let of_task = |task: &CellTask| task.sides.len() * task.repetitions as usize;
        self.tasks.iter().map(of_task).sum()
    }

    /// Returns the expected time of all trials, according to the formulas of [`units::calc`].
    pub fn estimate(&self) -> Duration {
        self.tasks.iter().map(CellTask::estimate).sum()
    }
}

impl CellTask {
    /// Returns the compared programs in their order for repetition number `repetition`. Each
    /// repetition rotates the order by one program. The second program of a repetition is therefore
    /// the first program of the next repetition.
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

/// Expected time to start the sites, servers and gateways of a cell.
const CELL_SETUP: Duration = Duration::from_secs(2);

/// Expected time of login, counter readings and warm-up around a trial.
const TRIAL_SETUP: Duration = Duration::from_millis(900);

#[cfg(test)]
mod tests;
