//! The data connections of a session: which command has used each, how its data ended, and whether
//! the server has answered for it.

use std::collections::BTreeMap;

use crate::{
    command::{Command, Direction},
    session::{
        CommandId, TransferId,
        data::near::{Event, Order},
    },
};

#[derive(Debug, Default)]
pub(super) struct Transfers {
    numbered: u32,
    open: BTreeMap<TransferId, Transfer>,
}

#[derive(Debug, Default)]
struct Transfer {
    /// A transfer command has used it.
    is_used: bool,
    /// Which way its bytes go; of an unknown verb that is unknown, too.
    direction: Option<Direction>,
    /// That command, until its end has been recorded.
    command: Option<Commanded>,
    /// An ABOR before any transfer command: the data connection is kept until this is answered.
    aborted_by: Option<CommandId>,
    /// An ABOR during the transfer: its data is not waited for.
    is_aborting: bool,
    client_ended: bool,
    ended: Option<Result<(), Broken>>,
    /// Whether all of an upload has been written to the server, as the far half reports.
    has_arrived: Option<bool>,
    /// The server's final reply was relayed.
    answered: bool,
}

#[derive(Debug, Default)]
struct Commanded {
    verb: String,
    argument: Vec<u8>,
}

/// A transfer that the session is done with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Number of its data connection.
    pub transfer: TransferId,
    /// Its command, in upper case.
    pub verb: String,
    /// What followed the verb.
    pub argument: Vec<u8>,
    /// Which way its bytes went; of an unknown verb that is unknown, too.
    pub direction: Option<Direction>,
    /// Code of the final reply that the client has had; `None` if it has had none.
    pub code: Option<u16>,
    /// Everything has arrived, and the server has answered with a `2yz`.
    pub succeeded: bool,
}

impl Transfer {
    /// Whether a transfer command may still use it.
    fn is_unused(&self) -> bool {
        !self.is_used && self.aborted_by.is_none()
    }

    fn is_upload(&self) -> bool {
        self.direction == Some(Direction::Upload)
    }

    fn is_running(&self) -> bool {
        self.is_used && !self.answered
    }

    /// How the data ended; `None` while it has not.
    fn end(&self) -> Option<Result<(), Broken>> {
        match (&self.ended, self.has_arrived) {
            (Some(Err(broken)), _) => Some(Err(broken.clone())),
            (_, Some(false)) if self.is_upload() => Some(Err(Broken::Partly)),
            (Some(Ok(())), None) if self.is_upload() => None,
            (ended, _) => ended.clone(),
        }
    }

    /// The record of its end; `None` if it has been taken, or no transfer has used it.
    fn record(&mut self, id: TransferId, code: Option<u16>, succeeded: bool) -> Option<Record> {
        let Commanded { verb, argument } = self.command.take()?;
        Some(Record {
            transfer: id,
            verb,
            argument,
            direction: self.direction,
            code,
            succeeded,
        })
    }
}

/// How a transfer failed between client and server; as text, the reply that says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    #[error("425 gateway: no data connection: {0}")]
    NotConnected(String),
    #[error("426 gateway: data connection failed: {0}")]
    Midway(String),
    #[error("426 gateway: the server closed its data connection before the end of the upload")]
    Partly,
    #[error("426 gateway: transfer aborted")]
    Aborted,
}

impl Broken {
    /// Code of the reply.
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::NotConnected(_) => 425,
            Self::Midway(_) | Self::Partly | Self::Aborted => 426,
        }
    }
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
    pub(super) fn start(
        &mut self,
        command: &Command<'_>,
        direction: Direction,
    ) -> Option<TransferId> {
        let (&id, transfer) = self.open.iter_mut().rfind(|(_, t)| t.is_unused())?;
        transfer.is_used = true;
        transfer.direction = Some(direction);
        transfer.command = Some(Commanded {
            verb: command.verb().to_owned(),
            argument: command.argument().to_vec(),
        });
        Some(id)
    }

    /// A verb unknown to both halves has started a transfer. Returns whether that is news.
    pub(super) fn start_unknown(&mut self, id: TransferId) -> bool {
        match self.open.get_mut(&id) {
            Some(transfer) if !transfer.is_used => {
                transfer.is_used = true;
                transfer.command = Some(Commanded::default());
                true
            }
            _ => false,
        }
    }

    /// Takes note of what happened on a data connection. Returns whether it is given up: the far half may still
    /// wait for the server's.
    pub(super) fn on_event(&mut self, id: TransferId, event: Event) -> bool {
        let Some(transfer) = self.open.get_mut(&id) else {
            return false;
        };
        match event {
            Event::ClientEnded => transfer.client_ended = true,
            Event::Delivered => transfer.ended = Some(Ok(())),
            Event::Failed(why) => transfer.ended = Some(Err(Broken::Midway(why))),
            Event::NotConnected(why) => transfer.ended = Some(Err(Broken::NotConnected(why))),
            Event::Expired if transfer.is_used => {
                let why = "the client did not connect".to_owned();
                transfer.ended = Some(Err(Broken::NotConnected(why)));
            }
            Event::Expired => {
                self.open.remove(&id);
                return true;
            }
        }
        if transfer.answered && transfer.ended.is_some() {
            self.open.remove(&id);
        }
        false
    }

    /// The far half reports whether everything from the client has been written to the server.
    pub(super) fn upload_ended(&mut self, id: TransferId, is_whole: bool) {
        if let Some(transfer) = self.open.get_mut(&id) {
            transfer.has_arrived.get_or_insert(is_whole);
        }
    }

    /// The final reply, whose code is given, has been relayed.
    pub(super) fn answered(
        &mut self,
        id: TransferId,
        code: u16,
        succeeded: bool,
    ) -> Option<Record> {
        let transfer = self.open.get_mut(&id)?;
        transfer.answered = true;
        let record = transfer.record(id, Some(code), succeeded);
        if transfer.ended.is_some() {
            self.open.remove(&id);
        }
        record
    }

    /// How the data ended; `None` while it has not. One that is unknown here was given up, and its
    /// failure has been told.
    pub(super) fn end(&self, id: TransferId) -> Option<Result<(), Broken>> {
        self.open.get(&id).map_or(Some(Ok(())), Transfer::end)
    }

    /// The direction of the transfer that uses it; `None` if none does.
    pub(super) fn direction(&self, id: TransferId) -> Option<Option<Direction>> {
        let transfer = self.open.get(&id).filter(|t| t.is_used)?;
        Some(transfer.direction)
    }

    /// Whether the far half has still to report on it.
    pub(super) fn awaits_report(&self, id: TransferId) -> bool {
        let transfer = self.open.get(&id);
        transfer.is_some_and(|t| t.is_upload() && t.has_arrived.is_none())
    }

    /// Whether a transfer waits for its final reply.
    pub(super) fn is_running(&self) -> bool {
        self.open.values().any(Transfer::is_running)
    }

    /// Takes one; the inner `None` if no transfer has used it.
    pub(super) fn remove(&mut self, id: TransferId) -> Option<Option<Record>> {
        let mut transfer = self.open.remove(&id)?;
        Some(transfer.record(id, None, false))
    }

    /// Takes the data connections that no command has used.
    pub(super) fn take_unused(&mut self) -> Vec<TransferId> {
        let taken = self.take_if(|_, transfer| transfer.is_unused());
        taken.into_iter().map(|(id, _)| id).collect()
    }

    /// An ABOR: no transfer command may follow on the unused data connections, and the data of the
    /// running transfers is not waited for.
    pub(super) fn abort(&mut self, abort: CommandId) {
        for transfer in self.open.values_mut() {
            if transfer.is_unused() {
                transfer.aborted_by = Some(abort);
            } else if transfer.is_running() {
                transfer.is_aborting = true;
            }
        }
    }

    /// Ends the data of a transfer that is being aborted and still waited for. `None` if it is not
    /// being aborted.
    pub(super) fn end_aborted(&mut self, id: TransferId) -> Option<Option<Record>> {
        let transfer = self.open.get_mut(&id).filter(|t| t.is_aborting)?;
        transfer.ended = Some(Err(Broken::Aborted));
        Some(transfer.record(id, Some(Broken::Aborted.code()), false))
    }

    /// Takes the data connections that an ABOR ends, which has been answered.
    pub(super) fn take_aborted(&mut self, abort: CommandId) -> Vec<TransferId> {
        let taken = self.take_if(|_, transfer| transfer.aborted_by == Some(abort));
        taken.into_iter().map(|(id, _)| id).collect()
    }

    /// Takes those whose final reply has neither been relayed nor `waits`.
    pub(super) fn take_unanswered(
        &mut self,
        waits: impl Fn(TransferId) -> bool,
    ) -> Vec<(TransferId, Option<Record>)> {
        self.take_if(|id, transfer| !transfer.answered && !waits(id))
    }

    pub(super) fn take_all(&mut self) -> Vec<(TransferId, Option<Record>)> {
        self.take_if(|_, _| true)
    }

    fn take_if(
        &mut self,
        is_it: impl Fn(TransferId, &Transfer) -> bool,
    ) -> Vec<(TransferId, Option<Record>)> {
        let taken = self
            .open
            .extract_if(.., |&id, transfer| is_it(id, transfer));
        taken
            .map(|(id, mut transfer)| (id, transfer.record(id, None, false)))
            .collect()
    }

    /// What becomes of each when the client closes its control connection. RFC 959: that aborts,
    /// unless the client had sent everything. The final replies will not be heard.
    pub(super) fn client_gone(&mut self) -> Vec<(TransferId, Option<Order>, Option<Record>)> {
        #[cfg(fuzz_canary)]
        assert!(
            !self.open.values().any(|t| matches!(t.ended, Some(Err(_)))),
            "canary: behind a broken transfer"
        );
        let taken = std::mem::take(&mut self.open).into_iter();
        taken
            .map(|(id, mut transfer)| {
                let order = match (transfer.client_ended, transfer.is_upload()) {
                    _ if !transfer.is_used => Some(Order::Kill),
                    (true, _) => None,
                    (false, true) => Some(Order::ClientGone),
                    (false, false) => Some(Order::Kill),
                };
                (id, order, transfer.record(id, None, false))
            })
            .collect()
    }
}
