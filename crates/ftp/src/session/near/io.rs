//! Inputs and outputs of the near half of a session.

use std::net::SocketAddr;

use super::transfers::TransferSummary;
use crate::{
    logon::Logon,
    session::{
        CommandId, MessageToFar, MessageToNear, TransferId,
        data::near::{NearDataEvent, NearDataOrder},
    },
};

/// An input of the near half.
#[derive(Debug)]
pub enum NearInput<'a> {
    /// The client sent a line.
    ClientLine(&'a [u8]),
    /// The client sent a line above the bound.
    ClientLineTooLong,
    /// The client sends no more, and may still read.
    ClientEnded,
    /// The client's control connection broke, or the client stopped reading.
    ClientClosed,
    /// The far half has sent a message, or the message that replaces its end.
    Received(MessageToNear),
    /// TLS has begun on the client's control connection.
    TlsBegun,
    /// A listener for the client is open at this address.
    Listening {
        /// Number of the data connection.
        transfer: TransferId,
        /// Address and port to announce.
        at: SocketAddr,
    },
    /// No listener or no link stream could be opened for a data connection.
    NoData(TransferId),
    /// The far half for a server could not be reached. The reply contains the reason.
    NotReached {
        /// Code of the reply.
        code: u16,
        /// Text of the reply.
        text: &'a str,
    },
    /// The link lost the session.
    LinkLost(&'a str),
    /// A limit of the gateway ends the session, for this reason.
    LimitReached(&'a str),
    /// Something happened on a data connection.
    Data(TransferId, NearDataEvent),
}

/// An action for the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum NearOutput {
    /// Write this reply line to the client, in one write.
    ToClient(Vec<u8>),
    /// Leave the present server, connect to the one named, and log on there with this command.
    Connect {
        /// Number of the command.
        id: CommandId,
        /// Account and server.
        logon: Logon,
    },
    /// Send this message to the far half.
    Send(MessageToFar),
    /// Open a link stream for a data connection, then send this request for it to the far half.
    OpenData {
        /// Number of the data connection.
        transfer: TransferId,
        /// The request.
        request: MessageToFar,
    },
    /// Start TLS with the client. Bytes that it has sent before are not TLS, and end the session.
    BeginTls,
    /// Listen for the client's data connection at the address of its control connection. Report the
    /// listener's address before any other input.
    Listen {
        /// Number of the data connection.
        transfer: TransferId,
        /// Whether the data connection uses TLS.
        is_private: bool,
    },
    /// Connect to the client's data port once the transfer has begun.
    Dial {
        /// Number of the data connection.
        transfer: TransferId,
        /// Address of the client's listener: the client's own address, and a port from 1024.
        at: SocketAddr,
        /// Whether the data connection uses TLS.
        is_private: bool,
    },
    /// An order for a data connection.
    Order(TransferId, NearDataOrder),
    /// The session has finished with a transfer.
    Transferred(TransferSummary),
    /// The server has refused the client's password.
    LoginFailed,
    /// End the far half in an orderly way, since the client has left. Data that may still be
    /// delivered come first.
    LeaveServer,
    /// Close the client's control connection. No action follows.
    Close,
}
