//! Files of web servers, fetched by HTTP/1.1 over TLS. Web servers are neither listed nor written
//! to.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the sockets of sessions with web servers"
)]

mod body;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod session;

use std::time::Duration;

use net::tls::CertificateCheck;

pub(crate) use self::{body::Body, session::WebSession};
use crate::{location::Server, server::Password};

/// Access parameters of a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebDial {
    /// The server.
    pub server: Server,
    /// The account, if one is known.
    pub account: Option<(String, Password)>,
    /// Verification of the certificate.
    pub verify: CertificateCheck,
    /// Longest wait for a connection, and for an answer.
    pub reply_timeout: Duration,
    /// Longest time in which no byte of a file arrives.
    pub stall_max: Duration,
}
