//! Limit for the length of certificate chains.
//!
//! If a chain has a dozen certificates with the same name, webpki tries 200,000 paths to a root,
//! which takes 0.1 s. Any client can make such a chain.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

/// Checks the number of certificates that a client presents in addition to its own certificate.
///
/// # Errors
/// [`Error::General`] if there are more than [`OTHERS_MAX`] such certificates.
pub(super) fn check(others: &[CertificateDer<'_>]) -> Result<(), Error> {
    let count = others.len();
    match count > OTHERS_MAX {
        true => Err(Error::General(format!(
            "{count} certificates beside its own, where at most {OTHERS_MAX} are accepted"
        ))),
        false => Ok(()),
    }
}

/// Verifier of clients' certificates. It limits the length of certificate chains.
#[derive(Debug)]
pub(super) struct ShortChains {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    /// Whether the handshake accepts any certificate, and also clients without a certificate. A
    /// later check then follows. The handshake still checks that the client has the certificate's
    /// key.
    pub(super) asks_only: bool,
}

impl ClientCertVerifier for ShortChains {
    fn client_auth_mandatory(&self) -> bool {
        !self.asks_only && self.verifier.client_auth_mandatory()
    }

    /// Returns the names of the roots. A browser offers its user only certificates that these roots
    /// issued.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.asks_only {
            return Ok(ClientCertVerified::assertion());
        }
        check(others)?;
        self.verifier.verify_client_cert(own, others, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Maximum number of certificates between a client's own certificate and a root. Public CAs have
/// two or three. Six certificates with the same name can be arranged in at most 2,000 orders.
const OTHERS_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};

    use super::*;
    use crate::tls;

    fn certificate(name: &str, is_ca: bool) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().expect("a key");
        params
            .self_signed(&key)
            .expect("a certificate")
            .der()
            .clone()
    }

    #[test]
    fn a_long_chain_is_refused_before_anything_is_tried() {
        let root = certificate("root", true);
        let own = certificate("many", false);
        let others = vec![certificate("many", true); 12];
        let shown = [vec![own], others].concat();
        let too_long = |shown: &[_]| {
            let error = tls::judge(shown, std::slice::from_ref(&root)).expect_err("no root");
            error.to_string().contains("beside its own")
        };
        assert!(too_long(&shown));
        assert!(!too_long(&shown[..=OTHERS_MAX]));
    }
}
