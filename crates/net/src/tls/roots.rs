//! Root certificates, by which certificates of servers and clients are verified.

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

/// There is nothing to judge a certificate by.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RootsError {
    /// There are no roots at all.
    #[error("there are no root certificates to verify the server by")]
    None,
    /// The system has none that can be read.
    #[error("the system's root certificates cannot be read: {0}")]
    System(String),
    /// A given certificate cannot be a root.
    #[error("a root certificate cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// The roots in a PEM file: at least one, and each of use.
///
/// # Errors
/// [`CertError`] names the unusable file.
pub fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertError> {
    let roots = certificate::certificates(path)?;
    match store(&roots) {
        Ok(_) => Ok(roots),
        Err(error) => Err(CertError::NotACertificate {
            path: path.to_owned(),
            why: error.to_string(),
        }),
    }
}

/// The same, for clients: each is that of a CA. By one that is of somebody, that somebody could let in others, and would not
/// be let in.
///
/// # Errors
/// [`CertError`] names the unusable file.
pub fn read_cas(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertError> {
    let roots = read(path)?;
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

/// The given certificates as roots.
pub(super) fn store(given: &[CertificateDer<'static>]) -> Result<RootCertStore, RootsError> {
    let mut store = RootCertStore::empty();
    for root in given {
        store.add(root.clone()).map_err(RootsError::Unusable)?;
    }
    Ok(store)
}

/// Verifies clients' certificates by these roots, and lets nobody in without one.
pub(super) fn client_verifier(
    given: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, RootsError> {
    let by = by_roots(given)?;
    let asks_only = false;
    Ok(Arc::new(ShortChains { by, asks_only }))
}

/// Asks clients for a certificate that one of these roots has signed, and takes any or none.
pub(super) fn client_asker(
    given: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, RootsError> {
    let by = by_roots(given)?;
    let asks_only = true;
    Ok(Arc::new(ShortChains { by, asks_only }))
}

fn by_roots(given: &[CertificateDer<'static>]) -> Result<Arc<dyn ClientCertVerifier>, RootsError> {
    let store = Arc::new(store(given)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(store, provider());
    verifier.build().map_err(|_| RootsError::None)
}

/// The system's roots, read from its files once.
pub(super) fn of_system() -> Result<Arc<RootCertStore>, RootsError> {
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
