//! The data connection for the next transfer.

use crate::session::TransferId;

/// At most one data connection. A newer one replaces it.
#[derive(Debug, Default)]
pub(super) struct PreparedConnection {
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    transfer: TransferId,
    /// The reply that refuses a transfer. `None` if the data connection may be used.
    refusal: Option<String>,
}

/// Data connection for a transfer.
pub(super) enum TransferConnection {
    Nothing,
    /// The data connection was refused. The text is the reply.
    Refused(TransferId, String),
    Connection(TransferId),
}

impl PreparedConnection {
    pub(super) fn set(&mut self, transfer: TransferId) {
        self.connection = Some(Connection {
            transfer,
            refusal: None,
        });
    }

    /// Records that the server refuses a data connection that the client was promised.
    pub(super) fn set_refused(&mut self, transfer: TransferId, refusal: String) {
        self.connection = Some(Connection {
            transfer,
            refusal: Some(refusal),
        });
    }

    /// Records that the server's data port did not accept the connection.
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

    /// Records that the near half has dropped the data connection. The server, which has a
    /// connection, must not receive a command that uses it.
    pub(super) fn abandon(&mut self, transfer: TransferId) {
        self.refuse(transfer, "425 gateway: the data connection was cancelled");
    }

    /// Takes the data connection for a transfer.
    pub(super) fn take(&mut self) -> TransferConnection {
        match self.connection.take() {
            None => TransferConnection::Nothing,
            Some(Connection {
                transfer,
                refusal: Some(refusal),
            }) => TransferConnection::Refused(transfer, refusal),
            Some(Connection { transfer, .. }) => TransferConnection::Connection(transfer),
        }
    }

    /// Takes the data connection in order to abort it.
    pub(super) fn give_up(&mut self) -> Option<TransferId> {
        self.connection.take().map(|c| c.transfer)
    }
}
