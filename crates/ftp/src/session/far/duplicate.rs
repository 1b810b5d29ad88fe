//! Servers that answer a prefetched command twice. The gateway sends such a command ahead of the
//! client.
//!
//! Servers answer in order. The second answer therefore follows the first directly, and begins with
//! the same line. The session drops such a line if it awaits no reply. Otherwise the line may be
//! the reply to the awaited command. The session then leaves the server, and logs in again without
//! prefetched commands, or ends.
//!
//! Another kind of server sends the same lines. Its reply to a command equals its answer to the
//! preceding prefetched command, word for word. The session leaves it as well. A second answer in
//! other words is not detected.

use crate::{
    reply::{ReplyClass, ReplyCode},
    session::QuestionSubject,
};

#[derive(Debug, Default)]
pub(super) struct DuplicateDetector {
    /// The subject and the first line of the latest reply, if it answered a prefetched command.
    answer: Option<(QuestionSubject, Vec<u8>)>,
}

impl DuplicateDetector {
    /// Whether `line` may begin a second answer while the session awaits the reply to the command
    /// `awaited`.
    ///
    /// With `is_question` that command is a prefetched command, too.
    pub(super) fn may_begin(
        &self,
        code: ReplyCode,
        line: &[u8],
        (awaited, is_question): (Option<&str>, bool),
    ) -> bool {
        let Some((subject, first)) = &self.answer else {
            return false;
        };
        if first != line || code.0 == 421 {
            return false;
        }
        // Refusals of different prefetched commands may be equal.
        let is_refusal = code.class() == ReplyClass::Failed;
        awaited.and_then(QuestionSubject::from_verb) != Some(*subject)
            && !(is_refusal && is_question)
    }

    /// Records a reply that begins with `line`, and the prefetched command that it answers.
    pub(super) fn answered(&mut self, line: &[u8], question: Option<QuestionSubject>) {
        if let Some(subject) = question {
            self.answer = Some((subject, line.to_vec()));
        } else if self.answer.as_ref().is_some_and(|(_, first)| first != line) {
            self.answer = None;
        }
    }

    /// Whether the latest reply is the answer to a prefetched command.
    pub(super) fn is_possible(&self) -> bool {
        self.answer.is_some()
    }
}
