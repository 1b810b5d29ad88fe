//! Servers that answer a question twice.
//!
//! Servers answer in order: the second answer comes directly behind the first, and begins with the same line. The session
//! drops such a line where it awaits nothing. Elsewhere the line may be the reply to the command that the session awaits.
//! The session then leaves the server, and logs in again without questions, or ends.
//!
//! A server whose reply to a command equals its answer to the question directly before, word for word, is left as well: both
//! kinds of server send the same lines. A second answer in other words is not detected.

use crate::{
    reply::{Class, Code},
    session::Subject,
};

#[derive(Debug, Default)]
pub(super) struct DuplicateAnswer {
    /// The latest reply, if it is the answer to a question: which one, and its first line.
    answer: Option<(Subject, Vec<u8>)>,
}

impl DuplicateAnswer {
    /// Whether `line` may begin a second answer, while the session awaits the reply to the command `awaited`, which is a
    /// question of its own if `is_question`.
    pub(super) fn may_begin(
        &self,
        code: Code,
        line: &[u8],
        (awaited, is_question): (Option<&str>, bool),
    ) -> bool {
        let Some((subject, first)) = &self.answer else {
            return false;
        };
        if first != line || code.0 == 421 {
            return false;
        }
        // Refusals of different questions may be the same.
        let is_refusal = code.class() == Class::Failed;
        awaited.and_then(Subject::of) != Some(*subject) && !(is_refusal && is_question)
    }

    /// Takes note of a reply that begins with `line`, and of the question that it answers.
    pub(super) fn answered(&mut self, line: &[u8], question: Option<Subject>) {
        if let Some(subject) = question {
            self.answer = Some((subject, line.to_vec()));
        } else if self.answer.as_ref().is_some_and(|(_, first)| first != line) {
            self.answer = None;
        }
    }

    /// Whether the latest reply is the answer to a question.
    pub(super) fn is_possible(&self) -> bool {
        self.answer.is_some()
    }
}
