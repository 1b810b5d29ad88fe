//! Why files have failed, for a dead letter.

use mover::{
    plan::{Note, RelativePath, Result as NoteResult},
    run::Summary,
};

/// Some of the reasons, and how many there are.
#[derive(Debug, Default)]
pub(super) struct Failures {
    told: Vec<String>,
    count: usize,
}

impl Failures {
    /// Hears of a note, which is about a file with this path.
    pub(super) fn hear(&mut self, note: &Note, path: &RelativePath) {
        let NoteResult::Failed(reason) = &note.result else {
            return;
        };
        self.count += 1;
        if self.told.len() < REASONS_MAX {
            let told = match path.names() {
                [] => reason.to_owned(),
                _ => format!("{path}: {reason}"),
            };
            self.told
                .push(told.chars().take(REASON_CHARS_MAX).collect());
        }
    }

    /// Why a run has failed, if it has.
    pub(super) fn reason(&self, summary: &Summary) -> Option<String> {
        if self.count == 0 {
            let failed = summary.tally.failed;
            return (failed > 0).then(|| format!("{failed} files failed"));
        }
        let mut text = self.told.join("; ");
        if self.count > self.told.len() {
            text += &format!("; and {} more", self.count - self.told.len());
        }
        Some(text)
    }
}

/// Reasons that a dead letter has,
const REASONS_MAX: usize = 10;

/// and how long each may be.
const REASON_CHARS_MAX: usize = 500;
