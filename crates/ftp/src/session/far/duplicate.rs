//! Detection of servers that reply twice to a prefetched command. The gateway sends a prefetched
//! command before any client requests it.
//!
//! Servers reply in order. The second reply therefore follows the first reply directly, and begins
//! with the same line. If the session waits for no other reply, the session drops the second reply.
//! Otherwise, the line may be the reply to the next command. The session then closes the control
//! connection, and logs in again without prefetched commands. If a log-in is impossible, the
//! session ends.
//!
//! Some servers send one reply to each command, but the replies to two successive commands are
//! equal. The session cannot distinguish such a server from a server that replies twice, and treats
//! both in the same way. The session does not detect a second reply whose text differs.

use crate::{
    reply::{ReplyClass, ReplyCode},
    session::QuestionSubject,
};

#[derive(Debug, Default)]
pub(super) struct DuplicateDetector {
    /// Latest prefetched command that has a reply: its subject, and the first line of the reply.
    /// `None` once a reply with a different first line has arrived.
    answer: Option<(QuestionSubject, Vec<u8>)>,
}

impl DuplicateDetector {
    /// Whether `line` may be a second reply to the latest prefetched command. `awaited` is the verb
    /// of the command that waits for its reply.
    ///
    /// `is_question` is set if the waiting command is a prefetched command, too.
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

    /// Records a reply whose first line is `line`. `question` is the subject of its command if that
    /// command was prefetched.
    pub(super) fn answered(&mut self, line: &[u8], question: Option<QuestionSubject>) {
        if let Some(subject) = question {
            self.answer = Some((subject, line.to_vec()));
        } else if self.answer.as_ref().is_some_and(|(_, first)| first != line) {
            self.answer = None;
        }
    }

    /// Whether the next reply may be a second reply to a prefetched command.
    pub(super) fn is_possible(&self) -> bool {
        self.answer.is_some()
    }
}
