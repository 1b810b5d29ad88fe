//! The data connections of a session: which command has used each, how its data ended, and whether
//! the server has answered for it.

use std::collections::BTreeMap;

use super::{DataEvent, Order};
use crate::{
    command::Direction,
    session::{CommandId, TransferId},
};

#[derive(Debug, Default)]
pub(super) struct Transfers {
    numbered: u32,
    open: BTreeMap<TransferId, Transfer>,
}

#[derive(Debug, Default)]
struct Transfer {
    /// A transfer command has used it.
    used: bool,
    /// An ABOR before any transfer command: the data connection is kept until this is answered.
    aborted_by: Option<CommandId>,
    upload: bool,
    client_ended: bool,
    ended: Option<Result<(), Broken>>,
    /// The server's final reply was relayed.
    answered: bool,
}

impl Transfer {
    /// Whether a transfer command may still use it.
    fn is_unused(&self) -> bool {
        !self.used && self.aborted_by.is_none()
    }
}

/// How a transfer failed on the client's side; as text, the reply that says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    #[error("425 gateway: no data connection: {0}")]
    NotConnected(String),
    #[error("426 gateway: data connection failed: {0}")]
    Midway(String),
}

impl Transfers {
    /// A data connection that no command has used yet.
    pub(super) fn prepare(&mut self) -> TransferId {
        self.numbered += 1;
        let id = TransferId(self.numbered);
        self.open.insert(id, Transfer::default());
        id
    }

    /// A command begins a transfer on the prepared data connection, if there is one.
    pub(super) fn start(&mut self, direction: Direction) -> Option<TransferId> {
        let (&id, transfer) = self.open.iter_mut().rfind(|(_, t)| t.is_unused())?;
        transfer.used = true;
        transfer.upload = direction == Direction::Upload;
        Some(id)
    }

    /// A verb unknown to both halves has started a transfer. Returns whether that is news.
    pub(super) fn start_unknown(&mut self, id: TransferId) -> bool {
        match self.open.get_mut(&id) {
            Some(transfer) if !transfer.used => {
                transfer.used = true;
                true
            }
            _ => false,
        }
    }

    /// Takes note of what happened on a data connection. Returns whether it is given up: the far half may still
    /// wait for the server's.
    pub(super) fn on_event(&mut self, id: TransferId, event: DataEvent<'_>) -> bool {
        let Some(transfer) = self.open.get_mut(&id) else {
            return false;
        };
        match event {
            DataEvent::ClientEnded => transfer.client_ended = true,
            DataEvent::Delivered => transfer.ended = Some(Ok(())),
            DataEvent::Failed(why) => transfer.ended = Some(Err(Broken::Midway(why.to_owned()))),
            DataEvent::NotConnected(why) => {
                transfer.ended = Some(Err(Broken::NotConnected(why.to_owned())));
            }
            DataEvent::Expired if transfer.used => {
                let why = "the client did not connect".to_owned();
                transfer.ended = Some(Err(Broken::NotConnected(why)));
            }
            DataEvent::Expired => {
                self.open.remove(&id);
                return true;
            }
        }
        if transfer.answered && transfer.ended.is_some() {
            self.open.remove(&id);
        }
        false
    }

    /// The server's final reply has been relayed.
    pub(super) fn answered(&mut self, id: TransferId) {
        if let Some(transfer) = self.open.get_mut(&id) {
            transfer.answered = true;
            if transfer.ended.is_some() {
                self.open.remove(&id);
            }
        }
    }

    /// How the data ended; `None` while it has not. One that is unknown here was given up, and its
    /// failure has been told.
    pub(super) fn end(&self, id: TransferId) -> Option<Result<(), Broken>> {
        self.open.get(&id).map_or(Some(Ok(())), |t| t.ended.clone())
    }

    /// Whether a transfer waits for its final reply.
    pub(super) fn is_running(&self) -> bool {
        self.open.values().any(|t| t.used && !t.answered)
    }

    /// Returns whether it was there.
    pub(super) fn remove(&mut self, id: TransferId) -> bool {
        self.open.remove(&id).is_some()
    }

    /// Takes the data connections that no command has used.
    pub(super) fn take_unused(&mut self) -> Vec<TransferId> {
        self.take_if(|_, transfer| transfer.is_unused())
    }

    /// An ABOR, which no transfer command may follow on the same data connections.
    pub(super) fn abort_unused(&mut self, abort: CommandId) {
        for transfer in self.open.values_mut().filter(|t| t.is_unused()) {
            transfer.aborted_by = Some(abort);
        }
    }

    /// Takes the data connections that an ABOR ends, which has been answered.
    pub(super) fn take_aborted(&mut self, abort: CommandId) -> Vec<TransferId> {
        self.take_if(|_, transfer| transfer.aborted_by == Some(abort))
    }

    /// Takes those whose final reply has neither been relayed nor `waits`.
    pub(super) fn take_unanswered(
        &mut self,
        waits: impl Fn(TransferId) -> bool,
    ) -> Vec<TransferId> {
        self.take_if(|id, transfer| !transfer.answered && !waits(id))
    }

    pub(super) fn take_all(&mut self) -> Vec<TransferId> {
        self.take_if(|_, _| true)
    }

    fn take_if(&mut self, is_it: impl Fn(TransferId, &Transfer) -> bool) -> Vec<TransferId> {
        let taken = self
            .open
            .extract_if(.., |&id, transfer| is_it(id, transfer));
        taken.map(|(id, _)| id).collect()
    }

    /// What becomes of each when the client closes its control connection. RFC 959: that aborts,
    /// unless the client had sent everything.
    pub(super) fn client_gone(&self) -> Vec<(TransferId, Order)> {
        #[cfg(fuzz_canary)]
        assert!(
            !self.open.values().any(|t| matches!(t.ended, Some(Err(_)))),
            "canary: behind a broken transfer"
        );
        let unfinished = self.open.iter().filter(|(_, t)| !t.client_ended);
        unfinished
            .map(|(&id, transfer)| match transfer.upload {
                true => (id, Order::ClientGone),
                false => (id, Order::Kill),
            })
            .collect()
    }
}
