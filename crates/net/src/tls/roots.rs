//! Root certificates that verify the certificates of servers and clients.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use rustls::{
    RootCertStore,
    pki_types::CertificateDer,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{
    certificate::{self, CertError},
    provider,
    short_chain::ShortChains,
};

/// Reason why root certificates are unusable.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RootsError {
    /// No root certificates exist.
    #[error("there are no root certificates to verify the server by")]
    None,
    /// The system's root certificates cannot be read.
    #[error("the system's root certificates cannot be read: {0}")]
    System(String),
    /// A given certificate cannot serve as a root.
    #[error("a root certificate cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// Reads the root certificates in a PEM file. The file must contain at least one certificate, and
/// all must be usable.
///
/// # Errors
/// [`CertError`] names the unusable file.
pub fn read_roots(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertError> {
    let roots = certificate::read_certificates(path)?;
    match build_root_store(&roots) {
        Ok(_) => Ok(roots),
        Err(error) => Err(CertError::NotACertificate {
            path: path.to_owned(),
            why: error.to_string(),
        }),
    }
}

/// Reads a PEM file with the root certificates that verify clients. Each certificate must belong to
/// a CA.
///
/// The owner of a root that is not a CA certificate could sign certificates for other people. The
/// owner could not log in with the root itself.
///
/// # Errors
/// [`CertError`] names the unusable file.
pub fn read_cas(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertError> {
    let roots = read_roots(path)?;
    for (number, root) in (1..).zip(&roots) {
        let is_ca = x509_parser::parse_x509_certificate(root)
            .is_ok_and(|(_, certificate)| certificate.is_ca());
        if !is_ca {
            return Err(CertError::NotACertificate {
                path: path.to_owned(),
                why: format!("certificate {number} is not that of a CA (basicConstraints CA:TRUE)"),
            });
        }
    }
    Ok(roots)
}

/// Builds the TLS library's store of roots from certificates.
pub(super) fn build_root_store(
    given: &[CertificateDer<'static>],
) -> Result<RootCertStore, RootsError> {
    let mut store = RootCertStore::empty();
    for root in given {
        store.add(root.clone()).map_err(RootsError::Unusable)?;
    }
    Ok(store)
}

/// Creates a verifier of clients' certificates with these roots. It refuses clients without a
/// certificate.
pub(super) fn client_verifier(
    given: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, RootsError> {
    let verifier = webpki_client_verifier(given)?;
    let asks_only = false;
    Ok(Arc::new(ShortChains {
        verifier,
        asks_only,
    }))
}

/// Creates a verifier that requests a certificate issued by one of these roots. It accepts any
/// certificate, and also clients without a certificate.
pub(super) fn optional_client_verifier(
    given: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, RootsError> {
    let verifier = webpki_client_verifier(given)?;
    let asks_only = true;
    Ok(Arc::new(ShortChains {
        verifier,
        asks_only,
    }))
}

fn webpki_client_verifier(
    given: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, RootsError> {
    let store = Arc::new(build_root_store(given)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(store, provider());
    verifier.build().map_err(|_| RootsError::None)
}

/// Returns the system's root certificates. They are read from files only once.
pub(super) fn system_roots() -> Result<Arc<RootCertStore>, RootsError> {
    static READ: OnceLock<Result<Arc<RootCertStore>, RootsError>> = OnceLock::new();
    READ.get_or_init(|| {
        let read = rustls_native_certs::load_native_certs();
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(read.certs);
        match read.errors.first() {
            _ if !store.is_empty() => Ok(Arc::new(store)),
            Some(error) => Err(RootsError::System(error.to_string())),
            None => Err(RootsError::None),
        }
    })
    .clone()
}
