//! Queue of the client's commands that wait for a reply. A reply of the gateway itself waits in the
//! queue until all earlier commands have their replies.

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
    /// Number of the oldest command if it has received a `1yz` reply and is not a transfer.
    begun: Option<CommandId>,
    /// Number of commands to which the near gateway itself has replied, and which the far gateway
    /// has not handled yet.
    ahead: usize,
    /// Whether the queue may contain a command that is longer than usual.
    has_long: bool,
}

#[derive(Debug)]
enum PendingEntry {
    /// The server's greeting, which arrives before all replies.
    Greeting,
    /// A command that waits for a reply from the far gateway.
    Remote(CommandId, PendingRequest),
    /// A request for a data connection whose listening socket is being opened.
    Listener(TransferId, PassiveForm),
    /// A reply of the gateway itself, which waits for the replies to earlier commands.
    Local(Vec<u8>),
    /// The gateway's own reply, which contains a port to which the client connects.
    Port(TransferId, Vec<u8>),
}

/// Kind of a command that waits for a reply from the far gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingRequest {
    Data(TransferId, DataMethod),
    Features,
    /// A transfer. Some commands may be sent to the server before the final reply of the transfer.
    Transfer,
    /// A log-in command: `USER`, `PASS` or `ACCT`.
    Login,
    Anything,
}

impl PendingCommands {
    /// Creates a queue that first expects the server's greeting.
    pub(super) fn greeting() -> Self {
        Self {
            entries: VecDeque::from([PendingEntry::Greeting]),
            ..Self::default()
        }
    }

    /// Records the server's greeting.
    pub(super) fn greeted(&mut self) {
        if let Some(PendingEntry::Greeting) = self.entries.front() {
            self.entries.pop_front();
        }
    }

    /// Whether the client may send another command before the replies to its earlier commands.
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

    /// Whether a command of the client waits for its reply.
    pub(super) fn has_commands(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| !matches!(entry, PendingEntry::Greeting))
    }

    /// Adds a command for the far gateway. The client receives the reply of the far gateway.
    /// Returns the number of the command.
    pub(super) fn command(&mut self, request: PendingRequest) -> CommandId {
        let id = self.number();
        self.entries.push_back(PendingEntry::Remote(id, request));
        id
    }

    /// Adds a command for the far gateway. The client does not receive the reply to this command.
    /// Returns the number of the command.
    pub(super) fn command_ahead(&mut self) -> CommandId {
        self.ahead += 1;
        self.number()
    }

    /// Records that the far gateway has handled a command added by
    /// [`command_ahead`](Self::command_ahead).
    pub(super) fn complete_ahead(&mut self) {
        self.ahead = self.ahead.saturating_sub(1);
    }

    /// Whether a transfer command still waits for its final reply.
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

    /// Adds the gateway's own reply to the latest command. `lines` are separated by CRLF.
    pub(super) fn answer(&mut self, lines: &[u8]) {
        self.entries.push_back(PendingEntry::Local(lines.to_vec()));
    }

    /// Adds the gateway's own reply to a request for a data connection. For a passive data
    /// connection, the reply follows when the listening socket is open.
    pub(super) fn answer_data(&mut self, transfer: TransferId, method: DataMethod) {
        self.entries.push_back(PendingEntry::data(transfer, method));
    }

    /// Removes and returns the first entry if it is a reply of the gateway itself. If the reply
    /// contains a port, the function also returns the number of the data connection.
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

    /// Returns the kind of a command that waits for a reply from the far gateway.
    pub(super) fn request(&self, id: CommandId) -> Option<PendingRequest> {
        self.entries.iter().find_map(|entry| match entry {
            PendingEntry::Remote(other, request) if *other == id => Some(*request),
            _ => None,
        })
    }

    /// Records that the server has accepted the data connection that the command requested. Returns
    /// that data connection.
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

    /// Removes a command that has received its reply. If the command requested a data connection,
    /// returns the number of the data connection. This data connection will not be opened.
    pub(super) fn answered(&mut self, id: CommandId) -> Option<TransferId> {
        let is_it =
            |entry: &PendingEntry| matches!(entry, PendingEntry::Remote(other, _) if *other == id);
        let at = self.entries.iter().position(is_it)?;
        match self.entries.remove(at)? {
            PendingEntry::Remote(_, PendingRequest::Data(transfer, _)) => Some(transfer),
            _ => None,
        }
    }

    /// Records a `1yz` reply to a command that is not a transfer. Another reply is possible, but
    /// not certain.
    pub(super) fn begun(&mut self, id: CommandId) {
        self.begun = Some(id);
    }

    /// Handles the client's next command. If an earlier command has received only a `1yz` reply,
    /// the session expects no other reply to that command.
    pub(super) fn note_client_command(&mut self, line: &[u8]) {
        let is_first = self.entries.is_empty() && self.ahead == 0;
        self.has_long = line.len() > LINE_USUAL_BYTES || self.has_long && !is_first;
        if let Some(id) = self.begun.take() {
            self.answered(id);
        }
    }

    /// Returns the command that requested this data connection, if the listening socket for the
    /// data connection is still being opened.
    pub(super) fn awaited_form(&self, transfer: TransferId) -> Option<PassiveForm> {
        self.entries.iter().find_map(|entry| match entry {
            PendingEntry::Listener(other, form) if *other == transfer => Some(*form),
            _ => None,
        })
    }

    /// Sets the reply that contains the port of a data connection.
    pub(super) fn announce(&mut self, transfer: TransferId, line: String) {
        let mut entries = self.entries.iter_mut();
        let is_it = |entry: &&mut PendingEntry| matches!(entry, PendingEntry::Listener(other, _) if *other == transfer);
        if let Some(entry) = entries.find(is_it) {
            *entry = PendingEntry::Port(transfer, line.into_bytes());
        }
    }

    /// Sets the reply to the command that waits for this data connection.
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

    /// Removes the first command, which has received its reply.
    pub(super) fn drop_next(&mut self) {
        self.entries.pop_front();
    }

    /// Empties the queue, because the far gateway will send no further replies. Returns the replies
    /// to all commands. A command that waited for the far gateway receives the reply `text`.
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
