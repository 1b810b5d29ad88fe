//! Collection of the reasons why files failed, for a dead letter.

use mover::{
    plan::{FileEvent, FileOutcome, RelativePath},
    run::JobSummary,
};

/// The first reasons why files failed, and the number of all failed files.
#[derive(Debug, Default)]
pub(super) struct Failures {
    reasons: Vec<String>,
    count: usize,
}

impl Failures {
    /// Adds the reason if the event reports a failed file.
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

    /// Returns a text with the reasons of a run. Returns `None` if no file has failed.
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

/// Maximum number of reasons in one dead letter.
const REASONS_MAX: usize = 10;

/// Maximum length of one reason in characters.
const REASON_CHARS_MAX: usize = 500;
