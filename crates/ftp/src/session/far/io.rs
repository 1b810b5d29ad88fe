//! What goes into the far half of a session, and what comes out.

use std::{net::SocketAddr, time::Duration};

use super::protection::ServerTls;
use crate::{
    session::{
        CommandId, Mode, PIPELINED_MAX, ToFar, ToNear, TransferId,
        data::far::{Event, Order},
    },
    spool::SpoolRequest,
};

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// A message of the near half has come.
    Received(ToFar),
    /// The handshake with the server is complete.
    TlsBegun,
    /// The server can be told to connect here; `None`: no listener could be opened.
    Listening(Option<SocketAddr>),
    /// The answer to [`Output::Spool`], as a line.
    Spooled(&'a str),
    /// The client closed its control connection in an orderly way.
    ClientGone,
    /// The server sent a line.
    ServerLine(&'a [u8]),
    /// The server closed its control connection, or it broke.
    ServerClosed,
    /// Something happened on the server's data connection.
    Data(TransferId, Event),
    /// The time of [`FarSession::wait`](super::FarSession::wait) is over.
    WaitedInVain,
    /// The control connection that [`Output::Reconnect`] asks for stands, with TLS where that is implicit.
    Reconnected,
    /// The server has said nothing for [`SERVER_PATIENCE`](super::SERVER_PATIENCE) and is the only
    /// one that the session waits for, see [`FarSession`](super::FarSession::waits_only_for_server).
    ServerSilent,
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
    /// Send this message to the near half.
    Send(ToNear),
    /// Listen for the server's data connection, on the address of the control connection's own end, and
    /// say where.
    Listen(TransferId),
    /// Connect to this port of the control connection's peer, at once.
    Connect {
        /// Number of the data connection.
        transfer: TransferId,
        /// The port that the server announced.
        port: u16,
    },
    /// Attach a spool to the next data connection, and say what the client is answered.
    Spool(SpoolRequest),
    /// From now on the client waits so long for the reply to an upload once it has sent the last byte.
    Wait(Duration),
    /// Begin TLS with the server; what it has sent already is not TLS, and ends the session.
    BeginTls,
    /// An order for a data connection.
    Order(TransferId, Order),
    /// Close the server's control connection. The session goes on with [`Output::Reconnect`].
    Leave,
    /// Connect to the server again.
    Reconnect,
    /// Remember this of the server, for [`Manner::known`] of later sessions.
    Learned(Lesson),
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

/// How the server is dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// The control connection goes to an IPv6 address.
    pub server_is_v6: bool,
    /// Which of the two sides opens data connections.
    pub data: DataWay,
    /// What may be asked ahead of the client.
    pub mode: Mode,
    /// TLS with the server; where implicit, it has begun.
    pub tls: ServerTls,
    /// What earlier sessions have learned of the server.
    pub known: ServerTraits,
}

/// What sessions learn of a server that keeps no closer to the standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerTraits {
    /// It leaves questions that are asked ahead unanswered, answers them late, or ends the session at them.
    pub dislikes_questions: bool,
    /// It refuses `PASV` and `EPSV`, and takes `PORT` or `EPRT`.
    pub lacks_passive: bool,
}

/// What a session has learned of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lesson {
    /// [`ServerTraits::dislikes_questions`].
    DislikesQuestions,
    /// [`ServerTraits::lacks_passive`], or no longer.
    LacksPassive(bool),
}

/// What a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Another number is another wait, which begins anew.
    pub number: u64,
    /// Longest time without a word of the server.
    pub time: Duration,
    /// Bytes that move on a data connection of the session let it begin anew, too.
    pub counts_data: bool,
}

/// Which side opens the server's data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataWay {
    /// The gateway: `PASV`, `EPSV`.
    #[default]
    Passive,
    /// The server: `PORT`, `EPRT`.
    Active,
}

/// The near half broke its own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {PIPELINED_MAX} commands ahead of their replies")]
pub struct TooManyCommands;
