//! The two halves of a session: [`near`] beside the client, [`far`] beside the server.
//!
//! The far half sends the server one command at a time (what may overtake a transfer excepted) and
//! tags each reply line with the command and the transfer that it answers. The near half relays
//! the lines, inserts the gateway's own replies in their order, and holds the final reply of a
//! transfer until its data has been delivered.

pub mod far;
pub mod near;

use crate::command::{Command, Kind};

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
}

/// Where in the answer to a command a reply stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A `1yz` reply: more follows.
    Preliminary,
    /// The answer to the command.
    Final,
}

/// The gateway's own answer to a command that it does not offer, if it is one.
fn refusal(command: &Command<'_>, epsv_only: bool) -> Option<&'static str> {
    match command.kind() {
        Kind::OtherData if epsv_only => Some("501 gateway: only EPSV is allowed after EPSV ALL"),
        Kind::OtherData => Some("502 gateway: active mode is not offered here, use PASV or EPSV"),
        Kind::Protection => Some("502 gateway: TLS is not offered here"),
        _ => None,
    }
}

/// Most commands that a client may have sent ahead of their replies; further ones wait in its
/// socket.
pub const PIPELINED_MAX: usize = 64;
