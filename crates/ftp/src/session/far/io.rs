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

/// Input of the far gateway's half of a session.
#[derive(Debug)]
pub enum FarInput<'a> {
    /// The near gateway has sent a message.
    Received(MessageToFar),
    /// The TLS handshake with the server is complete.
    TlsBegun,
    /// Address of the listening socket for the server's data connection. `None` if the socket could
    /// not be opened.
    Listening(Option<SocketAddr>),
    /// Answer to [`FarOutput::Spool`]: the reply line for the client.
    Spooled(&'a str),
    /// The client closed its control connection without an error.
    ClientGone,
    /// The server sent a line on the control connection.
    ServerLine(&'a [u8]),
    /// The server closed its control connection, or the connection broke.
    ServerClosed,
    /// An event occurred on the server's data connection.
    Data(TransferId, FarDataEvent),
    /// The time limit that [`FarSession::wait`](super::FarSession::wait) returned has expired.
    WaitTimedOut,
    /// The control connection that [`FarOutput::Reconnect`] requested is open. With implicit TLS,
    /// the handshake is complete.
    Reconnected,
    /// The server has sent nothing for [`SERVER_TIMEOUT`](super::SERVER_TIMEOUT), and the session
    /// waits only for the server. See
    /// [`FarSession::waits_only_for_server`](super::FarSession::waits_only_for_server).
    ServerSilent,
}

/// An action for the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum FarOutput {
    /// Send this line to the server in a single write.
    ToServer {
        /// The line without its terminator.
        line: Vec<u8>,
        /// Whether to send a Telnet interrupt and Synch before the line.
        synch: bool,
    },
    /// Send this message to the near gateway.
    Send(MessageToNear),
    /// Listen for the server's data connection, and report the listening address. The socket uses
    /// the local address of the control connection.
    Listen(TransferId),
    /// Connect immediately to this port of the server.
    Connect {
        /// Number of the data connection.
        transfer: TransferId,
        /// Port that the server announced.
        port: u16,
    },
    /// Attach a spool (a file for one upload to several servers) to the next data connection.
    /// Return the reply for the client.
    Spool(SpoolRequest),
    /// The client has announced its timeout for the reply to an upload. The timeout starts after
    /// the last byte of the upload.
    Wait(Duration),
    /// Start TLS with the server. If the server has already sent unread bytes, those bytes are not
    /// TLS, and the session must end.
    BeginTls,
    /// Pass this order to a data connection.
    Order(TransferId, FarDataOrder),
    /// Close the server's control connection. The session continues: [`FarOutput::Reconnect`]
    /// follows.
    Leave,
    /// Open a new control connection to the server.
    Reconnect,
    /// Store this trait of the server. Later sessions receive it in [`FarSetup::known`].
    Learned(LearnedTrait),
    /// Close the server's control connection. The session has ended, and no output follows.
    Close,
}

/// First action of a session.
#[derive(Debug)]
pub enum SessionOpening {
    /// Relay the server's greeting to the client.
    RelayGreeting,
    /// Drop the server's greeting, and then send this command. The client already has a greeting
    /// from the near gateway.
    ConsumeGreeting {
        /// Number of the command.
        id: CommandId,
        /// The line `USER name`, without terminator.
        line: Vec<u8>,
    },
}

/// Properties of a session with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarSetup {
    /// Whether the control connection uses IPv6.
    pub server_is_v6: bool,
    /// Host that opens data connections: the gateway or the server.
    pub data: DataOpener,
    /// Session mode: fast or strict. In fast mode, the gateway may send commands before the client
    /// requests them.
    pub mode: SessionMode,
    /// TLS mode of the control connection to the server. With implicit TLS, the caller has already
    /// completed the handshake.
    pub tls: ServerTlsMode,
    /// Traits that earlier sessions have detected at the server.
    pub known: ServerTraits,
}

/// Deviations of a server from the standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerTraits {
    /// Whether the server mishandles prefetched commands: it never replies, replies late, or ends
    /// the session. The gateway sends a prefetched command before any client requests it.
    pub dislikes_questions: bool,
    /// Whether the server refuses `PASV` and `EPSV` but accepts `PORT` or `EPRT`.
    pub lacks_passive: bool,
}

/// A trait that a session has detected at its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LearnedTrait {
    /// The server has the trait [`ServerTraits::dislikes_questions`].
    DislikesQuestions,
    /// New value of the trait [`ServerTraits::lacks_passive`].
    LacksPassive(bool),
}

/// Time limit of a session's wait for its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerWait {
    /// Number that identifies the wait. When the number changes, the time limit starts again.
    pub number: u64,
    /// Maximum time without a reply line from the server.
    pub time: Duration,
    /// Whether bytes on a data connection of the session also restart the time limit.
    pub counts_data: bool,
}

/// Host that opens the server's data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataOpener {
    /// The gateway connects, after `PASV` or `EPSV`.
    #[default]
    Passive,
    /// The server connects, after `PORT` or `EPRT`.
    Active,
}

/// Error: the near gateway sent more commands than the limit permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {PIPELINED_MAX} commands ahead of their replies")]
pub struct TooManyCommands;
