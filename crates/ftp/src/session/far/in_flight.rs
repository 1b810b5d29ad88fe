//! Commands that the server has received and not answered, and the assignment of reply lines to
//! them.

use std::{collections::VecDeque, time::Duration};

use super::{
    duplicate::DuplicateDetector,
    greeting::Greeting,
    port_request::PortRequest,
    prefetch::{Question, QuestionCause},
    reply_buffer::ReplyBuffer,
};
use crate::{
    reply::{LinePosition, ReplyClass, ReplyCode, ReplyTracker, leading_code},
    session::{CommandId, QuestionSubject, ReplyStage, TransferId},
};

#[derive(Debug)]
pub(super) struct InFlight {
    entries: VecDeque<CommandInFlight>,
    /// Index of the entry that the open reply answers. `None` if it answers no entry.
    answering: Option<usize>,
    tracker: ReplyTracker,
    duplicate: DuplicateDetector,
    /// Whether the latest reply completed a repeated log-in.
    follows_log_in: bool,
}

#[derive(Debug)]
pub(super) struct CommandInFlight {
    /// Number of the command. `None` if the client has not sent it, or has its reply.
    pub(super) id: Option<CommandId>,
    /// Verb of the command; empty for the greeting.
    pub(super) verb: String,
    pub(super) expect: ExpectedReply,
}

/// Expected reply of the server.
#[derive(Debug)]
pub(super) enum ExpectedReply {
    /// Any reply. An unknown verb may start a transfer.
    Plain(QuestionCause),
    /// A command other than a transfer got a `1yz` reply. Another reply may follow, or none.
    Begun,
    Quit,
    /// `ABOR`.
    Abort,
    /// The greeting, which is relayed.
    Greeted,
    Greeting(Greeting),
    /// A command of the gateway itself about protection.
    Protection(ReplyBuffer),
    DataPort(PortRequest),
    /// `TYPE`, and whether the client has its reply already.
    Type(ReplyBuffer, bool),
    /// A prefetched command: a command that the client has not sent.
    Question(Question),
    /// A step of the repeated log-in, and the class that its reply must have.
    Relogin(ReplyClass, ReplyBuffer),
    /// No reply. The session connects again this long after the first attempt.
    Pause(Duration),
    /// The session has stopped waiting for this reply. A late one is dropped.
    Late(OverdueReply),
    /// The present second answer to a prefetched command. It is dropped.
    Duplicate,
    /// A second reply to a repeated log-in. It is dropped.
    DuplicateLogIn,
    Transfer {
        transfer: TransferId,
        /// Whether its `1yz` reply has arrived.
        begun: bool,
    },
}

impl ExpectedReply {
    /// Returns the lines of a reply that is not relayed at once.
    pub(super) fn held_mut(&mut self) -> Option<&mut ReplyBuffer> {
        match self {
            Self::Question(question) => Some(&mut question.held),
            Self::DataPort(asked) => Some(&mut asked.held),
            Self::Type(held, _) | Self::Protection(held) | Self::Relogin(_, held) => Some(held),
            _ => None,
        }
    }
}

/// A reply that the session has stopped waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OverdueReply {
    /// The reply to an aborted transfer.
    Transfer,
    /// The reply to an `ABOR`.
    Abort,
}

impl OverdueReply {
    /// Whether a reply with `code` is this reply, and not the reply to the later command `next`.
    ///
    /// Servers answer in order, so the next reply is the late one, or the late one never comes.
    fn is_answered_by(self, code: ReplyCode, next: Option<&CommandInFlight>) -> bool {
        if code.0 == 421 {
            return false;
        }
        let Some(next) = next else {
            return true;
        };
        let is_refusal = matches!(code.0, 500 | 502) && NEVER_UNKNOWN.contains(&next.verb.as_str());
        match self {
            Self::Transfer => {
                let is_transfer = matches!(next.expect, ExpectedReply::Transfer { .. });
                matches!(code.0, 226 | 425 | 426 | 450..=452) && !is_transfer || is_refusal
            }
            Self::Abort => match next.expect {
                ExpectedReply::Abort => false,
                ExpectedReply::Transfer { begun, .. } => matches!(code.0, 225 | 226) && !begun,
                ExpectedReply::DataPort(_) => matches!(code.0, 225 | 226 | 426 | 500 | 502),
                _ => matches!(code.0, 225 | 226 | 426) || is_refusal,
            },
        }
    }
}

impl CommandInFlight {
    /// Returns the subject, if this entry is a prefetched command.
    fn question(&self) -> Option<QuestionSubject> {
        match &self.expect {
            ExpectedReply::Question(question) => Some(question.subject),
            _ => None,
        }
    }

    fn is_late(&self) -> bool {
        matches!(
            self.expect,
            ExpectedReply::Late(_) | ExpectedReply::Duplicate | ExpectedReply::DuplicateLogIn
        )
    }
}

impl InFlight {
    /// Creates the state of a new connection, on which the server speaks first.
    pub(super) fn greeting(entry: CommandInFlight) -> Self {
        Self {
            entries: VecDeque::from([entry]),
            answering: None,
            tracker: ReplyTracker::default(),
            duplicate: DuplicateDetector::default(),
            follows_log_in: false,
        }
    }

    pub(super) fn push(&mut self, id: Option<CommandId>, verb: &str, expect: ExpectedReply) {
        let verb = verb.to_owned();
        self.entries.push_back(CommandInFlight { id, verb, expect });
    }

    /// Whether no reply is awaited.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.iter().all(CommandInFlight::is_late)
    }

    /// Returns the oldest entry with an awaited reply.
    pub(super) fn awaited(&self) -> Option<&CommandInFlight> {
        self.entries.iter().find(|entry| !entry.is_late())
    }

    /// Stops waiting for the reply to the oldest entry.
    pub(super) fn stop_waiting(&mut self, late: OverdueReply) -> Option<CommandId> {
        let entry = self.entries.iter_mut().find(|entry| !entry.is_late())?;
        entry.expect = ExpectedReply::Late(late);
        entry.id.take()
    }

    /// Takes the oldest entry with an awaited reply.
    pub(super) fn take_awaited(&mut self) -> Option<CommandInFlight> {
        let at = self.entries.iter().position(|entry| !entry.is_late())?;
        if self.answering == Some(at) {
            self.answering = None;
        }
        self.entries.remove(at)
    }

    /// Stops waiting for the reply to an `ABOR` that is the oldest entry.
    pub(super) fn pass_abort(&mut self) -> Option<CommandId> {
        match self.awaited()?.expect {
            ExpectedReply::Abort => self.stop_waiting(OverdueReply::Abort),
            _ => None,
        }
    }

    /// Whether the session is between two connections to the server.
    pub(super) fn is_paused(&self) -> bool {
        matches!(self.awaited(), Some(entry) if matches!(entry.expect, ExpectedReply::Pause(_)))
    }

    /// Whether an `ABOR` is unanswered.
    pub(super) fn has_abort(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| matches!(entry.expect, ExpectedReply::Abort))
    }

    /// Returns the transfers without a final reply.
    pub(super) fn transfers(&self) -> impl DoubleEndedIterator<Item = TransferId> {
        self.entries.iter().filter_map(|entry| match entry.expect {
            ExpectedReply::Transfer { transfer, .. } => Some(transfer),
            _ => None,
        })
    }

    /// Whether a reply is open.
    pub(super) fn is_answering(&self) -> bool {
        self.answering.is_some()
    }

    /// Removes a transfer that will get no reply. Returns its command.
    pub(super) fn forget(&mut self, transfer: TransferId) -> Option<CommandId> {
        let is_it = |entry: &CommandInFlight| matches!(entry.expect, ExpectedReply::Transfer { transfer: it, .. } if it == transfer);
        let index = self.entries.iter().position(is_it)?;
        self.entries.remove(index)?.id
    }

    /// Whether an earlier command than `than`, other than a transfer, is unanswered.
    pub(super) fn has_earlier(&self, than: CommandId) -> bool {
        let is_transfer =
            |entry: &CommandInFlight| matches!(entry.expect, ExpectedReply::Transfer { .. });
        let mut entries = self.entries.iter().filter(|entry| !is_transfer(entry));
        entries.any(|entry| entry.id.is_some_and(|id| id < than))
    }

    /// Whether the oldest command is a transfer, which other commands may overtake.
    pub(super) fn transfer_is_first(&self) -> bool {
        let first = self.awaited().map(|entry| &entry.expect);
        matches!(first, Some(ExpectedReply::Transfer { .. }))
    }

    /// Determines the position of a server's line in its reply, and the command that it answers.
    pub(super) fn locate(&mut self, line: &[u8]) -> LinePosition {
        let position = self.tracker.locate(line);
        if let (Some(code), true) = (position.code, position.first) {
            let awaited = self.entries.iter().find(|entry| !entry.is_late());
            let duplicate = if self.repeats_log_in(code, awaited) {
                Some(ExpectedReply::DuplicateLogIn)
            } else {
                let verb = awaited.map(|entry| entry.verb.as_str());
                let is_question = awaited.and_then(CommandInFlight::question).is_some();
                let is_duplicate = self.duplicate.may_begin(code, line, (verb, is_question));
                is_duplicate.then_some(ExpectedReply::Duplicate)
            };
            if let Some(expect) = duplicate {
                let (id, verb) = (None, String::new());
                self.entries
                    .push_front(CommandInFlight { id, verb, expect });
                self.answering = Some(0);
            } else {
                self.answering = self.attribute(code);
                let answered = self.answering.and_then(|index| self.entries.get(index));
                let question = answered.and_then(CommandInFlight::question);
                self.duplicate.answered(line, question);
                let is_log_in = matches!(code.0, 202 | 230 | 232);
                self.follows_log_in = is_log_in
                    && answered
                        .is_some_and(|entry| matches!(entry.expect, ExpectedReply::Relogin(..)));
            }
        }
        position
    }

    /// Whether a reply with `code` is a second one to a repeated log-in, and not the reply to
    /// `awaited`.
    fn repeats_log_in(&self, code: ReplyCode, awaited: Option<&CommandInFlight>) -> bool {
        let logs_in = awaited.is_some_and(|entry| LOGS_IN.contains(&entry.verb.as_str()));
        self.follows_log_in && !logs_in && matches!(code.0, 220 | 230 | 232)
    }

    /// Whether the server may answer a prefetched command a second time.
    pub(super) fn may_be_answered_twice(&self) -> bool {
        self.duplicate.is_possible()
    }

    /// Whether the open reply may be the second answer to a prefetched command.
    pub(super) fn is_duplicate(&self) -> bool {
        let open = self.answering.and_then(|index| self.entries.get(index));
        open.is_some_and(|entry| matches!(entry.expect, ExpectedReply::Duplicate))
    }

    /// Returns the entry that the open reply answers.
    pub(super) fn answering(&mut self) -> Option<&mut CommandInFlight> {
        self.entries.get_mut(self.answering?)
    }

    /// Ends the open reply, and takes the entry that it answers. The index is for [`Self::keep`].
    pub(super) fn end_reply(&mut self) -> Option<(usize, CommandInFlight)> {
        let index = self.answering.take()?;
        let entry = self.entries.remove(index)?;
        // A late reply would have preceded this one.
        let before = self.entries.len();
        let mut at = 0;
        self.entries.retain(|entry| {
            at += 1;
            let is_passed = matches!(entry.expect, ExpectedReply::Late(_));
            at > index || !is_passed
        });
        Some((index - (before - self.entries.len()), entry))
    }

    /// Whether an entry before the index awaits its reply.
    pub(super) fn is_passed_over(&self, index: usize) -> bool {
        let mut before = self.entries.iter().take(index);
        before.any(|entry| !entry.is_late())
    }

    /// Puts an entry back, since another reply to the same command follows.
    pub(super) fn keep(&mut self, index: usize, entry: CommandInFlight) {
        self.entries.insert(index, entry);
    }

    /// Handles the client's next command: an earlier `1yz` reply was the last one to its command.
    pub(super) fn drop_begun(&mut self) {
        let is_begun =
            matches!(self.awaited(), Some(entry) if matches!(entry.expect, ExpectedReply::Begun));
        if self.answering.is_none() && is_begun {
            self.take_awaited();
        }
    }

    /// Whether `line` begins the reply to another command. It follows a line in doubt of a reply
    /// with code `open`.
    pub(super) fn begins_next(&self, line: &[u8], open: Option<ReplyCode>) -> bool {
        let awaited = self.entries.iter().filter(|entry| !entry.is_late());
        let code = leading_code(line);
        let is_end = code == open && line.get(3) != Some(&b'-');
        awaited.count() > 1 && code.is_some() && !is_end
    }

    /// Records that a line in doubt ended the open reply.
    pub(super) fn end_in_doubt(&mut self) {
        self.tracker.end_in_doubt();
    }

    /// Returns the index of the command that a reply with `code` answers. Servers answer in order
    /// until a transfer has begun. During a transfer, the replies to overtaking commands have codes
    /// that end no transfer.
    fn attribute(&self, code: ReplyCode) -> Option<usize> {
        let late = self.entries.iter().take_while(|entry| entry.is_late());
        let first = late.count();
        let next = self.entries.get(first);
        let is_it = |entry: &CommandInFlight| match entry.expect {
            ExpectedReply::Late(late) => late.is_answered_by(code, next),
            _ => false,
        };
        if let Some(late) = self.entries.iter().take(first).position(is_it) {
            return Some(late);
        }
        match &next?.expect {
            ExpectedReply::Transfer { begun: true, .. } if self.entries.len() > first + 1 => {
                let transfers = stage_of(code) == ReplyStage::Preliminary
                    || matches!(code.0, 226 | 250 | 425 | 426 | 450..=452 | 550..=553);
                Some(first + usize::from(!transfers))
            }
            // The server leaves ABOR unanswered.
            ExpectedReply::Abort if self.entries.len() > first + 1 && !may_answer_abort(code) => {
                Some(first + 1)
            }
            ExpectedReply::Question(question) if question.is_stray(code) => None,
            // This is another reply to the log-in.
            ExpectedReply::DataPort(_)
            | ExpectedReply::Type(_, true)
            | ExpectedReply::Protection(_)
            | ExpectedReply::Transfer { begun: false, .. }
                if matches!(code.0, 220 | 230) =>
            {
                None
            }
            _ => Some(first),
        }
    }
}

/// Whether `code` may answer ABOR. Successes of other commands may not.
fn may_answer_abort(code: ReplyCode) -> bool {
    code.class() != ReplyClass::Completed || matches!(code.0, 225 | 226 | 250)
}

/// Commands that a reply to a log-in may answer.
const LOGS_IN: [&str; 6] = ["USER", "PASS", "ACCT", "REIN", "HOST", "AUTH"];

/// Commands that every server supports.
const NEVER_UNKNOWN: [&str; 7] = ["CWD", "NOOP", "RETR", "STOR", "TYPE", "USER", "PASS"];

pub(super) fn stage_of(code: ReplyCode) -> ReplyStage {
    match code.class() {
        ReplyClass::Preliminary => ReplyStage::Preliminary,
        _ => ReplyStage::Final,
    }
}
