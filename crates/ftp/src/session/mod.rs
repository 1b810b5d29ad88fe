//! The two halves of a session: [`near`] beside the client, [`far`] beside the server; and its
//! [`data`] connections.
//!
//! The far half sends the server one command at a time (what may overtake a transfer excepted) and
//! tags each reply line with the command and the transfer that it answers. The near half relays
//! the lines, inserts the gateway's own replies in their order, and holds the final reply of a
//! transfer until its data has been delivered. [`ToFar`] and [`ToNear`] are all that they say to each other.

pub mod data;
pub mod far;
mod message;
pub mod near;

pub use message::{Request, ToFar, ToNear};

use crate::{
    command::{Command, Kind},
    line::COMMAND_MAX,
    reply::Code,
};

/// What a pair of gateways may do beside relaying, for fewer round trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The gateways answer by themselves what is safe to answer, and ask the server ahead for what
    /// clients ask next. A refusal that the client would have got at `PASV`, `PORT` or `TYPE` it gets
    /// at the transfer.
    #[default]
    Fast,
    /// Each command of the client's is one of the server's, and each reply too.
    Strict,
}

/// What the server is asked ahead, in fast mode: nothing that changes anything there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// `SYST`.
    System,
    /// `FEAT`.
    Features,
    /// `PWD`.
    Directory,
}

impl Subject {
    /// The subject that a command without argument asks for.
    pub fn of(verb: &str) -> Option<Self> {
        match verb {
            "SYST" => Some(Self::System),
            "FEAT" => Some(Self::Features),
            "PWD" | "XPWD" => Some(Self::Directory),
            _ => None,
        }
    }

    /// Code of the reply that has it (RFC 959 section 5.4, RFC 2389 section 3.2).
    fn answer_code(self) -> Code {
        Code(match self {
            Self::System => 215,
            Self::Features => 211,
            Self::Directory => 257,
        })
    }

    /// The command that asks for it.
    pub fn verb(self) -> &'static str {
        match self {
            Self::System => "SYST",
            Self::Features => "FEAT",
            Self::Directory => "PWD",
        }
    }
}

/// Numbers the commands of one session from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u32);

/// Numbers the data connections of one session from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u32);

/// What one reply line from the server belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The command that it answers; `None` for the greeting and for what nobody asked for.
    pub command: Option<CommandId>,
    /// The data connection whose transfer it reports on.
    pub transfer: Option<TransferId>,
    /// Whether another reply to the same command follows.
    pub stage: Stage,
    /// Code of the reply; 0 for a line outside any reply.
    pub code: u16,
    /// The line ends its reply.
    pub last: bool,
    /// What the client may ask next has been asked already, and follows.
    pub prefetches: bool,
}

/// Where in the answer to a command a reply stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A `1yz` reply: more follows.
    Preliminary,
    /// The answer to the command.
    Final,
}

/// The gateway's own answer to a command that is for gateways and never for a server.
fn refusal(command: &Command<'_>) -> Option<&'static str> {
    match command.kind() {
        Kind::Passive(_) | Kind::Active(_) | Kind::OtherData => {
            Some("502 gateway: this form of data connection is not offered here")
        }
        Kind::Protection => Some("502 gateway: TLS is not offered here"),
        Kind::Malformed => Some("500 gateway: a command has letters only"),
        Kind::Split => Some("501 gateway: a command has no line end inside"),
        Kind::Blank => Some("500 gateway: a command has a word"),
        Kind::Other if keeps_data_open(command) => {
            Some("504 gateway: the transfer mode is not offered here, use MODE S")
        }
        _ => None,
    }
}

/// Whether transfers after the command need no end of their data connection: in block and compressed mode the data itself
/// has an end (RFC 959 section 3.4), and the gateways wait for that of the connection.
fn keeps_data_open(command: &Command<'_>) -> bool {
    let mode = command.argument().trim_ascii().first();
    command.verb() == "MODE" && matches!(mode, Some(b'B' | b'b' | b'C' | b'c'))
}

/// Most commands that a client may have sent ahead of their replies; further ones wait in its
/// socket. At 200 ms and six commands for each small upload these are 200 files a second.
pub const PIPELINED_MAX: usize = 256;

/// Most of them once one is longer than [`LINE_USUAL_BYTES`].
const PIPELINED_LONG_MAX: usize = 64;

/// Longest command that clients have reason to send: a verb and a path.
const LINE_USUAL_BYTES: usize = COMMAND_MAX / 4;

/// Most bytes in all of them. The near half never has more under way: 64 long ones, or 255 usual ones and a long one.
const PIPELINED_BYTES_MAX: usize = (PIPELINED_LONG_MAX + 1) * COMMAND_MAX;
