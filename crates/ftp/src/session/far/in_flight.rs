//! Commands in flight: sent to the server, without a final reply. The module assigns each reply
//! line to its command.

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
    /// Index of the command that the arriving reply answers. `None` if no reply is arriving, or if
    /// the arriving lines belong to no command.
    answering: Option<usize>,
    tracker: ReplyTracker,
    duplicate: DuplicateDetector,
    /// Whether the latest reply completed a repeated log-in.
    follows_log_in: bool,
}

#[derive(Debug)]
pub(super) struct CommandInFlight {
    /// Number of the client's command. `None` if the gateway sent the command itself, or the client
    /// already has the reply.
    pub(super) id: Option<CommandId>,
    /// Verb of the command. Empty for the server's greeting.
    pub(super) verb: String,
    pub(super) expect: ExpectedReply,
}

/// Reply that the session expects from the server.
#[derive(Debug)]
pub(super) enum ExpectedReply {
    /// Any reply to a command of the client. If the verb is unknown, the reply may start a
    /// transfer.
    Plain(QuestionCause),
    /// The second reply to a command that is not a transfer. The first reply was `1yz`. Some
    /// servers send no second reply.
    Begun,
    Quit,
    /// The reply to `ABOR`.
    Abort,
    /// The server's greeting. The gateway relays it to the client.
    Greeted,
    Greeting(Greeting),
    /// The reply to the gateway's own `AUTH`, `PBSZ` or `PROT`.
    Protection(ReplyBuffer),
    DataPort(PortRequest),
    /// The reply to `TYPE`. The flag is set if the client already has a reply from the near
    /// gateway.
    Type(ReplyBuffer, bool),
    /// The reply to a prefetched command. The gateway sent this command before any client requested
    /// it.
    Question(Question),
    /// The reply to one command of the repeated log-in. For the log-in to continue, the reply must
    /// have this class.
    Relogin(ReplyClass, ReplyBuffer),
    /// No reply: the last attempt to log in again has failed, and the session waits before the next
    /// attempt. The pause ends when this duration has passed since the first attempt.
    Pause(Duration),
    /// A reply for which the session no longer waits. If the reply still arrives, the session drops
    /// the reply.
    Late(OverdueReply),
    /// A second reply to a prefetched command. The session drops all lines of this reply.
    Duplicate,
    /// A second reply to the repeated log-in. The session drops all lines of this reply.
    DuplicateLogIn,
    Transfer {
        transfer: TransferId,
        /// Whether the `1yz` reply to the transfer has arrived.
        begun: bool,
    },
}

impl ExpectedReply {
    /// Returns the buffer for the lines of this reply. Returns `None` if the session relays the
    /// reply without buffering, drops it, or buffers it in another way.
    pub(super) fn held_mut(&mut self) -> Option<&mut ReplyBuffer> {
        match self {
            Self::Question(question) => Some(&mut question.held),
            Self::DataPort(asked) => Some(&mut asked.held),
            Self::Type(held, _) | Self::Protection(held) | Self::Relogin(_, held) => Some(held),
            _ => None,
        }
    }
}

/// A reply for which the session no longer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OverdueReply {
    /// The reply to an aborted transfer.
    Transfer,
    /// The reply to an `ABOR`.
    Abort,
}

impl OverdueReply {
    /// Whether a reply with `code` is this overdue reply. Otherwise, it is the reply to the later
    /// command `next`.
    ///
    /// Servers reply in order. If the next reply is not the overdue reply, the overdue reply never
    /// arrives.
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
    /// Returns the subject of a prefetched command. Returns `None` for any other command.
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
    /// Creates the state of a new connection. `entry` expects the server's greeting.
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

    /// Whether the session no longer waits for any reply.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.iter().all(CommandInFlight::is_late)
    }

    /// Returns the oldest command whose reply the session still expects.
    pub(super) fn awaited(&self) -> Option<&CommandInFlight> {
        self.entries.iter().find(|entry| !entry.is_late())
    }

    /// Stops waiting for the oldest awaited reply. Returns the number of its command, if the
    /// command has a number.
    pub(super) fn stop_waiting(&mut self, late: OverdueReply) -> Option<CommandId> {
        let entry = self.entries.iter_mut().find(|entry| !entry.is_late())?;
        entry.expect = ExpectedReply::Late(late);
        entry.id.take()
    }

    /// Removes and returns the oldest command whose reply the session still expects.
    pub(super) fn take_awaited(&mut self) -> Option<CommandInFlight> {
        let at = self.entries.iter().position(|entry| !entry.is_late())?;
        if self.answering == Some(at) {
            self.answering = None;
        }
        self.entries.remove(at)
    }

    /// If the oldest awaited reply is the reply to an `ABOR`, stops waiting for that reply. Returns
    /// the number of the `ABOR`.
    pub(super) fn pass_abort(&mut self) -> Option<CommandId> {
        match self.awaited()?.expect {
            ExpectedReply::Abort => self.stop_waiting(OverdueReply::Abort),
            _ => None,
        }
    }

    /// Whether the session pauses between two connections to the server.
    pub(super) fn is_paused(&self) -> bool {
        matches!(self.awaited(), Some(entry) if matches!(entry.expect, ExpectedReply::Pause(_)))
    }

    /// Whether the session waits for the reply to an `ABOR`.
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

    /// Whether a reply to a command has begun and not ended.
    pub(super) fn is_answering(&self) -> bool {
        self.answering.is_some()
    }

    /// Removes a transfer to which the server will not reply. Returns the number of its command.
    pub(super) fn forget(&mut self, transfer: TransferId) -> Option<CommandId> {
        let is_it = |entry: &CommandInFlight| matches!(entry.expect, ExpectedReply::Transfer { transfer: it, .. } if it == transfer);
        let index = self.entries.iter().position(is_it)?;
        self.entries.remove(index)?.id
    }

    /// Whether a command before command number `than` still waits for its reply. The function
    /// ignores transfer commands.
    pub(super) fn has_earlier(&self, than: CommandId) -> bool {
        let is_transfer =
            |entry: &CommandInFlight| matches!(entry.expect, ExpectedReply::Transfer { .. });
        let mut entries = self.entries.iter().filter(|entry| !is_transfer(entry));
        entries.any(|entry| entry.id.is_some_and(|id| id < than))
    }

    /// Whether the oldest awaited reply belongs to a transfer. Some commands may be sent before
    /// that reply.
    pub(super) fn transfer_is_first(&self) -> bool {
        let first = self.awaited().map(|entry| &entry.expect);
        matches!(first, Some(ExpectedReply::Transfer { .. }))
    }

    /// Returns the position of a server's line within its reply. On the first line, the function
    /// assigns the reply to a command.
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

    /// Whether a reply with `code` is a second reply to the repeated log-in. Otherwise, it is the
    /// reply to `awaited`.
    fn repeats_log_in(&self, code: ReplyCode, awaited: Option<&CommandInFlight>) -> bool {
        let logs_in = awaited.is_some_and(|entry| LOGS_IN.contains(&entry.verb.as_str()));
        self.follows_log_in && !logs_in && matches!(code.0, 220 | 230 | 232)
    }

    /// Whether the next reply may be a second reply to a prefetched command.
    pub(super) fn may_be_answered_twice(&self) -> bool {
        self.duplicate.is_possible()
    }

    /// Whether the reply that is arriving may be a second reply to a prefetched command.
    pub(super) fn is_duplicate(&self) -> bool {
        let open = self.answering.and_then(|index| self.entries.get(index));
        open.is_some_and(|entry| matches!(entry.expect, ExpectedReply::Duplicate))
    }

    /// Returns the command to which the arriving reply belongs.
    pub(super) fn answering(&mut self) -> Option<&mut CommandInFlight> {
        self.entries.get_mut(self.answering?)
    }

    /// Ends the arriving reply. Removes and returns its command. Also returns the index at which
    /// [`Self::keep`] can insert the command again.
    pub(super) fn end_reply(&mut self) -> Option<(usize, CommandInFlight)> {
        let index = self.answering.take()?;
        let entry = self.entries.remove(index)?;
        // Replies arrive in order. A late reply that should precede this reply will therefore not
        // arrive.
        let before = self.entries.len();
        let mut at = 0;
        self.entries.retain(|entry| {
            at += 1;
            let is_passed = matches!(entry.expect, ExpectedReply::Late(_));
            at > index || !is_passed
        });
        Some((index - (before - self.entries.len()), entry))
    }

    /// Whether a command before `index` still waits for its reply.
    pub(super) fn is_passed_over(&self, index: usize) -> bool {
        let mut before = self.entries.iter().take(index);
        before.any(|entry| !entry.is_late())
    }

    /// Inserts a command again, because another reply to the same command follows.
    pub(super) fn keep(&mut self, index: usize, entry: CommandInFlight) {
        self.entries.insert(index, entry);
    }

    /// Removes a command whose only reply was a `1yz` reply. The caller calls this when the
    /// client's next command arrives.
    pub(super) fn drop_begun(&mut self) {
        let is_begun =
            matches!(self.awaited(), Some(entry) if matches!(entry.expect, ExpectedReply::Begun));
        if self.answering.is_none() && is_begun {
            self.take_awaited();
        }
    }

    /// Whether `line` begins the reply to another command. The preceding line may have ended a
    /// reply with the code `open`.
    pub(super) fn begins_next(&self, line: &[u8], open: Option<ReplyCode>) -> bool {
        let awaited = self.entries.iter().filter(|entry| !entry.is_late());
        let code = leading_code(line);
        let is_end = code == open && line.get(3) != Some(&b'-');
        awaited.count() > 1 && code.is_some() && !is_end
    }

    /// Records that the last line ended the reply, although its code differs from the reply's code.
    pub(super) fn end_in_doubt(&mut self) {
        self.tracker.end_in_doubt();
    }

    /// Returns the index of the command to which a reply with `code` belongs. Servers reply in
    /// order until a transfer has begun. During a transfer, `code` decides: a code that cannot end
    /// a transfer belongs to the next command.
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
            // The server does not reply to the ABOR.
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

/// Whether a reply to `ABOR` may have this code. A code that reports the success of another command
/// is excluded.
fn may_answer_abort(code: ReplyCode) -> bool {
    code.class() != ReplyClass::Completed || matches!(code.0, 225 | 226 | 250)
}

/// Commands to which a server may reply with the same code as to a log-in.
const LOGS_IN: [&str; 6] = ["USER", "PASS", "ACCT", "REIN", "HOST", "AUTH"];

/// Commands that every server supports.
const NEVER_UNKNOWN: [&str; 7] = ["CWD", "NOOP", "RETR", "STOR", "TYPE", "USER", "PASS"];

pub(super) fn stage_of(code: ReplyCode) -> ReplyStage {
    match code.class() {
        ReplyClass::Preliminary => ReplyStage::Preliminary,
        _ => ReplyStage::Final,
    }
}
