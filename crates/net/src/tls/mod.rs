//! TLS on the legs of FTP: with the gateway's certificate towards clients, with verification
//! towards servers. And TLS with the browsers of the dashboard.
//!
//! A connection goes in and a [`Leg`] comes out. A leg is read and written like the connection
//! itself, and distinguishes the two ends of TLS. The session decides when TLS begins, and what
//! follows from its end. The link has its own TLS: `link::handshake`.

mod acceptor;
mod certificate;
mod connector;
mod current;
mod distrust;
mod fingerprint;
mod hello;
mod https;
mod leg;
mod roots;
mod rules;
mod self_signed;
mod server_tls;
mod session_tickets;
mod sessions;
mod short_chain;
mod tcp;
mod verifier;

use std::{io, sync::Arc, time::Duration};

use rustls::crypto::{CryptoProvider, aws_lc_rs};

pub use acceptor::{Acceptor, AcceptorError};
pub use certificate::{CertError, CertSource};
pub use connector::Connector;
pub use distrust::Distrust;
pub use fingerprint::{Fingerprint, FingerprintError};
pub use https::{HttpsAcceptor, judge};
pub use leg::{Leg, Reader, Writer};
pub use roots::RootsError;
pub use roots::{read as read_roots, read_cas};
pub use rules::{Rules, Version};
pub use server_tls::{ENCODED_MAX, Mode, ServerTls, Verify};

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Commands and replies. Data connections resume its TLS session.
    Control,
    /// One transfer.
    Data,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn too_slow() -> io::Error {
    let message = format!("no TLS handshake within {} s", HANDSHAKE_PATIENCE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// Time for a handshake: a dozen round trips of a bad path and a busy peer, and shorter than
/// FileZilla's and curl's patience with a connection.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(20);
