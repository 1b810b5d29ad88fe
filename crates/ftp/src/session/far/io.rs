//! What goes into the far half of a session, and what comes out.

use crate::{
    command::PassiveForm,
    session::{CommandId, PIPELINED_MAX, Tag, TransferId},
};

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// The client sent a command.
    Command {
        /// Its number.
        id: CommandId,
        /// The line without terminator and Telnet prefix.
        line: &'a [u8],
        /// A Telnet Synch came with it.
        synch: bool,
    },
    /// The client asked for a passive data connection.
    Passive {
        /// Number of the command.
        id: CommandId,
        /// Number of the data connection.
        transfer: TransferId,
        /// How the client asked; the server is asked in the form that fits its own address.
        form: PassiveForm,
    },
    /// The near half gave a data connection up.
    Abandon(TransferId),
    /// The client closed its control connection in an orderly way.
    ClientGone,
    /// The server sent a line.
    ServerLine(&'a [u8]),
    /// The server closed its control connection, or it broke.
    ServerClosed,
    /// The data connection could not be opened.
    DataRefused(TransferId),
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this line to the server in one write.
    ToServer {
        /// Without terminator.
        line: Vec<u8>,
        /// Put a Telnet interrupt and Synch in front.
        synch: bool,
    },
    /// Relay a reply line to the near half.
    Reply {
        /// What it answers.
        tag: Tag,
        /// Without terminator.
        line: Vec<u8>,
    },
    /// Tell the near half that the server awaits the data connection.
    PassiveReady {
        /// Number of the command that asked.
        id: CommandId,
        /// Number of the data connection.
        transfer: TransferId,
    },
    /// Connect to this port of the control connection's peer, at once.
    Connect {
        /// Number of the data connection.
        transfer: TransferId,
        /// The port that the server announced.
        port: u16,
    },
    /// Reset the server's data connection.
    Abort {
        /// Number of the data connection.
        transfer: TransferId,
        /// Give the server a moment to end it by itself.
        grace: bool,
    },
    /// Close the server's control connection. Nothing follows.
    Close,
}

/// How a session begins.
#[derive(Debug)]
pub enum Opening {
    /// Relay the server's greeting.
    RelayGreeting,
    /// The client has been greeted; consume the server's greeting, then send this command.
    ConsumeGreeting {
        /// Number of the command.
        id: CommandId,
        /// `USER name`, without terminator.
        line: Vec<u8>,
    },
}

/// The near half broke its own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {PIPELINED_MAX} commands ahead of their replies")]
pub struct TooManyCommands;
