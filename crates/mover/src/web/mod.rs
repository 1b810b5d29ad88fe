//! Files of web servers, which are fetched by HTTP/1.1 over TLS. Nothing is listed, and nothing is written.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the sockets of sessions with web servers"
)]

mod body;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod session;

use std::time::Duration;

use net::tls::Verify;

pub(crate) use self::{body::Body, session::WebSession};
use crate::{location::Server, server::Password};

/// A web server, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebDial {
    /// The server.
    pub server: Server,
    /// The account, where one is known.
    pub account: Option<(String, Password)>,
    /// How the certificate is verified.
    pub verify: Verify,
    /// Longest wait for a connection, and for an answer.
    pub patience: Duration,
    /// Longest time in which no byte of a file comes.
    pub stall_max: Duration,
}
