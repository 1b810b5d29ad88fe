//! The command behind a question without an answer in time.

use super::prefetch::Question;
use crate::{
    reply::{Class, Code},
    session::Subject,
};

/// A question without an answer in time, and the marker behind it.
#[derive(Debug)]
pub(super) struct Marker {
    pub(super) subject: Subject,
    /// The question has been answered; the next reply is the marker's.
    pub(super) is_answered: bool,
    /// A refusal has come: of the question or of the marker.
    is_refused: bool,
    /// The server has taken its leave.
    pub(super) is_farewell: bool,
}

impl Marker {
    pub(super) fn behind(question: &Question) -> Self {
        Self {
            subject: question.subject,
            is_answered: false,
            is_refused: false,
            is_farewell: false,
        }
    }

    /// Whether a reply with `code` is another one to the log-in.
    pub(super) fn is_stray(&self, code: Code) -> bool {
        matches!(code.0, 220 | 230 | 232)
    }

    /// Takes note of a reply. Returns whether it is the marker's own, so that nothing is due any more.
    pub(super) fn heard(&mut self, code: Code) -> bool {
        if code == MARKER_CODE || self.is_answered {
            return true;
        }
        self.is_answered = code == self.subject.answer_code();
        let was_refused = self.is_refused;
        self.is_refused |= code.class() == Class::Failed;
        was_refused && code.class() == Class::Failed
    }
}

/// The marker. It changes nothing: transfers begin at this offset anyway.
pub(super) const MARKER: &[u8] = b"REST 0";

/// Code of the marker's reply, unless it is refused (RFC 3659 section 5.1). No question has such an answer.
pub(super) const MARKER_CODE: Code = Code(350);
