//! Requirements of a listener for its clients' TLS.

use rustls::pki_types::CertificateDer;

/// The TLS rules of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsRules {
    /// Whether TLS is required. Clients without TLS can then send no command other than `AUTH TLS`,
    /// and all data is encrypted.
    pub is_required: bool,
    /// Lowest TLS version that clients may use.
    pub version_min: TlsVersion,
    /// Roots that verify clients' certificates. A client without a valid certificate is refused.
    /// With `None`, the listener requests no certificate.
    pub client_roots: Option<Vec<CertificateDer<'static>>>,
    /// Whether data connections must resume the TLS session of their control connection.
    pub must_resume: bool,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl Default for TlsRules {
    fn default() -> Self {
        Self {
            is_required: false,
            version_min: TlsVersion::Tls12,
            client_roots: None,
            must_resume: true,
        }
    }
}
