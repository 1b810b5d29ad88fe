//! Verification of a server's certificate: by root certificates, by its fingerprint, or not at all.
//!
//! In each case, the handshake checks that the server has the certificate's key.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::{
    certificate_rejection::CertificateRejection,
    fingerprint::Fingerprint,
    roots::{self, RootsError},
    server_tls::CertificateCheck,
    short_chain,
};

/// Verifier of the certificates of one server.
#[derive(Debug)]
pub(super) struct Verifier {
    method: CheckMethod,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
enum CheckMethod {
    Roots(Arc<WebPkiServerVerifier>),
    Pin(Fingerprint),
    Nothing,
}

impl Verifier {
    /// Creates a verifier.
    ///
    /// # Errors
    /// [`RootsError`] if no roots are available for the verification, or a given root is unusable.
    pub(super) fn new(
        verify: &CertificateCheck,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, RootsError> {
        let method = match verify {
            CertificateCheck::Roots(given) => {
                let roots = match given {
                    None => roots::system_roots()?,
                    Some(given) => Arc::new(roots::build_root_store(given)?),
                };
                CheckMethod::Roots(
                    WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
                        .build()
                        .map_err(|_| RootsError::None)?,
                )
            }
            CertificateCheck::Pin(pin) => CheckMethod::Pin(*pin),
            CertificateCheck::Off => CheckMethod::Nothing,
        };
        Ok(Self { method, provider })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.method {
            CheckMethod::Roots(verifier) => short_chain::check(intermediates)
                .and_then(|()| {
                    verifier.verify_server_cert(
                        end_entity,
                        intermediates,
                        server_name,
                        ocsp_response,
                        now,
                    )
                })
                .map_err(|error| {
                    CertificateRejection::from_error(&error, Fingerprint::of(end_entity))
                        .into_tls_error()
                }),
            CheckMethod::Pin(expected) => match Fingerprint::of(end_entity) {
                got if got == *expected => Ok(ServerCertVerified::assertion()),
                got => Err(CertificateRejection::Pin {
                    got,
                    expected: *expected,
                }
                .into_tls_error()),
            },
            CheckMethod::Nothing => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
