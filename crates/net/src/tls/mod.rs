//! TLS with FTP clients and servers, and with browsers that open the dashboard.
//!
//! The gateway presents its certificate to clients, and verifies the certificates of servers. A
//! handshake turns a connection into a [`Leg`], which is read and written like the connection
//! itself. A leg distinguishes the two ways in which TLS ends. The FTP session starts TLS, and
//! handles its end. The link has its own TLS in `link::handshake`.

mod acceptor;
mod certificate;
mod certificate_rejection;
mod connector;
mod current_certificate;
mod fingerprint;
mod hello;
mod https;
mod leg;
mod roots;
mod self_signed;
mod server_tls;
mod session_tickets;
mod sessions;
mod short_chain;
mod tcp;
mod tls_rules;
mod verifier;

use std::{io, sync::Arc, time::Duration};

use rustls::crypto::{CryptoProvider, aws_lc_rs};

pub use acceptor::{Acceptor, AcceptorError};
pub use certificate::{CertError, CertSource};
pub use certificate_rejection::CertificateRejection;
pub use connector::Connector;
pub use fingerprint::{Fingerprint, FingerprintError};
pub use https::{HttpsAcceptor, judge};
pub use leg::{Leg, LegReader, LegWriter};
pub use roots::RootsError;
pub use roots::{read_cas, read_roots};
pub use server_tls::{CertificateCheck, ENCODED_MAX, ServerTls, TlsStart};
pub use tls_rules::{TlsRules, TlsVersion};

/// Purpose of an FTP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionKind {
    /// Control connection. Data connections resume its TLS session.
    Control,
    /// Data connection, for one transfer.
    Data,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn timeout_error() -> io::Error {
    let message = format!("no TLS handshake within {} s", HANDSHAKE_TIMEOUT.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// Timeout of a handshake. It permits a dozen round trips to a busy peer on a bad path. FileZilla
/// and curl wait longer for a connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
