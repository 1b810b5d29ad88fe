//! Reasons why the gateway rejects a server's certificate. The text of each reason names the next
//! step for an operator.

use jiff::Timestamp;
use rustls::{CertificateError, Error};

use super::fingerprint::Fingerprint;

/// Formats seconds since 1970 as `2024-02-29T12:00:00Z`.
fn format_utc(unix_s: u64) -> String {
    let time = i64::try_from(unix_s)
        .ok()
        .and_then(|s| Timestamp::from_second(s).ok());
    format!("{:.0}", time.unwrap_or(Timestamp::MAX))
}

/// Reason why the gateway rejects a server's certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateRejection {
    /// No trusted root has issued the certificate.
    #[error("the server's certificate is not trusted: {why}; its fingerprint is {fingerprint}")]
    Untrusted {
        /// Reason stated by the verifier.
        why: String,
        /// Fingerprint of the certificate. An operator can compare it with the server's
        /// fingerprint, and then use it as a pin in the configuration.
        fingerprint: Fingerprint,
    },
    /// The certificate has expired.
    #[error("the server's certificate is not trusted: it expired on {not_after}")]
    Expired {
        /// End of the certificate's validity, in UTC.
        not_after: String,
    },
    /// The certificate is not valid yet, or the clock of this machine is slow.
    #[error("the server's certificate is not trusted: it is valid only from {not_before}")]
    NotYetValid {
        /// Start of the certificate's validity, in UTC.
        not_before: String,
    },
    /// The certificate does not contain the server's name.
    #[error(
        "the server's certificate is not trusted: name mismatch, it is for {presented}, \
         not for {expected}"
    )]
    Name {
        /// The names in the certificate, or a text in place of them.
        presented: String,
        /// Whether the certificate contains any name.
        has_names: bool,
        /// The server's name in the target.
        expected: String,
    },
    /// The certificate differs from the configured pin.
    #[error("the server's certificate is not trusted: pin differs: got {got}, expected {expected}")]
    Pin {
        /// The fingerprint of the server's certificate.
        got: Fingerprint,
        /// The configured pin.
        expected: Fingerprint,
    },
}

impl CertificateRejection {
    /// Converts an error of the verification by root certificates. `fingerprint` belongs to the
    /// server's certificate.
    pub(super) fn from_error(error: &Error, fingerprint: Fingerprint) -> Self {
        let why = match error {
            Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
                let not_after = format_utc(not_after.as_secs());
                return Self::Expired { not_after };
            }
            Error::InvalidCertificate(CertificateError::NotValidYetContext {
                not_before, ..
            }) => {
                let not_before = format_utc(not_before.as_secs());
                return Self::NotYetValid { not_before };
            }
            Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                expected,
                presented,
            }) => {
                return Self::Name {
                    has_names: !presented.is_empty(),
                    presented: if presented.is_empty() {
                        "no name at all".to_owned()
                    } else {
                        let names: Vec<_> = presented.iter().map(|name| strip_type(name)).collect();
                        names.join(", ")
                    },
                    expected: expected.to_str().into_owned(),
                };
            }
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                "none of the roots has issued it".to_owned()
            }
            // `rustls` does not export the type of this error.
            Error::InvalidCertificate(CertificateError::Other(rustls::OtherError(inner)))
                if inner.to_string() == "CaUsedAsEndEntity" =>
            {
                "it is a certificate of an authority (CA:TRUE), and not of a server: make one with \
                 basicConstraints=critical,CA:FALSE and trust it by the roots, or pin this one after you compared the \
                 fingerprint at the server"
                    .to_owned()
            }
            other => other.to_string(),
        };
        Self::Untrusted { why, fingerprint }
    }

    /// Wraps the reason in an error of the TLS library.
    pub(super) fn into_tls_error(self) -> Error {
        CertificateError::Other(rustls::OtherError(std::sync::Arc::new(self))).into()
    }

    /// Unwraps the reason that [`into_tls_error`](Self::into_tls_error) wrapped.
    pub(super) fn from_tls_error(error: &Error) -> Option<&Self> {
        match error {
            Error::InvalidCertificate(CertificateError::Other(rustls::OtherError(inner))) => {
                inner.downcast_ref()
            }
            _ => None,
        }
    }
}

/// Removes the type that the TLS library adds to a name in a certificate, as in `DnsName("a.b")`.
fn strip_type(presented: &str) -> &str {
    let inner = presented
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::{
        client::danger::ServerCertVerifier as _,
        crypto::aws_lc_rs,
        pki_types::{ServerName, UnixTime},
    };

    use super::*;
    use crate::tls::{server_tls::CertificateCheck, verifier::Verifier};

    #[test]
    fn a_self_signed_certificate_of_an_authority_is_rejected_with_the_next_step() {
        let mut params = CertificateParams::new(["ftp.example".to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("the key can sign");
        let certificate = certificate.der();
        let check = CertificateCheck::Roots(Some(vec![certificate.clone()]));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Verifier::new(&check, provider).expect("a root");
        let name = ServerName::try_from("ftp.example").expect("a name");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let verified = verifier.verify_server_cert(certificate, &[], &name, &[], now);
        let error = verified.expect_err("it is rejected");
        let rejection = CertificateRejection::from_tls_error(&error).expect("a reason");
        let fingerprint = Fingerprint::of(certificate);
        let expected = format!(
            "the server's certificate is not trusted: it is a certificate of an authority (CA:TRUE), and not of a \
             server: make one with basicConstraints=critical,CA:FALSE and trust it by the roots, or pin this one after \
             you compared the fingerprint at the server; its fingerprint is {fingerprint}"
        );
        assert_eq!(rejection.to_string(), expected);
    }
}
