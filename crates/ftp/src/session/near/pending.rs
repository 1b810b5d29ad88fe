//! The client's commands that have not been answered, in their order. The gateway's own replies wait
//! here for their turn.

use std::collections::VecDeque;

use crate::{
    command::PassiveForm,
    session::{CommandId, PIPELINED_MAX, TransferId},
};

#[derive(Debug, Default)]
pub(super) struct Pending {
    numbered: u32,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
enum Entry {
    /// Waits for the far half.
    Remote(CommandId, Option<(TransferId, PassiveForm)>),
    /// The gateway's own reply, waiting for its turn.
    Local(Vec<u8>),
}

impl Pending {
    /// Whether the client may send another command ahead.
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < PIPELINED_MAX
    }

    /// A command for the far half; returns its number.
    pub(super) fn command(&mut self) -> CommandId {
        self.remote(None)
    }

    /// A request for a data connection; returns its number.
    pub(super) fn passive(&mut self, transfer: TransferId, form: PassiveForm) -> CommandId {
        self.remote(Some((transfer, form)))
    }

    fn remote(&mut self, passive: Option<(TransferId, PassiveForm)>) -> CommandId {
        self.numbered += 1;
        let id = CommandId(self.numbered);
        self.entries.push_back(Entry::Remote(id, passive));
        id
    }

    /// The gateway's own reply to the command that has just come.
    pub(super) fn answer(&mut self, text: &str) {
        self.entries
            .push_back(Entry::Local(text.as_bytes().to_vec()));
    }

    /// The gateway's reply whose turn it is.
    pub(super) fn pop_answer(&mut self) -> Option<Vec<u8>> {
        match self.entries.pop_front()? {
            Entry::Local(line) => Some(line),
            remote @ Entry::Remote(..) => {
                self.entries.push_front(remote);
                None
            }
        }
    }

    pub(super) fn awaits(&self, id: CommandId) -> bool {
        self.entries
            .iter()
            .any(|entry| matches!(entry, Entry::Remote(other, _) if *other == id))
    }

    /// A reply line has answered the command. Returns the data connection that it asked for, and
    /// that there will not be.
    pub(super) fn answered(&mut self, id: CommandId) -> Option<TransferId> {
        let (transfer, _) =
            self.remove(|entry| matches!(entry, Entry::Remote(other, _) if *other == id))??;
        Some(transfer)
    }

    /// A listener has answered the request for this data connection, or could not be opened. Returns
    /// how the client asked.
    pub(super) fn listening(&mut self, transfer: TransferId) -> Option<PassiveForm> {
        let (_, form) = self.remove(
            |entry| matches!(entry, Entry::Remote(_, Some((other, _))) if *other == transfer),
        )??;
        Some(form)
    }

    fn remove(
        &mut self,
        is_it: impl FnMut(&Entry) -> bool,
    ) -> Option<Option<(TransferId, PassiveForm)>> {
        let at = self.entries.iter().position(is_it)?;
        match self.entries.remove(at)? {
            Entry::Remote(_, passive) => Some(passive),
            Entry::Local(_) => None,
        }
    }

    /// Drops the next command: it has been answered.
    pub(super) fn drop_next(&mut self) {
        self.entries.pop_front();
    }

    /// Empties the queue, since the far half answers no more. Returns the replies to all commands,
    /// `text` for each that waited for it.
    pub(super) fn give_up(&mut self, text: &str) -> Vec<Vec<u8>> {
        self.entries
            .drain(..)
            .map(|entry| match entry {
                Entry::Local(line) => line,
                Entry::Remote(..) => text.as_bytes().to_vec(),
            })
            .collect()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}
