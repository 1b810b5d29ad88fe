//! TLS on the legs of FTP, and with browsers of the dashboard.
//!
//! The gateway presents its certificate to clients, and verifies the certificates of servers. In: a
//! connection. Out: a [`Leg`], which is read and written like the connection itself. It
//! distinguishes the two ends of TLS. The session decides when TLS begins, and handles its end. The
//! link has its own TLS: `link::handshake`.

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

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionKind {
    /// Commands and replies. Data connections resume its TLS session.
    Control,
    /// One transfer.
    Data,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn timeout_error() -> io::Error {
    let message = format!("no TLS handshake within {} s", HANDSHAKE_TIMEOUT.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// Timeout of a handshake: a dozen round trips of a bad path and a busy peer. FileZilla and curl
/// wait longer for a connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
