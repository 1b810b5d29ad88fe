//! The data connections of a session: the command that used each, the end of its data, and the
//! server's reply.

use std::collections::BTreeMap;

use crate::{
    command::{Command, DataDirection},
    session::{
        CommandId, TransferId,
        data::near::{NearDataEvent, NearDataOrder},
    },
};

#[derive(Debug, Default)]
pub(super) struct Transfers {
    numbered: u32,
    open: BTreeMap<TransferId, Transfer>,
}

#[derive(Debug, Default)]
struct Transfer {
    /// Whether a transfer command has used the data connection.
    is_used: bool,
    /// Direction of the transferred bytes. `None` for an unknown verb.
    direction: Option<DataDirection>,
    /// Command of the transfer, until the end of the transfer has been recorded.
    command: Option<TransferCommand>,
    /// An ABOR before any transfer command. The data connection is kept until its reply.
    aborted_by: Option<CommandId>,
    /// Whether an ABOR was sent during the transfer. The session does not wait for its data.
    is_aborting: bool,
    client_ended: bool,
    ended: Option<Result<(), TransferFailure>>,
    /// Whether all bytes of an upload have been written to the server, as the far half reports.
    has_arrived: Option<bool>,
    /// Whether the server's final reply was relayed.
    answered: bool,
}

#[derive(Debug, Default)]
struct TransferCommand {
    verb: String,
    argument: Vec<u8>,
}

/// A transfer that the session has finished with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferSummary {
    /// Number of the data connection.
    pub transfer: TransferId,
    /// Command of the transfer, in upper case.
    pub verb: String,
    /// Argument of the command.
    pub argument: Vec<u8>,
    /// Direction of the transferred bytes. `None` for an unknown verb.
    pub direction: Option<DataDirection>,
    /// Code of the final reply to the client. `None` without a reply.
    pub code: Option<u16>,
    /// Whether all bytes have arrived, and the server has answered with a `2yz`.
    pub succeeded: bool,
}

impl Transfer {
    /// Whether a transfer command may still use it.
    fn is_unused(&self) -> bool {
        !self.is_used && self.aborted_by.is_none()
    }

    fn is_upload(&self) -> bool {
        self.direction == Some(DataDirection::Upload)
    }

    fn is_running(&self) -> bool {
        self.is_used && !self.answered
    }

    /// Returns the end of the data. `None` before it.
    fn end(&self) -> Option<Result<(), TransferFailure>> {
        match (&self.ended, self.has_arrived) {
            (Some(Err(broken)), _) => Some(Err(broken.clone())),
            (_, Some(false)) if self.is_upload() => Some(Err(TransferFailure::Partly)),
            (Some(Ok(())), None) if self.is_upload() => None,
            (ended, _) => ended.clone(),
        }
    }

    /// Takes the record of its end. `None` if it was taken already, or no transfer has used the
    /// data connection.
    fn record(
        &mut self,
        id: TransferId,
        code: Option<u16>,
        succeeded: bool,
    ) -> Option<TransferSummary> {
        let TransferCommand { verb, argument } = self.command.take()?;
        Some(TransferSummary {
            transfer: id,
            verb,
            argument,
            direction: self.direction,
            code,
            succeeded,
        })
    }
}

/// A failure of a transfer between client and server. Its text is the reply that reports it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TransferFailure {
    #[error("425 gateway: no data connection: {0}")]
    NotConnected(String),
    #[error("426 gateway: data connection failed: {0}")]
    Midway(String),
    #[error("426 gateway: the server closed its data connection before the end of the upload")]
    Partly,
    #[error("426 gateway: transfer aborted")]
    Aborted,
}

impl TransferFailure {
    /// Returns the code of the reply.
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::NotConnected(_) => 425,
            Self::Midway(_) | Self::Partly | Self::Aborted => 426,
        }
    }
}

impl Transfers {
    /// Adds a data connection that no command has used yet.
    pub(super) fn prepare(&mut self) -> TransferId {
        self.numbered += 1;
        let id = TransferId(self.numbered);
        self.open.insert(id, Transfer::default());
        id
    }

    /// Starts a transfer on the prepared data connection, if there is one.
    pub(super) fn start(
        &mut self,
        command: &Command<'_>,
        direction: DataDirection,
    ) -> Option<TransferId> {
        let (&id, transfer) = self.open.iter_mut().rfind(|(_, t)| t.is_unused())?;
        transfer.is_used = true;
        transfer.direction = Some(direction);
        transfer.command = Some(TransferCommand {
            verb: command.verb().to_owned(),
            argument: command.argument().to_vec(),
        });
        Some(id)
    }

    /// Starts a transfer with a verb that both halves do not know. Returns whether it was unknown
    /// before.
    pub(super) fn start_unknown(&mut self, id: TransferId) -> bool {
        match self.open.get_mut(&id) {
            Some(transfer) if !transfer.is_used => {
                transfer.is_used = true;
                transfer.command = Some(TransferCommand::default());
                true
            }
            _ => false,
        }
    }

    /// Handles an event of a data connection. Returns whether the data connection is dropped. The
    /// far half may still wait for the server's data connection.
    pub(super) fn on_event(&mut self, id: TransferId, event: NearDataEvent) -> bool {
        let Some(transfer) = self.open.get_mut(&id) else {
            return false;
        };
        match event {
            NearDataEvent::ClientEnded => transfer.client_ended = true,
            NearDataEvent::Delivered => transfer.ended = Some(Ok(())),
            NearDataEvent::Failed(why) => transfer.ended = Some(Err(TransferFailure::Midway(why))),
            NearDataEvent::NotConnected(why) => {
                transfer.ended = Some(Err(TransferFailure::NotConnected(why)))
            }
            NearDataEvent::Expired if transfer.is_used => {
                let why = "the client did not connect".to_owned();
                transfer.ended = Some(Err(TransferFailure::NotConnected(why)));
            }
            NearDataEvent::Expired => {
                self.open.remove(&id);
                return true;
            }
        }
        if transfer.answered && transfer.ended.is_some() {
            self.open.remove(&id);
        }
        false
    }

    /// Records the far half's report whether all bytes from the client have been written to the
    /// server.
    pub(super) fn upload_ended(&mut self, id: TransferId, is_whole: bool) {
        if let Some(transfer) = self.open.get_mut(&id) {
            transfer.has_arrived.get_or_insert(is_whole);
        }
    }

    /// Records that the final reply with this code was relayed.
    pub(super) fn answered(
        &mut self,
        id: TransferId,
        code: u16,
        succeeded: bool,
    ) -> Option<TransferSummary> {
        let transfer = self.open.get_mut(&id)?;
        transfer.answered = true;
        let record = transfer.record(id, Some(code), succeeded);
        if transfer.ended.is_some() {
            self.open.remove(&id);
        }
        record
    }

    /// Returns the end of the data. `None` before it. An unknown data connection was dropped, and
    /// its failure was reported.
    pub(super) fn end(&self, id: TransferId) -> Option<Result<(), TransferFailure>> {
        self.open.get(&id).map_or(Some(Ok(())), Transfer::end)
    }

    /// Returns the direction of the transfer that uses it. `None` without a transfer.
    pub(super) fn direction(&self, id: TransferId) -> Option<Option<DataDirection>> {
        let transfer = self.open.get(&id).filter(|t| t.is_used)?;
        Some(transfer.direction)
    }

    /// Whether the far half has not reported on it yet.
    pub(super) fn awaits_report(&self, id: TransferId) -> bool {
        let transfer = self.open.get(&id);
        transfer.is_some_and(|t| t.is_upload() && t.has_arrived.is_none())
    }

    /// Whether a transfer waits for its final reply.
    pub(super) fn is_running(&self) -> bool {
        self.open.values().any(Transfer::is_running)
    }

    /// Removes a data connection. The inner value is `None` if no transfer has used it.
    pub(super) fn remove(&mut self, id: TransferId) -> Option<Option<TransferSummary>> {
        let mut transfer = self.open.remove(&id)?;
        Some(transfer.record(id, None, false))
    }

    /// Takes the data connections that no command has used.
    pub(super) fn take_unused(&mut self) -> Vec<TransferId> {
        let taken = self.take_if(|_, transfer| transfer.is_unused());
        taken.into_iter().map(|(id, _)| id).collect()
    }

    /// Handles an ABOR. No transfer command may follow on the unused data connections, and the
    /// session does not wait for the data of running transfers.
    pub(super) fn abort(&mut self, abort: CommandId) {
        for transfer in self.open.values_mut() {
            if transfer.is_unused() {
                transfer.aborted_by = Some(abort);
            } else if transfer.is_running() {
                transfer.is_aborting = true;
            }
        }
    }

    /// Ends the data of a transfer that is being aborted and still awaited. `None` if it is not
    /// being aborted.
    pub(super) fn end_aborted(&mut self, id: TransferId) -> Option<Option<TransferSummary>> {
        let transfer = self.open.get_mut(&id).filter(|t| t.is_aborting)?;
        transfer.ended = Some(Err(TransferFailure::Aborted));
        Some(transfer.record(id, Some(TransferFailure::Aborted.code()), false))
    }

    /// Takes the data connections that an answered ABOR ends.
    pub(super) fn take_aborted(&mut self, abort: CommandId) -> Vec<TransferId> {
        let taken = self.take_if(|_, transfer| transfer.aborted_by == Some(abort));
        taken.into_iter().map(|(id, _)| id).collect()
    }

    /// Takes the data connections without a final reply, unless it is waiting to be relayed,
    /// according to `waits`.
    pub(super) fn take_unanswered(
        &mut self,
        waits: impl Fn(TransferId) -> bool,
    ) -> Vec<(TransferId, Option<TransferSummary>)> {
        self.take_if(|id, transfer| !transfer.answered && !waits(id))
    }

    pub(super) fn take_all(&mut self) -> Vec<(TransferId, Option<TransferSummary>)> {
        self.take_if(|_, _| true)
    }

    fn take_if(
        &mut self,
        is_it: impl Fn(TransferId, &Transfer) -> bool,
    ) -> Vec<(TransferId, Option<TransferSummary>)> {
        let taken = self
            .open
            .extract_if(.., |&id, transfer| is_it(id, transfer));
        taken
            .map(|(id, mut transfer)| (id, transfer.record(id, None, false)))
            .collect()
    }

    /// Returns the order for each data connection after the client has closed its control
    /// connection. RFC 959: this aborts a transfer, unless the client had sent all bytes. The
    /// client does not receive the final replies.
    pub(super) fn client_gone(
        &mut self,
    ) -> Vec<(TransferId, Option<NearDataOrder>, Option<TransferSummary>)> {
        #[cfg(fuzz_canary)]
        assert!(
            !self.open.values().any(|t| matches!(t.ended, Some(Err(_)))),
            "canary: behind a broken transfer"
        );
        let taken = std::mem::take(&mut self.open).into_iter();
        taken
            .map(|(id, mut transfer)| {
                let order = match (transfer.client_ended, transfer.is_upload()) {
                    _ if !transfer.is_used => Some(NearDataOrder::Kill),
                    (true, _) => None,
                    (false, true) => Some(NearDataOrder::ClientGone),
                    (false, false) => Some(NearDataOrder::Kill),
                };
                (id, order, transfer.record(id, None, false))
            })
            .collect()
    }
}
