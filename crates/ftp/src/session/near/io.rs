//! What goes into the near half of a session, and what comes out.

use std::net::SocketAddr;

use super::transfers::Record;
use crate::{
    logon::Logon,
    session::{
        CommandId, Subject, Tag, TransferId,
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
    /// The far half relays a line of the server.
    FarReply {
        /// What the line answers.
        tag: Tag,
        /// Without terminator.
        line: &'a [u8],
    },
    /// TLS has begun on the client's control connection.
    TlsBegun,
    /// The far half has agreed with the server on a data connection.
    DataReady(CommandId),
    /// The server leaves a command unanswered, and the client has gone on without.
    LeftUnanswered(CommandId),
    /// The far half has dealt with a command whose answer the client has had.
    Taken,
    /// What the server answers to a question that the client has not asked.
    Prefetched {
        /// The question.
        subject: Subject,
        /// The lines of the answer with CRLF between them; `None` if there is none to repeat.
        answer: Option<&'a [u8]>,
        /// Nothing more has been asked ahead.
        last: bool,
    },
    /// The client can be told to connect here.
    Listening {
        /// Number of the data connection.
        transfer: TransferId,
        /// Address and port to announce.
        at: SocketAddr,
    },
    /// No listener or no link stream could be opened for a data connection.
    NoData(TransferId),
    /// The server's control connection could not be set up: the reply that says why.
    Refused {
        /// Code of the reply.
        code: u16,
        /// Text of the reply.
        text: &'a str,
    },
    /// The server's control connection has ended.
    ServerClosed,
    /// The link lost the session.
    LinkLost(&'a str),
    /// A limit of the gateway ends the session: why.
    LimitReached(&'a str),
    /// Something happened on a data connection.
    Data(TransferId, Event),
    /// The far half reports how an upload has ended beside the server.
    UploadEnded {
        /// Number of the data connection.
        transfer: TransferId,
        /// Everything from the client, and its end, has been written to the server.
        is_whole: bool,
    },
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
    /// Send a command to the far half.
    Command {
        /// Its number.
        id: CommandId,
        /// The line without terminator and Telnet prefix.
        line: Vec<u8>,
        /// A Telnet Synch came with it.
        synch: bool,
        /// The client has its answer: the server's is not relayed.
        answered: bool,
    },
    /// Ask the far half for a data connection, and open a link stream for it.
    OpenData {
        /// Number of the command.
        id: CommandId,
        /// Number of the data connection.
        transfer: TransferId,
        /// The client is not waiting for the answer.
        answered: bool,
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
