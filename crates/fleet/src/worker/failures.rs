//! Reasons of failed files, for a dead letter.

use mover::{
    plan::{FileEvent, FileOutcome, RelativePath},
    run::JobSummary,
};

/// Some of the reasons, and their total number.
#[derive(Debug, Default)]
pub(super) struct Failures {
    reasons: Vec<String>,
    count: usize,
}

impl Failures {
    /// Adds a note about the file with this path.
    pub(super) fn add(&mut self, note: &FileEvent, path: &RelativePath) {
        let FileOutcome::Failed(reason) = &note.result else {
            return;
        };
        self.count += 1;
        if self.reasons.len() < REASONS_MAX {
            let text = match path.names() {
                [] => reason.to_owned(),
                _ => format!("{path}: {reason}"),
            };
            self.reasons
                .push(text.chars().take(REASON_CHARS_MAX).collect());
        }
    }

    /// Returns the reason of a failed run.
    pub(super) fn reason(&self, summary: &JobSummary) -> Option<String> {
        if self.count == 0 {
            let failed = summary.tally.failed;
            return (failed > 0).then(|| format!("{failed} files failed"));
        }
        let mut text = self.reasons.join("; ");
        if self.count > self.reasons.len() {
            text += &format!("; and {} more", self.count - self.reasons.len());
        }
        Some(text)
    }
}

/// Maximum number of reasons in a dead letter.
const REASONS_MAX: usize = 10;

/// Maximum number of characters of a reason.
const REASON_CHARS_MAX: usize = 500;
