//! Plans: the cells, the sides and the number of repetitions. A plan is read from a TOML file and
//! checked once.
//!
//! Each `[[cells]]` section stands for all combinations of the values that it lists. A cell that
//! occurs twice counts once.

mod section;

use std::{ops::Range, path::Path, time::Duration};

use super::{cell::Cell, side::Side};

/// Checked plan: all trials of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationPlan {
    /// Begins the names of the result files: letters, digits and hyphens.
    pub name: String,
    /// Heading of the report.
    pub title: String,
    /// Subject and source of the plan, for the report.
    pub about: String,
    /// In the order of the trials.
    pub tasks: Vec<CellTask>,
}

/// A cell with the sides that are compared in it.
#[derive(Debug, Clone, PartialEq)]
pub struct CellTask {
    /// Path and work.
    pub cell: Cell,
    /// Movers to compare.
    pub sides: Vec<Side>,
    /// Trials of each side.
    pub repetitions: u32,
    /// Longest trial. A trial that takes longer is cut off, and its score is the rate until then.
    pub limit: Duration,
}

/// A mistake in a plan and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct PlanError {
    file: String,
    line: usize,
    column: usize,
    message: String,
}

/// A mistake and its byte range in the plan's text.
type PlanProblem = (Range<usize>, String);

impl EvaluationPlan {
    /// Reads and checks a plan. With `published`, only the subset for publication.
    ///
    /// # Errors
    /// [`PlanError`] with the first mistake.
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

    /// Expected time of all trials, by the formulas of [`units::calc`].
    pub fn estimate(&self) -> Duration {
        self.tasks.iter().map(CellTask::estimate).sum()
    }
}

impl CellTask {
    /// The sides in the order of one repetition. The order rotates from repetition to repetition.
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
