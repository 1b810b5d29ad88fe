//! What a front door asks of its clients' TLS.

use rustls::pki_types::CertificateDer;

/// The rules of a front door with TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Clients without TLS get no further than `AUTH TLS`, and no data moves in clear.
    pub is_required: bool,
    /// The lowest version of TLS.
    pub version_min: Version,
    /// By what clients' certificates are verified, without which no client is let in; `None`: none is asked for.
    pub client_roots: Option<Vec<CertificateDer<'static>>>,
    /// Data connections must resume the TLS session of their control connection.
    pub must_resume: bool,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            is_required: false,
            version_min: Version::Tls12,
            client_roots: None,
            must_resume: true,
        }
    }
}
