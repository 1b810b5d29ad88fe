//! Inputs and outputs of the far half of a session.

use std::{net::SocketAddr, time::Duration};

use super::protection::ServerTlsMode;
use crate::{
    session::{
        CommandId, MessageToFar, MessageToNear, PIPELINED_MAX, SessionMode, TransferId,
        data::far::{FarDataEvent, FarDataOrder},
    },
    spool::SpoolRequest,
};

/// An input of the far half.
#[derive(Debug)]
pub enum FarInput<'a> {
    /// The near half has sent a message.
    Received(MessageToFar),
    /// The handshake with the server is complete.
    TlsBegun,
    /// A listener for the server is open at this address. `None` if no listener could be opened.
    Listening(Option<SocketAddr>),
    /// The answer to [`FarOutput::Spool`], as a line.
    Spooled(&'a str),
    /// The client closed its control connection in an orderly way.
    ClientGone,
    /// The server sent a line.
    ServerLine(&'a [u8]),
    /// The server closed its control connection, or it broke.
    ServerClosed,
    /// Something happened on the server's data connection.
    Data(TransferId, FarDataEvent),
    /// The timeout of [`FarSession::wait`](super::FarSession::wait) has expired.
    WaitTimedOut,
    /// The control connection for [`FarOutput::Reconnect`] is open, with TLS if that is implicit.
    Reconnected,
    /// The server has been silent for [`SERVER_TIMEOUT`](super::SERVER_TIMEOUT), and the session
    /// waits only for it, see [`FarSession`](super::FarSession::waits_only_for_server).
    ServerSilent,
}

/// An action for the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum FarOutput {
    /// Send this line to the server in one write.
    ToServer {
        /// Without terminator.
        line: Vec<u8>,
        /// Whether to send a Telnet interrupt and Synch before it.
        synch: bool,
    },
    /// Send this message to the near half.
    Send(MessageToNear),
    /// Listen for the server's data connection at the local address of the control connection, and
    /// report the listener's address.
    Listen(TransferId),
    /// Connect to this port of the control connection's peer, at once.
    Connect {
        /// Number of the data connection.
        transfer: TransferId,
        /// The port that the server announced.
        port: u16,
    },
    /// Attach a spool to the next data connection, and return the reply for the client.
    Spool(SpoolRequest),
    /// From now on the client waits for this time for the reply to an upload, after its last byte.
    Wait(Duration),
    /// Start TLS with the server. Bytes that it has sent before are not TLS, and end the session.
    BeginTls,
    /// An order for a data connection.
    Order(TransferId, FarDataOrder),
    /// Close the server's control connection. The session continues with [`FarOutput::Reconnect`].
    Leave,
    /// Connect to the server again.
    Reconnect,
    /// Store this trait of the server, for [`FarSetup::known`] of later sessions.
    Learned(LearnedTrait),
    /// Close the server's control connection. Nothing follows.
    Close,
}

/// Start of a session.
#[derive(Debug)]
pub enum SessionOpening {
    /// Relay the server's greeting.
    RelayGreeting,
    /// Consume the server's greeting, and then send this command. The client has been greeted
    /// already.
    ConsumeGreeting {
        /// Number of the command.
        id: CommandId,
        /// `USER name`, without terminator.
        line: Vec<u8>,
    },
}

/// Properties of a session with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarSetup {
    /// Whether the control connection uses IPv6.
    pub server_is_v6: bool,
    /// Side that opens data connections.
    pub data: DataOpener,
    /// Permission to send commands ahead of the client.
    pub mode: SessionMode,
    /// TLS with the server. Implicit TLS has begun already.
    pub tls: ServerTlsMode,
    /// Traits of the server that earlier sessions have learned.
    pub known: ServerTraits,
}

/// Traits of a server that deviates from the standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerTraits {
    /// Whether the server leaves prefetched commands unanswered, answers them late, or ends the
    /// session after them. The gateway sends prefetched commands before the client does.
    pub dislikes_questions: bool,
    /// Whether the server refuses `PASV` and `EPSV`, and accepts `PORT` or `EPRT`.
    pub lacks_passive: bool,
}

/// A trait that a session has learned about its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LearnedTrait {
    /// [`ServerTraits::dislikes_questions`].
    DislikesQuestions,
    /// [`ServerTraits::lacks_passive`], which now holds or does not hold any more.
    LacksPassive(bool),
}

/// A wait of a session for its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerWait {
    /// Number of the wait. Another number starts another wait.
    pub number: u64,
    /// Longest time without a reply line of the server.
    pub time: Duration,
    /// Whether bytes on a data connection of the session restart the wait, too.
    pub counts_data: bool,
}

/// Side that opens the server's data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataOpener {
    /// The gateway: `PASV`, `EPSV`.
    #[default]
    Passive,
    /// The server: `PORT`, `EPRT`.
    Active,
}

/// Error: the near half exceeded its own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {PIPELINED_MAX} commands ahead of their replies")]
pub struct TooManyCommands;
