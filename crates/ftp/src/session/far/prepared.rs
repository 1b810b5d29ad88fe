//! The data connection that the next transfer will use.

use crate::session::TransferId;

/// At most one: a newer one takes its place.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    transfer: TransferId,
    /// There will be none: the reply that says so.
    refusal: Option<String>,
}

/// What a transfer finds.
pub(super) enum Found {
    Nothing,
    /// There is none; the reply that says so.
    Refused(TransferId, String),
    Connection(TransferId),
}

impl Prepared {
    pub(super) fn set(&mut self, transfer: TransferId) {
        self.connection = Some(Connection {
            transfer,
            refusal: None,
        });
    }

    /// The client has been promised a data connection that the server refuses.
    pub(super) fn set_refused(&mut self, transfer: TransferId, refusal: String) {
        self.connection = Some(Connection {
            transfer,
            refusal: Some(refusal),
        });
    }

    /// The server's data port did not accept the connection.
    pub(super) fn refused(&mut self, transfer: TransferId) {
        self.refuse(
            transfer,
            "425 gateway: the server's data port did not accept the connection",
        );
    }

    fn refuse(&mut self, transfer: TransferId, refusal: &str) {
        let connection = self.connection.as_mut();
        if let Some(connection) = connection.filter(|c| c.transfer == transfer) {
            connection.refusal = Some(refusal.to_owned());
        }
    }

    /// The near half has given it up. The server, which has seen a connection, must not be told to use it.
    pub(super) fn abandon(&mut self, transfer: TransferId) {
        self.refuse(transfer, "425 gateway: the data connection was given up");
    }

    /// Takes it for a transfer.
    pub(super) fn take(&mut self) -> Found {
        match self.connection.take() {
            None => Found::Nothing,
            Some(Connection {
                transfer,
                refusal: Some(refusal),
            }) => Found::Refused(transfer, refusal),
            Some(Connection { transfer, .. }) => Found::Connection(transfer),
        }
    }

    /// Takes it to be aborted.
    pub(super) fn give_up(&mut self) -> Option<TransferId> {
        self.connection.take().map(|c| c.transfer)
    }
}
