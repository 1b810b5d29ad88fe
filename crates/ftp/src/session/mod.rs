//! The two halves of an FTP session, and its [`data`] connections. The near gateway, beside the
//! client, runs the [`near`] half. The far gateway, beside the server, runs the [`far`] half.
//!
//! The far half sends one command at a time to the server, except for commands that may be sent
//! during a transfer. The far half tags each reply line with its command and its transfer. The near
//! half relays the lines, and inserts the gateway's own replies in order. The near half holds back
//! a successful final reply of a transfer until the data have been delivered. The halves exchange
//! only [`MessageToFar`] and [`MessageToNear`].

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

/// Mode of a pair of gateways: fast (fewer round trips) or strict (only relaying).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionMode {
    /// The near gateway itself replies to safe commands. The far gateway prefetches replies: it
    /// sends commands such as `PWD` to the server before the client sends them. If the server
    /// refuses `PASV`, `PORT` or `TYPE`, the client receives the refusal as the reply to its
    /// transfer command.
    #[default]
    Fast,
    /// The gateways relay each command to the server and each reply to the client.
    Strict,
}

/// Command that the gateway may prefetch. Prefetching means that the gateway sends the command to
/// the server before the client sends it. These commands do not change the server's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuestionSubject {
    /// `SYST`: the server's operating system.
    System,
    /// `FEAT`: the server's features.
    Features,
    /// `PWD`: the working directory.
    Directory,
}

impl QuestionSubject {
    /// Returns the subject for a verb. Returns `None` if the gateway never prefetches the command.
    pub fn from_verb(verb: &str) -> Option<Self> {
        match verb {
            "SYST" => Some(Self::System),
            "FEAT" => Some(Self::Features),
            "PWD" | "XPWD" => Some(Self::Directory),
            _ => None,
        }
    }

    /// Returns the code of a successful reply (RFC 959 section 5.4, RFC 2389 section 3.2).
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

/// Number of a command within its session, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u32);

/// Number of a data connection within its session, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u32);

/// Properties of one reply line of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTag {
    /// Command to which the line belongs. `None` for the greeting, and for lines that belong to no
    /// command.
    pub command: Option<CommandId>,
    /// Data connection of the transfer to which the line belongs. `None` for other replies.
    pub transfer: Option<TransferId>,
    /// Whether another reply to the same command follows.
    pub stage: ReplyStage,
    /// Code of the reply. The code is 0 for a line outside any reply.
    pub code: u16,
    /// Whether the line is the last line of its reply.
    pub last: bool,
    /// Whether the far gateway has sent prefetched commands after this reply. The replies to these
    /// commands follow.
    pub prefetches: bool,
}

/// Whether a reply is preliminary or final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStage {
    /// A `1yz` reply. Another reply to the same command follows.
    Preliminary,
    /// The final reply to the command.
    Final,
}

/// Returns the gateway's own reply to a command that must never reach a server. Returns `None` if
/// the server may receive the command.
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

/// Whether the command selects a transfer mode in which transfers do not end with their data
/// connection. In block mode and compressed mode, a marker in the data shows the end of a transfer
/// (RFC 959 section 3.4). The gateways wait for the end of the connection instead.
fn keeps_data_open(command: &Command<'_>) -> bool {
    let mode = command.argument().trim_ascii().first();
    command.verb() == "MODE" && matches!(mode, Some(b'B' | b'b' | b'C' | b'c'))
}

/// Maximum number of commands that a client may send before their replies arrive. Further commands
/// wait in the client's socket. With a round trip of 200 ms and six commands for each small upload,
/// the limit permits 200 files per second.
pub const PIPELINED_MAX: usize = 256;

/// Maximum number of pipelined commands if one of them is longer than [`LINE_USUAL_BYTES`].
const PIPELINED_LONG_MAX: usize = 64;

/// Maximum length of a usual command, in bytes. A verb and a path are rarely longer.
const LINE_USUAL_BYTES: usize = COMMAND_MAX / 4;

/// Maximum total size of the pipelined commands, in bytes. The near gateway never exceeds this
/// limit: it pipelines at most 64 long commands, or 255 usual commands and a long one.
const PIPELINED_BYTES_MAX: usize = (PIPELINED_LONG_MAX + 1) * COMMAND_MAX;
