//! Download of files from web servers by HTTP/1.1 over TLS. The mover neither lists directories of
//! web servers nor writes to web servers.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the sockets of sessions with web servers"
)]

mod body;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod session;

use std::{path::PathBuf, time::Duration};

use net::tls::CertificateCheck;

pub(crate) use self::{body::Body, session::WebSession};
use crate::{location::Server, server::Password};

/// Parameters for access to a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebDial {
    /// The server.
    pub server: Server,
    /// User name and password, if known. A user without a password suffices for a server that
    /// requests no account.
    pub account: Option<(String, Option<Password>)>,
    /// Netrc file that was searched for the password. Only an error message contains the path.
    pub netrc: PathBuf,
    /// Check of the server's certificate.
    pub verify: CertificateCheck,
    /// Longest time to wait for a connection or for a response.
    pub reply_timeout: Duration,
    /// Longest time for which a download may make no progress.
    pub stall_max: Duration,
}
