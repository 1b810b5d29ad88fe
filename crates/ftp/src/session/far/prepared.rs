//! The data connection that the next transfer will use.

use crate::session::TransferId;

/// At most one: a newer one takes its place.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    connection: Option<Connection>,
}

#[derive(Debug, Clone, Copy)]
struct Connection {
    transfer: TransferId,
    is_refused: bool,
}

/// What a transfer finds.
pub(super) enum Found {
    Nothing,
    /// The server's data port did not accept the connection.
    Refused(TransferId),
    Connection(TransferId),
}

impl Prepared {
    pub(super) fn set(&mut self, transfer: TransferId) {
        let is_refused = false;
        self.connection = Some(Connection {
            transfer,
            is_refused,
        });
    }

    /// The server's data port did not accept the connection.
    pub(super) fn refused(&mut self, transfer: TransferId) {
        let connection = self.connection.as_mut();
        if let Some(connection) = connection.filter(|c| c.transfer == transfer) {
            connection.is_refused = true;
        }
    }

    /// The near half has given it up.
    pub(super) fn abandon(&mut self, transfer: TransferId) {
        self.connection.take_if(|c| c.transfer == transfer);
    }

    /// Takes it for a transfer.
    pub(super) fn take(&mut self) -> Found {
        match self.connection.take() {
            None => Found::Nothing,
            Some(connection) if connection.is_refused => Found::Refused(connection.transfer),
            Some(connection) => Found::Connection(connection.transfer),
        }
    }

    /// Takes it to be aborted.
    pub(super) fn give_up(&mut self) -> Option<TransferId> {
        self.connection.take().map(|c| c.transfer)
    }
}
