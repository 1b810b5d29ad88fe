//! The client's unanswered commands, in order. The gateway's own replies wait here for their turn.

use std::collections::VecDeque;

use super::data_port::DataMethod;
use crate::{
    address::PassiveForm,
    session::{CommandId, LINE_USUAL_BYTES, PIPELINED_LONG_MAX, PIPELINED_MAX, TransferId},
};

#[derive(Debug, Default)]
pub(super) struct PendingCommands {
    numbered: u32,
    entries: VecDeque<PendingEntry>,
    /// The oldest command, if it is no transfer and has had a `1yz` reply.
    begun: Option<CommandId>,
    /// Number of commands whose client has a reply, and that the far half has not handled yet.
    ahead: usize,
    /// Whether a command may be longer than usual.
    has_long: bool,
}

#[derive(Debug)]
enum PendingEntry {
    /// The server's greeting, which precedes all replies.
    Greeting,
    /// A command for the far half.
    Remote(CommandId, PendingRequest),
    /// A data connection that waits for its listener.
    Listener(TransferId, PassiveForm),
    /// The gateway's own reply, which waits for its turn.
    Local(Vec<u8>),
    /// The gateway's own reply that announces a port for the client.
    Port(TransferId, Vec<u8>),
}

/// Request of a command that waits for the far half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingRequest {
    Data(TransferId, DataMethod),
    Features,
    /// A transfer, which other commands may overtake.
    Transfer,
    /// A log-in with a password.
    Login,
    Anything,
}

impl PendingCommands {
    /// Creates a queue in which the greeting is expected.
    pub(super) fn greeting() -> Self {
        Self {
            entries: VecDeque::from([PendingEntry::Greeting]),
            ..Self::default()
        }
    }

    /// Records a line of the server that answers no command.
    pub(super) fn greeted(&mut self) {
        if let Some(PendingEntry::Greeting) = self.entries.front() {
            self.entries.pop_front();
        }
    }

    /// Whether the client may send another command ahead.
    pub(super) fn has_room(&self) -> bool {
        let max = match self.has_long {
            true => PIPELINED_LONG_MAX,
            false => PIPELINED_MAX,
        };
        self.entries.len() + self.ahead < max
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a command of the client awaits its reply.
    pub(super) fn has_commands(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| !matches!(entry, PendingEntry::Greeting))
    }

    /// Adds a command for the far half, whose reply answers the client. Returns its number.
    pub(super) fn command(&mut self, request: PendingRequest) -> CommandId {
        let id = self.number();
        self.entries.push_back(PendingEntry::Remote(id, request));
        id
    }

    /// Adds a command for the far half whose reply the client does not get. Returns its number.
    pub(super) fn command_ahead(&mut self) -> CommandId {
        self.ahead += 1;
        self.number()
    }

    /// Records that the far half has handled one of these commands.
    pub(super) fn complete_ahead(&mut self) {
        self.ahead = self.ahead.saturating_sub(1);
    }

    /// Whether a transfer command has no final reply.
    pub(super) fn awaits_transfer(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| matches!(entry, PendingEntry::Remote(_, PendingRequest::Transfer)))
    }

    /// Returns the number of the next command.
    pub(super) fn next_id(&self) -> CommandId {
        CommandId(self.numbered + 1)
    }

    fn number(&mut self) -> CommandId {
        self.numbered += 1;
        CommandId(self.numbered)
    }

    /// Adds the gateway's own reply to the latest command, with CRLF between its lines.
    pub(super) fn answer(&mut self, lines: &[u8]) {
        self.entries.push_back(PendingEntry::Local(lines.to_vec()));
    }

    /// Adds a data connection as the reply to the latest command.
    pub(super) fn answer_data(&mut self, transfer: TransferId, method: DataMethod) {
        self.entries.push_back(PendingEntry::data(transfer, method));
    }

    /// Returns the gateway's reply that is next, and the data connection for which it names a port.
    pub(super) fn pop_answer(&mut self) -> Option<(Vec<u8>, Option<TransferId>)> {
        match self.entries.pop_front()? {
            PendingEntry::Local(lines) => Some((lines, None)),
            PendingEntry::Port(transfer, line) => Some((line, Some(transfer))),
            waiting => {
                self.entries.push_front(waiting);
                None
            }
        }
    }

    /// Returns the request of a command that waits for the far half.
    pub(super) fn request(&self, id: CommandId) -> Option<PendingRequest> {
        self.entries.iter().find_map(|entry| match entry {
            PendingEntry::Remote(other, request) if *other == id => Some(*request),
            _ => None,
        })
    }

    /// Records that the far half is ready for the data connection of a command. Returns that data
    /// connection.
    pub(super) fn data_ready(&mut self, id: CommandId) -> Option<(TransferId, DataMethod)> {
        let entry = self
            .entries
            .iter_mut()
            .find(|entry| matches!(entry, PendingEntry::Remote(other, _) if *other == id))?;
        let PendingEntry::Remote(_, PendingRequest::Data(transfer, method)) = *entry else {
            return None;
        };
        *entry = PendingEntry::data(transfer, method);
        Some((transfer, method))
    }

    /// Removes a command that a reply line has answered. Returns the data connection that it
    /// requested, which will not be opened.
    pub(super) fn answered(&mut self, id: CommandId) -> Option<TransferId> {
        let is_it =
            |entry: &PendingEntry| matches!(entry, PendingEntry::Remote(other, _) if *other == id);
        let at = self.entries.iter().position(is_it)?;
        match self.entries.remove(at)? {
            PendingEntry::Remote(_, PendingRequest::Data(transfer, _)) => Some(transfer),
            _ => None,
        }
    }

    /// Records a `1yz` reply to a command other than a transfer. Another reply may follow, or none.
    pub(super) fn begun(&mut self, id: CommandId) {
        self.begun = Some(id);
    }

    /// Handles the client's next command: an earlier `1yz` reply was the last one to its command.
    pub(super) fn note_client_command(&mut self, line: &[u8]) {
        let is_first = self.entries.is_empty() && self.ahead == 0;
        self.has_long = line.len() > LINE_USUAL_BYTES || self.has_long && !is_first;
        if let Some(id) = self.begun.take() {
            self.answered(id);
        }
    }

    /// Returns the form of the request for a data connection that waits for its listener.
    pub(super) fn awaited_form(&self, transfer: TransferId) -> Option<PassiveForm> {
        self.entries.iter().find_map(|entry| match entry {
            PendingEntry::Listener(other, form) if *other == transfer => Some(*form),
            _ => None,
        })
    }

    /// Sets the reply that names the port of a data connection.
    pub(super) fn announce(&mut self, transfer: TransferId, line: String) {
        let mut entries = self.entries.iter_mut();
        let is_it = |entry: &&mut PendingEntry| matches!(entry, PendingEntry::Listener(other, _) if *other == transfer);
        if let Some(entry) = entries.find(is_it) {
            *entry = PendingEntry::Port(transfer, line.into_bytes());
        }
    }

    /// Sets the reply to the client that waits for this data connection.
    pub(super) fn answer_awaited(&mut self, transfer: TransferId, text: &str) {
        for entry in &mut self.entries {
            if let PendingEntry::Listener(other, _)
            | PendingEntry::Remote(_, PendingRequest::Data(other, _)) = entry
                && *other == transfer
            {
                *entry = PendingEntry::Local(text.as_bytes().to_vec());
            }
        }
    }

    /// Drops the next command, which has been answered.
    pub(super) fn drop_next(&mut self) {
        self.entries.pop_front();
    }

    /// Empties the queue, since the far half does not answer any more. Returns the replies to all
    /// commands. Commands that waited for the far half get `text`.
    pub(super) fn give_up(&mut self, text: &str) -> Vec<Vec<u8>> {
        self.ahead = 0;
        self.entries
            .drain(..)
            .filter_map(|entry| match entry {
                PendingEntry::Greeting => None,
                PendingEntry::Local(line) | PendingEntry::Port(_, line) => Some(line),
                PendingEntry::Remote(..) | PendingEntry::Listener(..) => {
                    Some(text.as_bytes().to_vec())
                }
            })
            .collect()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

impl PendingEntry {
    fn data(transfer: TransferId, method: DataMethod) -> Self {
        match method {
            DataMethod::Passive(form) => Self::Listener(transfer, form),
            DataMethod::Active(_) => Self::Local(b"200 gateway: data port accepted".to_vec()),
        }
    }
}
