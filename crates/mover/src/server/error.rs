//! Errors of a server, and their remedies.

use std::{io, time::Duration};

use ftp::{
    client::{Reply, ReplyError, UnsendableError},
    reply::ReplyCode,
};
use hyper::StatusCode;

use crate::{fence::FencedError, retry_action::RetryAction};

/// Error of an operation with a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The host has no address.
    #[error("{host} has no address")]
    Resolve {
        /// The host name.
        host: String,
        /// The resolver's error.
        #[source]
        source: io::Error,
    },
    /// No connection could be established.
    #[error("cannot connect to {host}, port {port}")]
    Connect {
        /// The host name.
        host: String,
        /// The port.
        port: u16,
        /// Error at the last address tried.
        #[source]
        source: io::Error,
    },
    /// The control connection has ended, or is unusable.
    #[error("the connection with {peer} was lost")]
    Lost {
        /// The server, and the gateway in front of it.
        peer: String,
        /// The reason. `UnexpectedEof` if the server just closed the connection.
        #[source]
        source: io::Error,
    },
    /// A reply is missing.
    #[error("{peer} did not answer {command} within {} s", reply_timeout.as_secs())]
    Silent {
        /// The server, and the gateway in front of it.
        peer: String,
        /// The command without a reply.
        command: &'static str,
        /// Duration of the wait.
        reply_timeout: Duration,
    },
    /// The server is full, or ends the connection (`421`).
    #[error("the server accepts no connection, or ends it: {0}")]
    Full(Reply),
    /// The account or its password is wrong.
    #[error("the server refused the log-in: {0}")]
    LogIn(Reply),
    /// A gateway's listener leads to one server, and the log-in named another one.
    #[error("the listener {listener} has a fixed server, which refused the log-in: {reply}")]
    FixedServer {
        /// The listener.
        listener: String,
        /// The server's reply.
        reply: Reply,
    },
    /// The server does not offer the requested TLS.
    #[error("the server offers no TLS: {0}")]
    NoTls(Reply),
    /// TLS failed.
    #[error("no TLS with {host}")]
    Tls {
        /// The name that the certificate must have.
        host: String,
        /// The reason, which names the fault of the certificate if there is one.
        #[source]
        source: io::Error,
    },
    /// A command was refused.
    #[error("the server refused {command}: {reply}")]
    Refused {
        /// The verb.
        command: &'static str,
        /// The server's reply.
        reply: Reply,
    },
    /// No data connection was established, or it broke.
    #[error("the data connection failed")]
    Data(#[source] io::Error),
    /// The server confirmed an upload before all of it was sent.
    #[error("the server did not wait for the end of the upload: {0}")]
    TooEarly(Reply),
    /// The server did not end TLS after a listing, so an attacker on the path may have cut it.
    #[error("the listing was cut: TLS was not ended by the server")]
    Cut,
    /// A listing lacks the directory itself, which it should contain.
    #[error("the server lists nothing, not even the directory itself: it may not be readable")]
    Unlisted,
    /// The size at the server differs from the bytes sent.
    #[error("the server has {} bytes of {expected}", got.map_or("an unknown number of".to_owned(), |it| it.to_string()))]
    Short {
        /// Size at the server. `None` if the server did not report it, although it did for other
        /// files.
        got: Option<u64>,
        /// Bytes sent.
        expected: u64,
    },
    /// A file has more bytes than the server has listed.
    #[error("the server sends more than the {0} bytes that it has listed")]
    Endless(u64),
    /// The gateway did not connect to the announced port of this machine.
    #[error("the gateway did not connect to this machine")]
    Unreached,
    /// No byte moved for a long time.
    #[error("no data moved for {} s", .0.as_secs())]
    Stalled(Duration),
    /// Another process has taken the work over.
    #[error(transparent)]
    Fenced(#[from] FencedError),
    /// A web server refuses the request.
    #[error("the server answered {0}")]
    Http(StatusCode),
    /// The connection to a web server failed.
    #[error("the exchange with the server {host} broke")]
    Exchange {
        /// The server.
        host: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A web server redirects in circles, or to an unsupported location.
    #[error("the server leads to {0:?}, which the mover does not fetch from")]
    Led(String),
    /// A web server sends a file only from its beginning.
    #[error("the server does not start in the middle of a file")]
    NoRange,
    /// Web servers are only sources.
    #[error("nothing can be written to a web server, or listed there")]
    SourceAlone,
    /// The server's reply is no FTP.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// A name cannot be sent.
    #[error(transparent)]
    Unsendable(#[from] UnsendableError),
    /// The answer to a passive command names no port.
    #[error("the server named no data port: {0}")]
    NoPort(Reply),
    /// The TLS settings are wrong.
    #[error("{0}")]
    TlsSettings(String),
}

impl ServerError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Resolve { .. } => {
                "is the name right? Those of FTP servers behind --gateway and --peer are looked up by the far gateway"
            }
            Self::Connect { .. } => "is it up, and the port right?",
            Self::LogIn(reply) if !reply.is_temporary() => {
                "is the user in the URL right, and the password in ~/.netrc, LONGHAUL_PASSWORD or --password-file?"
            }
            Self::FixedServer { .. } => {
                "the URL must name that server as target of the listener does; then check user and password. For \
                 other servers add [[ftp]] with listen and clients, without target, to the gateway's file, and reload"
            }
            Self::Http(StatusCode::UNAUTHORIZED) => {
                "is the user in the URL right, and the password in ~/.netrc, LONGHAUL_PASSWORD or --password-file?"
            }
            Self::NoTls(_) => "ftp:// goes without TLS, ftps:// has it from the first byte",
            Self::Tls { source, .. } if source.kind() == io::ErrorKind::InvalidData => {
                "--tls-pin accepts one certificate, --tls-insecure any"
            }
            Self::Full(reply) if reply.to_string().contains("does not answer") => {
                "is the far gateway up, are its key and address right, and does it have ours among its peers?"
            }
            _ => return None,
        })
    }

    /// Whether the server has refused the log-in.
    pub(crate) fn is_of_log_in(&self) -> bool {
        matches!(self, Self::LogIn(_) | Self::FixedServer { .. })
    }

    /// Whether a server refuses to begin within a file.
    pub(crate) fn is_of_ranges(&self) -> bool {
        match self {
            Self::NoRange => true,
            Self::Refused { command, reply } => *command == "REST" && !reply.is_temporary(),
            _ => false,
        }
    }

    /// Returns the action after this failure.
    pub fn retry_action(&self) -> RetryAction {
        match self {
            Self::Full(_) => RetryAction::FewerConnections,
            Self::LogIn(reply) if reply.is_temporary() => RetryAction::Reconnect,
            Self::LogIn(reply) | Self::FixedServer { reply, .. }
                if reply.code() == NOT_LOGGED_IN =>
            {
                RetryAction::LogInAgain
            }
            // A reset or a timeout during the handshake is the path's fault. `InvalidData` is a
            // fault of the certificate.
            Self::Tls { source, .. }
                if !matches!(
                    source.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
                ) =>
            {
                RetryAction::Reconnect
            }
            Self::LogIn(_)
            | Self::FixedServer { .. }
            | Self::NoTls(_)
            | Self::Tls { .. }
            | Self::TlsSettings(_)
            | Self::Reply(_) => RetryAction::GiveUpServer,
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Lost { .. }
            | Self::Silent { .. }
            | Self::Stalled(_)
            | Self::Data(_)
            | Self::Exchange { .. }
            | Self::TooEarly(_)
            | Self::Cut
            | Self::NoPort(_) => RetryAction::Reconnect,
            // Codes 425 and 426 concern the data connection. 450, 451 and 452 concern the file at
            // present.
            Self::Refused { reply, .. } if reply.is_temporary() => RetryAction::Retry,
            Self::Short { .. } | Self::Endless(_) | Self::Unreached => RetryAction::Retry,
            Self::Http(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
                RetryAction::FewerTransfers
            }
            Self::Http(status) if status.is_server_error() => RetryAction::Retry,
            Self::Http(StatusCode::REQUEST_TIMEOUT) => RetryAction::Retry,
            Self::Http(_) | Self::Led(_) | Self::NoRange | Self::SourceAlone | Self::Fenced(_) => {
                RetryAction::GiveUpFile
            }
            // Code 530 during a session means that the log-in was lost.
            Self::Refused { reply, .. } if reply.code() == NOT_LOGGED_IN => RetryAction::Reconnect,
            Self::Refused { .. } | Self::Unlisted | Self::Unsendable(_) => RetryAction::GiveUpFile,
        }
    }
}

const NOT_LOGGED_IN: ReplyCode = ReplyCode(530);
