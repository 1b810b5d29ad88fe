//! The server's data connection for the next transfer.

use crate::session::TransferId;

/// Data connection for the next transfer, if one exists. A newer data connection replaces an older
/// one.
#[derive(Debug, Default)]
pub(super) struct PreparedConnection {
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    transfer: TransferId,
    /// Reply with which the gateway refuses the next transfer. `None` if the transfer may use the
    /// data connection.
    refusal: Option<String>,
}

/// Data connection for a transfer that starts now.
pub(super) enum TransferConnection {
    Nothing,
    /// The data connection was refused. The text is the reply to the transfer command.
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

    /// Records that the server refuses a data connection that the near gateway has already
    /// confirmed to the client.
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

    /// Records that the near gateway has dropped the data connection. The server's connection is
    /// still open, so the server must not receive a command that uses that connection.
    pub(super) fn abandon(&mut self, transfer: TransferId) {
        self.refuse(transfer, "425 gateway: the data connection was cancelled");
    }

    /// Removes and returns the data connection for a transfer that starts now.
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

    /// Removes and returns the data connection so that the caller can abort it.
    pub(super) fn give_up(&mut self) -> Option<TransferId> {
        self.connection.take().map(|c| c.transfer)
    }
}
