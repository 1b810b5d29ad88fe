//! The commands that the server has been sent and has not answered, and which of them each reply line
//! answers.

use std::collections::VecDeque;

use super::{
    greeting::Greeting, port_request::PortRequest, prefetch::Cause, reply_buffer::ReplyBuffer,
};
use crate::{
    reply::{Class, Code, Place, ReplyTracker},
    session::{CommandId, Stage, Subject, TransferId},
};

#[derive(Debug)]
pub(super) struct InFlight {
    entries: VecDeque<Entry>,
    /// Which entry the open reply answers; `None` when it answers nothing.
    answering: Option<usize>,
    tracker: ReplyTracker,
}

#[derive(Debug)]
pub(super) struct Entry {
    /// `None`: the client has not asked, or has its answer.
    pub(super) id: Option<CommandId>,
    pub(super) expect: Expect,
}

/// What the server's answer may be.
#[derive(Debug)]
pub(super) enum Expect {
    /// Anything; a verb that is unknown here may begin a transfer.
    Plain(Cause),
    /// A `1yz` reply came to what is no transfer. Another may follow, or none.
    Begun,
    Quit,
    /// `ABOR`.
    Abort,
    /// The greeting, which is relayed.
    Greeted,
    Greeting(Greeting),
    /// What the gateway itself settles with the server.
    Protection(ReplyBuffer),
    DataPort(PortRequest),
    /// `TYPE`, and whether the client takes it for done.
    Type(ReplyBuffer, bool),
    /// A question that the client has not asked.
    Question(Subject, ReplyBuffer),
    Transfer {
        transfer: TransferId,
        /// Its `1yz` reply came.
        begun: bool,
    },
}

impl InFlight {
    /// On a new connection the server speaks first.
    pub(super) fn greeting(entry: Entry) -> Self {
        Self {
            entries: VecDeque::from([entry]),
            answering: None,
            tracker: ReplyTracker::default(),
        }
    }

    pub(super) fn push(&mut self, id: Option<CommandId>, expect: Expect) {
        self.entries.push_back(Entry { id, expect });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The transfers that have not been answered.
    pub(super) fn transfers(&self) -> impl DoubleEndedIterator<Item = TransferId> {
        self.entries.iter().filter_map(|entry| match entry.expect {
            Expect::Transfer { transfer, .. } => Some(transfer),
            _ => None,
        })
    }

    /// Whether a reply is open.
    pub(super) fn is_answering(&self) -> bool {
        self.answering.is_some()
    }

    /// No answer to a transfer will come. Returns its command.
    pub(super) fn forget(&mut self, transfer: TransferId) -> Option<CommandId> {
        let is_it = |entry: &Entry| matches!(entry.expect, Expect::Transfer { transfer: it, .. } if it == transfer);
        let index = self.entries.iter().position(is_it)?;
        self.entries.remove(index)?.id
    }

    /// Whether a command, no transfer, is unanswered that came before the one with this number.
    pub(super) fn has_earlier(&self, than: CommandId) -> bool {
        let is_transfer = |entry: &Entry| matches!(entry.expect, Expect::Transfer { .. });
        let mut entries = self.entries.iter().filter(|entry| !is_transfer(entry));
        entries.any(|entry| entry.id.is_some_and(|id| id < than))
    }

    /// Whether the oldest command is a transfer, which others may overtake.
    pub(super) fn transfer_is_first(&self) -> bool {
        let first = self.entries.front().map(|entry| &entry.expect);
        matches!(first, Some(Expect::Transfer { .. }))
    }

    /// Places a line of the server, and notes which command it answers.
    pub(super) fn place(&mut self, line: &[u8]) -> Place {
        let place = self.tracker.place(line);
        if let (Some(code), true) = (place.code, place.first) {
            self.answering = self.attribute(code);
        }
        place
    }

    /// What the open reply answers.
    pub(super) fn answering(&mut self) -> Option<&mut Entry> {
        self.entries.get_mut(self.answering?)
    }

    /// The open reply has ended: takes what it answers. The place is for [`Self::keep`].
    pub(super) fn reply_ended(&mut self) -> Option<(usize, Entry)> {
        let index = self.answering.take()?;
        Some((index, self.entries.remove(index)?))
    }

    /// Another reply to the same command follows.
    pub(super) fn keep(&mut self, index: usize, entry: Entry) {
        self.entries.insert(index, entry);
    }

    /// The client has sent another command: to it a `1yz` reply was the last.
    pub(super) fn drop_begun(&mut self) {
        let is_open = self.answering.is_some();
        if !is_open
            && matches!(self.entries.front(), Some(entry) if matches!(entry.expect, Expect::Begun))
        {
            self.entries.pop_front();
        }
    }

    /// Whether the open reply is the answer to a question, and may have ended with another code: no
    /// client will tell. Returns its code.
    pub(super) fn question_ended(&mut self) -> Option<Code> {
        match self.answering()?.expect {
            Expect::Question(..) | Expect::Type(_, true) | Expect::Protection(_) => {
                self.tracker.client_went_on()
            }
            _ => None,
        }
    }

    /// The client has sent another command. Returns the code of a reply that it took for complete.
    pub(super) fn client_went_on(&mut self) -> Option<Code> {
        self.tracker.client_went_on()
    }

    /// Which command a reply with `code` answers. Until a transfer has begun, servers answer in
    /// order; while it runs, what overtook it is answered by codes that no transfer ends with.
    fn attribute(&self, code: Code) -> Option<usize> {
        match self.entries.front()?.expect {
            Expect::Transfer { begun: true, .. } if self.entries.len() > 1 => {
                let transfers = stage_of(code) == Stage::Preliminary
                    || matches!(code.0, 226 | 250 | 425 | 426 | 450..=452 | 550..=553);
                Some(usize::from(!transfers))
            }
            _ => Some(0),
        }
    }
}

pub(super) fn stage_of(code: Code) -> Stage {
    match code.class() {
        Class::Preliminary => Stage::Preliminary,
        _ => Stage::Final,
    }
}
