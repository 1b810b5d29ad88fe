//! Errors of servers, and the actions that may remedy them.

use std::{io, path::PathBuf, time::Duration};

use ftp::{
    client::{Reply, ReplyError, UnsendableError},
    reply::ReplyCode,
};
use hyper::StatusCode;
use net::tls::CertificateRejection;

use super::{HostKeyRejection, SftpRefusal};
use crate::{fence::FencedError, retry_action::RetryAction};

/// Error of an operation with a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The host name has no address.
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
        /// Error of the last address that was tried.
        #[source]
        source: io::Error,
    },
    /// The control connection has ended or has become unusable.
    #[error("the connection with {peer} was lost")]
    Lost {
        /// The server, and the gateway through which it is reached.
        peer: String,
        /// The reason. `UnexpectedEof` if the server has closed the connection without an error.
        #[source]
        source: io::Error,
    },
    /// The server did not reply in time.
    #[error("{peer} did not answer {command} within {} s", reply_timeout.as_secs())]
    Silent {
        /// The server, and the gateway through which it is reached.
        peer: String,
        /// The command to which the server did not reply.
        command: &'static str,
        /// Time for which the mover waited.
        reply_timeout: Duration,
    },
    /// The server accepts no further connection, or has ended the connection (reply 421).
    #[error("the server accepts no connection, or ends it: {0}")]
    Full(Reply),
    /// The server requires a password, and no source contains a password for the user.
    #[error(
        "no password for {user} at {host}: not in {}, no --password-file, no LONGHAUL_PASSWORD, and none typed \
         on a terminal; to send an empty password, set LONGHAUL_PASSWORD to an empty text",
        netrc.display()
    )]
    NoPassword {
        /// The user name.
        user: String,
        /// Host name of the server.
        host: String,
        /// Netrc file without a password for the user.
        netrc: PathBuf,
    },
    /// The server refused the log-in.
    #[error("the server refused the log-in: {0}")]
    LogIn(Reply),
    /// The server or the gateway requires TLS for the log-in, and the URL requests none.
    #[error("the server refused the log-in: {0}")]
    TlsRequired(Reply),
    /// A gateway's listener leads to one fixed server, and the log-in named another server.
    #[error("the listener {listener} has a fixed server, which refused the log-in: {reply}")]
    FixedServer {
        /// Address of the listener.
        listener: String,
        /// The server's reply.
        reply: Reply,
    },
    /// The server does not offer the requested TLS.
    #[error("the server offers no TLS: {0}")]
    NoTls(Reply),
    /// The TLS handshake failed.
    #[error("no TLS with {host}")]
    Tls {
        /// The host name that the certificate must contain.
        host: String,
        /// Whether the certificate belongs to a gateway's listener. If false, it belongs to a
        /// server.
        is_of_gateway: bool,
        /// The reason. If the certificate is not accepted, the reason states why.
        #[source]
        source: io::Error,
    },
    /// The server refused a command.
    #[error("the server refused {command}: {reply}")]
    Refused {
        /// The verb of the refused command.
        command: &'static str,
        /// The server's reply.
        reply: Reply,
    },
    /// The data connection could not be established, or it failed.
    #[error("the data connection failed")]
    Data(#[source] io::Error),
    /// The server confirmed an upload before the mover had sent all bytes.
    #[error("the server did not wait for the end of the upload: {0}")]
    TooEarly(Reply),
    /// The server did not end TLS correctly after a listing. An attacker on the path may have
    /// shortened the listing.
    #[error("the listing was cut: TLS was not ended by the server")]
    Cut,
    /// A listing lacks the entry of the directory itself. The server should list this entry.
    #[error("the server lists nothing, not even the directory itself: it may not be readable")]
    Unlisted,
    /// The size that the server reports differs from the number of bytes sent.
    #[error("the server has {} bytes of {expected}", got.map_or("an unknown number of".to_owned(), |it| it.to_string()))]
    Short {
        /// Size at the server in bytes. `None` if the server did not report this size, although the
        /// server reports the sizes of other files.
        got: Option<u64>,
        /// Number of bytes sent.
        expected: u64,
    },
    /// The server sent more bytes of a file than its listing stated.
    #[error("the server sends more than the {0} bytes that it has listed")]
    Endless(u64),
    /// The gateway did not connect to the port that this machine announced.
    #[error("the gateway did not connect to this machine")]
    Unreached,
    /// The transfer made no progress for the stated duration.
    #[error("no data moved for {} s", .0.as_secs())]
    Stalled(Duration),
    /// Another process has taken over the work.
    #[error(transparent)]
    Fenced(#[from] FencedError),
    /// A web server refused the request.
    #[error("the server answered {0}")]
    Http(StatusCode),
    /// The connection to a web server failed.
    #[error("the exchange with the server {host} broke")]
    Exchange {
        /// Host name of the server.
        host: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A web server redirects in a loop, or to a location that the mover does not support.
    #[error("the server leads to {0:?}, which the mover does not fetch from")]
    Led(String),
    /// A web server can send a file only from its beginning.
    #[error("the server does not start in the middle of a file")]
    NoRange,
    /// The operation would write to a web server or list its files. Web servers can only be
    /// sources.
    #[error("nothing can be written to a web server, or listed there")]
    SourceAlone,
    /// The bytes from the server are not a valid FTP reply.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// A name contains bytes that an FTP command cannot contain.
    #[error(transparent)]
    Unsendable(#[from] UnsendableError),
    /// The reply to a passive command contains no port.
    #[error("the server named no data port: {0}")]
    NoPort(Reply),
    /// The TLS settings are not valid.
    #[error("{0}")]
    TlsSettings(String),
    /// The host key of an SSH server is not trusted. No credential has left this machine.
    #[error(transparent)]
    HostKey(#[from] HostKeyRejection),
    /// The SSH connection could not be established.
    #[error("no SSH connection with {peer}")]
    Ssh {
        /// The server, and the gateway through which it is reached.
        peer: String,
        /// The reason. `InvalidData` if the two sides have no common algorithm.
        #[source]
        source: io::Error,
    },
    /// An SSH server refused the log-in.
    #[error("{peer} refused the log-in of {user}: {reason}")]
    SshLogIn {
        /// The server, and the gateway through which it is reached.
        peer: String,
        /// The user name.
        user: String,
        /// The attempts and their results.
        reason: String,
        /// Whether the password is missing for a server that accepts passwords.
        wants_password: bool,
    },
    /// An SSH server accepted the log-in, but offers no SFTP.
    #[error("{peer} does not start SFTP: {reason}")]
    NoSftp {
        /// The server, and the gateway through which it is reached.
        peer: String,
        /// Texts that the server sent.
        reason: String,
    },
    /// An SFTP server refused a request.
    #[error("the server refused {0}")]
    SftpRefused(SftpRefusal),
}

impl ServerError {
    /// Returns a hint for the user, or `None` if this error has no hint.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Resolve { .. } => {
                "is the name right? Those of FTP servers behind --gateway and --peer are looked up by the far gateway"
            }
            Self::Connect { .. } => "is it up, and the port right?",
            Self::TlsRequired(_) => "write ftpes:// in place of ftp:// in the URL",
            Self::LogIn(reply) | Self::FixedServer { reply, .. }
                if is_server_fault(reply) && !requires_tls(reply) =>
            {
                "the fault is in the server, and not in user or password: look at the server's configuration and log"
            }
            Self::LogIn(reply) if is_forbidden_server(reply) => {
                return forbidden_server_hint(reply);
            }
            Self::LogIn(reply) if !reply.is_temporary() && !requires_tls(reply) => {
                "is the user in the URL right, and the password in ~/.netrc, LONGHAUL_PASSWORD or --password-file?"
            }
            Self::FixedServer { .. } => {
                "check user and password; then the URL must name that server as target of the listener does. For \
                 other servers add [[ftp]] with listen and clients, without target, to the gateway's file, and reload"
            }
            Self::Http(StatusCode::UNAUTHORIZED) => {
                "is the user in the URL right, and the password in ~/.netrc, LONGHAUL_PASSWORD or --password-file?"
            }
            Self::NoTls(_) => "ftp:// goes without TLS, ftps:// has it from the first byte",
            Self::Tls {
                source,
                is_of_gateway,
                ..
            } if is_for_other_name(source) => match is_of_gateway {
                true => {
                    "write a name of the certificate into --gateway; otherwise --tls-pin accepts one certificate, \
                     --tls-insecure any"
                }
                false => {
                    "write a name of the certificate into the URL; otherwise --tls-pin accepts one certificate, \
                     --tls-insecure any"
                }
            },
            Self::Tls { source, .. } if source.kind() == io::ErrorKind::InvalidData => {
                "--tls-pin accepts one certificate, --tls-insecure any"
            }
            Self::Refused {
                command: "RNFR",
                reply,
            } if may_forbid_renames(reply) => {
                "perhaps the account may not rename: permit RNFR and RNTO at the server, or use --inplace. The part \
                 file stays, and copy --clean removes it"
            }
            Self::SshLogIn {
                wants_password: true,
                ..
            } => {
                "is the user in the URL right? Put a key into ~/.ssh or the agent (ssh-add), or the password into \
                 ~/.netrc, LONGHAUL_PASSWORD or --password-file"
            }
            Self::SshLogIn { .. } => {
                "is the user in the URL right, and the password in ~/.netrc, LONGHAUL_PASSWORD or --password-file? \
                 For a log-in by a key, authorized_keys at the server must contain the key"
            }
            Self::NoSftp { .. } => "does sshd_config of the server have Subsystem sftp?",
            Self::Full(reply) if reply.to_string().contains("does not answer") => {
                "is the far gateway up, are its key and address right, and does it have ours among its peers?"
            }
            _ => return None,
        })
    }

    /// Returns whether the server has refused the log-in.
    pub(crate) fn is_of_log_in(&self) -> bool {
        matches!(
            self,
            Self::LogIn(_)
                | Self::TlsRequired(_)
                | Self::FixedServer { .. }
                | Self::SshLogIn { .. }
        )
    }

    /// Returns whether the server has refused a single command or request. The session stays
    /// usable.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::SftpRefused(_))
    }

    /// Returns whether a server refuses to start in the middle of a file.
    pub(crate) fn is_of_ranges(&self) -> bool {
        match self {
            Self::NoRange => true,
            Self::Refused { command, reply } => *command == "REST" && !reply.is_temporary(),
            _ => false,
        }
    }

    /// Returns the action that may remedy this failure.
    pub fn retry_action(&self) -> RetryAction {
        match self {
            Self::Full(_) => RetryAction::FewerConnections,
            Self::LogIn(reply) if reply.is_temporary() => RetryAction::Reconnect,
            Self::LogIn(reply) | Self::TlsRequired(reply) | Self::FixedServer { reply, .. }
                if reply.code() == NOT_LOGGED_IN =>
            {
                RetryAction::LogInAgain
            }
            // A fault of the network path causes a reset or a timeout during the handshake. A fault
            // of the certificate causes `InvalidData`.
            Self::Tls { source, .. }
                if !matches!(
                    source.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
                ) =>
            {
                RetryAction::Reconnect
            }
            Self::Ssh { source, .. } if source.kind() != io::ErrorKind::InvalidData => {
                RetryAction::Reconnect
            }
            Self::SshLogIn { .. } => RetryAction::LogInAgain,
            Self::SftpRefused(refusal) => refusal.retry_action(),
            Self::HostKey(_)
            | Self::Ssh { .. }
            | Self::NoSftp { .. }
            | Self::LogIn(_)
            | Self::TlsRequired(_)
            | Self::NoPassword { .. }
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
            // Codes 425 and 426 concern the data connection. Codes 450, 451 and 452 report a
            // temporary problem with the file.
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

/// Returns whether the server may have refused `RNFR` because the user has no permission to rename.
/// Another possible cause is that the file does not exist.
fn may_forbid_renames(reply: &Reply) -> bool {
    let text = reply.to_string().to_ascii_lowercase();
    let is_absent = ["no such file", "not found"]
        .iter()
        .any(|it| text.contains(it));
    COMMAND_REFUSED.contains(&reply.code()) && !is_absent
}

/// Returns whether a server refuses a log-in because the connection has no TLS. The function
/// searches for texts of Longhaul's gateway, vsftpd and `ProFTPD`.
pub(super) fn requires_tls(reply: &Reply) -> bool {
    let text = reply.to_string().to_ascii_lowercase();
    let words = ["tls is required", "must use encryption", "tls required"];
    !reply.is_temporary() && words.iter().any(|it| text.contains(it))
}

/// Returns whether a reply to a log-in shows a fault of the server. Codes of the group x0z do not
/// concern the account (RFC 959, section 4.2.1). For example, vsftpd sends code 500 if it refuses
/// to serve a writable root directory.
fn is_server_fault(reply: &Reply) -> bool {
    (500..=504).contains(&reply.code().0)
}

/// Returns whether a gateway refuses the server that the log-in names.
pub(super) fn is_forbidden_server(reply: &Reply) -> bool {
    let text = reply.to_string();
    text.starts_with("530 gateway: ") && text.contains(" is not allowed")
}

/// Returns a hint that names the user's next step after a gateway has refused the server. The near
/// gateway adds the name of the peer to a refusal of the far gateway.
fn forbidden_server_hint(reply: &Reply) -> Option<&'static str> {
    let text = reply.to_string();
    if text.contains("(reported by peer ") {
        Some(
            "add this server to allow in [far] of the far gateway's file, and run longhaul reload there",
        )
    } else if text.contains(" is not allowed at this listener") {
        Some("add this server to allow of the gateway's listener, and run longhaul reload there")
    } else {
        None
    }
}

/// Returns whether a certificate was rejected only because it is for other names.
fn is_for_other_name(source: &io::Error) -> bool {
    let rejection = source.get_ref().and_then(|it| it.downcast_ref());
    matches!(
        rejection,
        Some(CertificateRejection::Name {
            has_names: true,
            ..
        })
    )
}

/// Returns whether a gateway, and not a server behind it, requires TLS for the log-in.
pub(super) fn is_gateways_tls_refusal(reply: &Reply) -> bool {
    reply
        .to_string()
        .starts_with("530 gateway: TLS is required here")
}

const NOT_LOGGED_IN: ReplyCode = ReplyCode(530);

/// Codes by which a server refuses a command: not permitted, unknown, and not implemented.
const COMMAND_REFUSED: [ReplyCode; 3] = [ReplyCode(550), ReplyCode(500), ReplyCode(502)];
