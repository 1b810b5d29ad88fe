//! Data connections of a session. For each data connection, the module stores its transfer command,
//! the end of its data, and whether the final reply was relayed.

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
    /// Direction of the transferred bytes. `None` if the verb is unknown.
    direction: Option<DataDirection>,
    /// Transfer command. `None` after the transfer has been recorded.
    command: Option<TransferCommand>,
    /// `ABOR` that the client sent before any transfer command. The session keeps the data
    /// connection until the reply to this `ABOR`.
    aborted_by: Option<CommandId>,
    /// Whether the client sent an `ABOR` during the transfer. If so, the session does not wait for
    /// the transfer's data.
    is_aborting: bool,
    client_ended: bool,
    ended: Option<Result<(), TransferFailure>>,
    /// Whether the far gateway has written all bytes of the upload to the server. `None` before the
    /// far gateway's report.
    has_arrived: Option<bool>,
    /// Whether the server's final reply has been relayed to the client.
    answered: bool,
}

#[derive(Debug, Default)]
struct TransferCommand {
    verb: String,
    argument: Vec<u8>,
}

/// Outcome of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferSummary {
    /// Number of the data connection.
    pub transfer: TransferId,
    /// Verb of the transfer command, in upper case.
    pub verb: String,
    /// Argument of the transfer command.
    pub argument: Vec<u8>,
    /// Direction of the transferred bytes. `None` if the verb is unknown.
    pub direction: Option<DataDirection>,
    /// Code of the final reply to the client. `None` if the client received no final reply.
    pub code: Option<u16>,
    /// Whether all bytes have arrived and the server's final reply has the code `2yz`.
    pub succeeded: bool,
}

impl Transfer {
    /// Whether a transfer command may still use this data connection.
    fn is_unused(&self) -> bool {
        !self.is_used && self.aborted_by.is_none()
    }

    fn is_upload(&self) -> bool {
        self.direction == Some(DataDirection::Upload)
    }

    fn is_running(&self) -> bool {
        self.is_used && !self.answered
    }

    /// Returns the outcome of the data: delivered or failed. Returns `None` while the outcome is
    /// unknown.
    fn end(&self) -> Option<Result<(), TransferFailure>> {
        match (&self.ended, self.has_arrived) {
            (Some(Err(broken)), _) => Some(Err(broken.clone())),
            (_, Some(false)) if self.is_upload() => Some(Err(TransferFailure::Partly)),
            (Some(Ok(())), None) if self.is_upload() => None,
            (ended, _) => ended.clone(),
        }
    }

    /// Creates the record of this transfer. Returns `None` if the record was already created, or if
    /// no transfer has used the data connection.
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

/// Failure of a transfer between client and server. The error text is the reply to the client.
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
    /// Returns the code of the reply to the client.
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

    /// Starts a transfer on the newest unused data connection. Returns `None` if none is unused.
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

    /// Starts a transfer with a verb that is unknown to the gateways. Returns `false` if the
    /// transfer has already started, or if the data connection does not exist.
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

    /// Handles an event of a data connection. Returns whether the session drops the data
    /// connection. If so, the caller must report the drop to the far gateway, which may still wait
    /// for the server's connection.
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

    /// Records the far gateway's report on an upload. `is_whole` is set if all bytes from the
    /// client were written to the server.
    pub(super) fn upload_ended(&mut self, id: TransferId, is_whole: bool) {
        if let Some(transfer) = self.open.get_mut(&id) {
            transfer.has_arrived.get_or_insert(is_whole);
        }
    }

    /// Records that the final reply has been relayed to the client. `code` is the code of that
    /// reply.
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

    /// Returns the outcome of the data: delivered or failed. Returns `None` while the outcome is
    /// unknown. If the data connection does not exist any more, the function returns `Ok`, because
    /// its failure was already reported.
    pub(super) fn end(&self, id: TransferId) -> Option<Result<(), TransferFailure>> {
        self.open.get(&id).map_or(Some(Ok(())), Transfer::end)
    }

    /// Returns the direction of the transfer that uses this data connection. Returns `None` if no
    /// transfer uses it.
    pub(super) fn direction(&self, id: TransferId) -> Option<Option<DataDirection>> {
        let transfer = self.open.get(&id).filter(|t| t.is_used)?;
        Some(transfer.direction)
    }

    /// Whether the data connection carries an upload on which the far gateway has not reported yet.
    pub(super) fn awaits_report(&self, id: TransferId) -> bool {
        let transfer = self.open.get(&id);
        transfer.is_some_and(|t| t.is_upload() && t.has_arrived.is_none())
    }

    /// Whether a transfer waits for its final reply.
    pub(super) fn is_running(&self) -> bool {
        self.open.values().any(Transfer::is_running)
    }

    /// Removes a data connection, and returns the record of its transfer. The inner value is `None`
    /// if no transfer has used the data connection.
    pub(super) fn remove(&mut self, id: TransferId) -> Option<Option<TransferSummary>> {
        let mut transfer = self.open.remove(&id)?;
        Some(transfer.record(id, None, false))
    }

    /// Removes and returns the data connections that no command has used.
    pub(super) fn take_unused(&mut self) -> Vec<TransferId> {
        let taken = self.take_if(|_, transfer| transfer.is_unused());
        taken.into_iter().map(|(id, _)| id).collect()
    }

    /// Handles an `ABOR` of the client. Later transfer commands cannot use the present data
    /// connections. The session does not wait for the data of running transfers.
    pub(super) fn abort(&mut self, abort: CommandId) {
        for transfer in self.open.values_mut() {
            if transfer.is_unused() {
                transfer.aborted_by = Some(abort);
            } else if transfer.is_running() {
                transfer.is_aborting = true;
            }
        }
    }

    /// Marks an aborted transfer as failed, so that the session stops waiting for its data. Returns
    /// `None` if the client has not aborted the transfer.
    pub(super) fn end_aborted(&mut self, id: TransferId) -> Option<Option<TransferSummary>> {
        let transfer = self.open.get_mut(&id).filter(|t| t.is_aborting)?;
        transfer.ended = Some(Err(TransferFailure::Aborted));
        Some(transfer.record(id, Some(TransferFailure::Aborted.code()), false))
    }

    /// Removes and returns the data connections that wait for the reply to this `ABOR`.
    pub(super) fn take_aborted(&mut self, abort: CommandId) -> Vec<TransferId> {
        let taken = self.take_if(|_, transfer| transfer.aborted_by == Some(abort));
        taken.into_iter().map(|(id, _)| id).collect()
    }

    /// Removes and returns the data connections without a final reply. The function keeps a data
    /// connection for which `waits` returns true, because the session must still relay its final
    /// reply.
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

    /// Removes all data connections after the client has closed its control connection. Returns an
    /// order for each data connection. The close aborts a transfer unless the client has already
    /// sent all bytes (RFC 959). The client receives no final replies.
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
