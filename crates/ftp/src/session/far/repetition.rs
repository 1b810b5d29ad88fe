//! Servers that answer a question twice.
//!
//! Servers answer in order: the second answer comes before any other reply, and its first line is that of the first. Such a
//! reply to another command is therefore dropped. It may be the reply to that command all the same: if no other comes in
//! time, the session takes it for that.

use super::in_flight::{Entry, Expect};
use crate::{reply::Code, session::Subject};

#[derive(Debug, Default)]
pub(super) struct Repetition {
    /// The latest reply, if it is the answer to a question: which one, and its first line.
    answer: Option<(Subject, Vec<u8>)>,
    /// The question that the server has answered twice.
    repeated: Option<Subject>,
    /// A line that may be the reply to the command which the session awaits.
    dropped: Option<Vec<u8>>,
    /// The server does not answer twice.
    is_refuted: bool,
}

impl Repetition {
    /// Whether `line` begins a second answer, while the session awaits the reply to `awaited`.
    pub(super) fn begins(&mut self, line: &[u8], awaited: Option<&Entry>) -> bool {
        let Some((subject, first)) = &self.answer else {
            return false;
        };
        let asked = awaited.and_then(|entry| Subject::of(&entry.verb));
        if first != line || asked == Some(*subject) {
            return false;
        }
        self.repeated = Some(*subject);
        let is_plain = awaited.is_some_and(|entry| matches!(entry.expect, Expect::Plain(_)));
        let is_whole = line.get(3) != Some(&b'-');
        self.dropped = (is_plain && is_whole).then(|| line.to_vec());
        true
    }

    /// Takes note of a reply to `entry` that has this code and begins with `line`.
    pub(super) fn answered(&mut self, code: Code, line: &[u8], entry: Option<&Entry>) {
        self.dropped = None;
        if self.answer.as_ref().is_some_and(|(_, first)| first == line) {
            return;
        }
        let subject = entry.and_then(|entry| match &entry.expect {
            Expect::Question(question) => Some(question.subject),
            // A question of the client's own is answered twice, too.
            _ => Subject::of(&entry.verb).filter(|it| self.repeated == Some(*it)),
        });
        // Refusals of different commands may be the same.
        let subject = subject.filter(|it| it.answer_code() == code && !self.is_refuted);
        self.answer = subject.map(|subject| (subject, line.to_vec()));
    }

    /// Whether a dropped line may be the reply that the session awaits.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.dropped.is_some()
    }

    /// No other reply has come: takes the line that was dropped.
    pub(super) fn refute(&mut self) -> Option<Vec<u8>> {
        let line = self.dropped.take()?;
        self.is_refuted = true;
        self.answer = None;
        self.repeated = None;
        Some(line)
    }
}
