//! What goes into the near half of a session, and what comes out.

use std::net::SocketAddr;

use super::transfers::Record;
use crate::{
    logon::Logon,
    session::{
        CommandId, ToFar, ToNear, TransferId,
        data::near::{Event, Order},
    },
};

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// The client sent a line.
    ClientLine(&'a [u8]),
    /// The client sent a line above the bound.
    ClientLineTooLong,
    /// The client sends nothing more, and may still read.
    ClientEnded,
    /// The client's control connection broke, or the client reads no more.
    ClientClosed,
    /// A message of the far half has come, or what its end stands for.
    Received(ToNear),
    /// TLS has begun on the client's control connection.
    TlsBegun,
    /// The client can be told to connect here.
    Listening {
        /// Number of the data connection.
        transfer: TransferId,
        /// Address and port to announce.
        at: SocketAddr,
    },
    /// No listener or no link stream could be opened for a data connection.
    NoData(TransferId),
    /// No far half could be reached for a server: the reply that names the reason.
    NotReached {
        /// Code of the reply.
        code: u16,
        /// Text of the reply.
        text: &'a str,
    },
    /// The link lost the session.
    LinkLost(&'a str),
    /// A limit of the gateway ends the session: why.
    LimitReached(&'a str),
    /// Something happened on a data connection.
    Data(TransferId, Event),
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
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
    Send(ToFar),
    /// Open a link stream for a data connection, then send this request for it to the far half.
    OpenData {
        /// Number of the data connection.
        transfer: TransferId,
        /// The request.
        request: ToFar,
    },
    /// Begin TLS with the client; what it has sent already is not TLS, and ends the session.
    BeginTls,
    /// Listen for the client's data connection on the address that its control connection uses, and say where
    /// before anything else.
    Listen {
        /// Number of the data connection.
        transfer: TransferId,
        /// It has TLS.
        is_private: bool,
    },
    /// Connect to the client's data port once the transfer has begun.
    Dial {
        /// Number of the data connection.
        transfer: TransferId,
        /// Where the client listens: its own address, a port from 1024.
        at: SocketAddr,
        /// It has TLS.
        is_private: bool,
    },
    /// An order for a data connection.
    Order(TransferId, Order),
    /// The session is done with a transfer.
    Transferred(Record),
    /// The server has refused the client's password.
    LoginFailed,
    /// The client is gone: end the far half in an orderly way, once the data that may still be
    /// delivered has been.
    LeaveServer,
    /// Close the client's control connection. Nothing follows.
    Close,
}
