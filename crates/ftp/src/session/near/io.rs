//! Inputs and outputs of the near gateway's half of a session.

use std::net::SocketAddr;

use super::transfers::TransferSummary;
use crate::{
    logon::Logon,
    session::{
        CommandId, MessageToFar, MessageToNear, TransferId,
        data::near::{NearDataEvent, NearDataOrder},
    },
};

/// Input of the near gateway's half of a session.
#[derive(Debug)]
pub enum NearInput<'a> {
    /// The client sent a command line.
    ClientLine(&'a [u8]),
    /// The client sent a command line longer than the limit.
    ClientLineTooLong,
    /// The client has closed its sending direction. The client may still read replies.
    ClientEnded,
    /// The client's control connection broke, or the client stopped reading.
    ClientClosed,
    /// The far gateway has sent a message. At the end of the link stream, the caller passes a
    /// message that represents the end.
    Received(MessageToNear),
    /// The TLS handshake on the client's control connection is complete.
    TlsBegun,
    /// A listening socket for the client's data connection is open.
    Listening {
        /// Number of the data connection.
        transfer: TransferId,
        /// Address and port of the socket, for the reply to the client.
        at: SocketAddr,
    },
    /// The listening socket or the link stream for this data connection could not be opened.
    NoData(TransferId),
    /// The session cannot use its server. The server is not allowed, or its far gateway could not
    /// be reached. The reply contains the reason.
    NotReached {
        /// Code of the reply for the client.
        code: u16,
        /// Text of the reply for the client.
        text: &'a str,
    },
    /// The stream of the session broke, or the gateway is shutting down. The text is the reason.
    LinkLost(&'a str),
    /// A limit of the gateway ends the session. The text is the reason.
    LimitReached(&'a str),
    /// An event occurred on a data connection.
    Data(TransferId, NearDataEvent),
}

/// An action for the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum NearOutput {
    /// Write this reply line to the client in a single write.
    ToClient(Vec<u8>),
    /// Disconnect from the present server, connect to the server in `logon`, and log on to that
    /// server.
    Connect {
        /// Number of the client's logon command.
        id: CommandId,
        /// Account and its server.
        logon: Logon,
    },
    /// Send this message to the far gateway.
    Send(MessageToFar),
    /// Open a link stream for a data connection. Then send this request for the data connection to
    /// the far gateway.
    OpenData {
        /// Number of the data connection.
        transfer: TransferId,
        /// The request to send after the stream is open.
        request: MessageToFar,
    },
    /// Start TLS with the client. If the client has already sent unread bytes, those bytes are not
    /// TLS, and the session must end.
    BeginTls,
    /// Listen for the client's data connection at the local address of the control connection.
    /// Report the address of the socket before any other input.
    Listen {
        /// Number of the data connection.
        transfer: TransferId,
        /// Whether the data connection uses TLS.
        is_private: bool,
    },
    /// Connect to the client's data port when the transfer has begun.
    Dial {
        /// Number of the data connection.
        transfer: TransferId,
        /// Address of the client's listening socket: the client's own IP address, and a port from
        /// 1024.
        at: SocketAddr,
        /// Whether the data connection uses TLS.
        is_private: bool,
    },
    /// Pass this order to a data connection.
    Order(TransferId, NearDataOrder),
    /// Record this outcome of a transfer. The session no longer needs the transfer.
    Transferred(TransferSummary),
    /// The server has refused the client's log-in.
    LoginFailed,
    /// Close the stream to the far gateway without a reset, because the session has ended. First
    /// deliver the data that can still be delivered.
    LeaveServer,
    /// Close the client's control connection. No further action follows.
    Close,
}
