//! The two halves of a session, and its [`data`] connections. The half at the client's side is
//! [`near`], the half at the server's side is [`far`].
//!
//! The far half sends the server one command at a time, except for commands that may overtake a
//! transfer. It tags each reply line with the command and the transfer that it answers. The near
//! half relays the lines, and inserts the gateway's own replies in order. It holds the final reply
//! of a transfer until the data have been delivered. The halves exchange only [`MessageToFar`] and
//! [`MessageToNear`].

pub mod data;
pub mod far;
mod message;
pub mod near;

pub use message::{MessageToFar, MessageToNear, ServerRequest};

use crate::{
    command::{Command, CommandKind},
    line::COMMAND_MAX,
    reply::ReplyCode,
};

/// Behaviour of a pair of gateways: fewer round trips, or plain relaying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionMode {
    /// The gateways answer safe commands by themselves, and ask the server ahead for the usual next
    /// replies. A refusal of `PASV`, `PORT` or `TYPE` reaches the client as the reply to the
    /// transfer.
    #[default]
    Fast,
    /// Each command of the client is sent to the server, and each reply comes from the server.
    Strict,
}

/// Question for the server in fast mode. None changes the server's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuestionSubject {
    /// `SYST`.
    System,
    /// `FEAT`.
    Features,
    /// `PWD`.
    Directory,
}

impl QuestionSubject {
    /// Returns the subject of a command without argument.
    pub fn from_verb(verb: &str) -> Option<Self> {
        match verb {
            "SYST" => Some(Self::System),
            "FEAT" => Some(Self::Features),
            "PWD" | "XPWD" => Some(Self::Directory),
            _ => None,
        }
    }

    /// Returns the code of the answer (RFC 959 section 5.4, RFC 2389 section 3.2).
    fn answer_code(self) -> ReplyCode {
        ReplyCode(match self {
            Self::System => 215,
            Self::Features => 211,
            Self::Directory => 257,
        })
    }

    /// Returns the verb of the command.
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

/// Properties of one reply line of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTag {
    /// The command that it answers. `None` for the greeting, and for lines without a command.
    pub command: Option<CommandId>,
    /// The data connection of the transfer that it reports on.
    pub transfer: Option<TransferId>,
    /// Whether another reply to the same command follows.
    pub stage: ReplyStage,
    /// Code of the reply. 0 for a line outside any reply.
    pub code: u16,
    /// Whether the line ends its reply.
    pub last: bool,
    /// Whether prefetched commands have been sent, whose answers follow.
    pub prefetches: bool,
}

/// Stage of a reply in the answer to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStage {
    /// A `1yz` reply: another one follows.
    Preliminary,
    /// The final reply to the command.
    Final,
}

/// Returns the gateway's own reply to a command that must never reach a server.
fn refusal(command: &Command<'_>) -> Option<&'static str> {
    match command.kind() {
        CommandKind::Passive(_) | CommandKind::Active(_) | CommandKind::OtherData => {
            Some("502 gateway: this form of data connection is not offered here")
        }
        CommandKind::Protection => Some("502 gateway: TLS is not offered here"),
        CommandKind::Malformed => Some("500 gateway: a command has letters only"),
        CommandKind::Split => Some("501 gateway: a command has no line end inside"),
        CommandKind::Blank => Some("500 gateway: a command has a word"),
        CommandKind::Other if keeps_data_open(command) => {
            Some("504 gateway: the transfer mode is not offered here, use MODE S")
        }
        _ => None,
    }
}

/// Whether transfers after the command do not end with their data connection. In block and
/// compressed mode the data themselves mark the end (RFC 959 section 3.4), and the gateways wait
/// for the end of the connection.
fn keeps_data_open(command: &Command<'_>) -> bool {
    let mode = command.argument().trim_ascii().first();
    command.verb() == "MODE" && matches!(mode, Some(b'B' | b'b' | b'C' | b'c'))
}

/// Maximum number of commands that a client may send ahead of their replies. Further ones wait in
/// its socket. At 200 ms and six commands for each small upload this is 200 files a second.
pub const PIPELINED_MAX: usize = 256;

/// Maximum number of such commands once one is longer than [`LINE_USUAL_BYTES`].
const PIPELINED_LONG_MAX: usize = 64;

/// Usual greatest length of a command: a verb and a path.
const LINE_USUAL_BYTES: usize = COMMAND_MAX / 4;

/// Maximum number of bytes in all these commands. The near half never has more in flight: 64 long
/// commands, or 255 usual commands and a long one.
const PIPELINED_BYTES_MAX: usize = (PIPELINED_LONG_MAX + 1) * COMMAND_MAX;
