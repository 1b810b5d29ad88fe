//! Settings of TLS with a server, and their encoding for the link.
//!
//! The near gateway reads the settings from its configuration, and the far gateway applies them. In
//! the encoding, the first byte states when TLS starts, and the second byte states how the server
//! is verified. The parameters of the verification fill the remaining bytes. A pin is 32 bytes. A
//! root certificate is encoded as its length in two bytes, followed by its DER form.

use rustls::pki_types::CertificateDer;

use super::fingerprint::Fingerprint;

/// Settings of TLS with a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// Time at which TLS starts.
    pub mode: TlsStart,
    /// Check of the server's certificate.
    pub verify: CertificateCheck,
}

/// Time at which TLS starts on a control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsStart {
    /// TLS starts after `AUTH TLS` (RFC 4217).
    Explicit,
    /// TLS starts with the first byte, by convention on port 990.
    Implicit,
}

/// Check of a server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateCheck {
    /// One of these roots must have issued the certificate for the server's name. With `None`, the
    /// roots of the far gateway's system count.
    Roots(Option<Vec<CertificateDer<'static>>>),
    /// The certificate must have this fingerprint. Its name and dates are ignored.
    Pin(Fingerprint),
    /// The certificate is not checked.
    Off,
}

impl ServerTls {
    /// Returns the number of bytes that [`encode`](Self::encode) appends.
    pub fn encoded_bytes(&self) -> usize {
        2 + match &self.verify {
            CertificateCheck::Roots(Some(roots)) => {
                roots.iter().map(|r| LENGTH_BYTES + r.len()).sum()
            }
            CertificateCheck::Pin(pin) => pin.0.len(),
            CertificateCheck::Roots(None) | CertificateCheck::Off => 0,
        }
    }

    /// Appends the encoded form. The caller must ensure that it has at most [`ENCODED_MAX`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(
            self.encoded_bytes() <= ENCODED_MAX,
            "the configuration bounds the roots"
        );
        out.push(match self.mode {
            TlsStart::Explicit => EXPLICIT,
            TlsStart::Implicit => IMPLICIT,
        });
        match &self.verify {
            CertificateCheck::Roots(None) => out.push(SYSTEM_ROOTS),
            CertificateCheck::Roots(Some(roots)) => {
                out.push(GIVEN_ROOTS);
                for root in roots {
                    out.extend_from_slice(&(root.len() as u16).to_be_bytes());
                    out.extend_from_slice(root);
                }
            }
            CertificateCheck::Pin(pin) => {
                out.push(PIN);
                out.extend_from_slice(&pin.0);
            }
            CertificateCheck::Off => out.push(OFF),
        }
    }

    /// Decodes the encoded form. Returns `None` if it is invalid. Invalid root certificates cause
    /// an error only when they are used.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > ENCODED_MAX {
            return None;
        }
        let (&[mode, verify], mut rest) = bytes.split_first_chunk()?;
        let mode = match mode {
            EXPLICIT => TlsStart::Explicit,
            IMPLICIT => TlsStart::Implicit,
            _ => return None,
        };
        let verify = match (verify, rest) {
            (SYSTEM_ROOTS, []) => CertificateCheck::Roots(None),
            (GIVEN_ROOTS, _) => {
                let mut roots = Vec::new();
                while !rest.is_empty() {
                    let (length, behind) = rest.split_first_chunk::<LENGTH_BYTES>()?;
                    let length = u16::from_be_bytes(*length).into();
                    let (root, behind) = behind.split_at_checked(length)?;
                    roots.push(CertificateDer::from(root.to_vec()));
                    rest = behind;
                }
                CertificateCheck::Roots(Some(roots))
            }
            (PIN, pin) => CertificateCheck::Pin(Fingerprint(pin.try_into().ok()?)),
            (OFF, []) => CertificateCheck::Off,
            _ => return None,
        };
        Some(Self { mode, verify })
    }
}

/// Maximum number of bytes of the encoded form. The form and the target must fit one message. The
/// limit suffices because operators have few root certificates of their own.
///
/// A bundle of public roots has 200 KB, but the system usually provides these roots.
pub const ENCODED_MAX: usize = 48 * 1024;

const LENGTH_BYTES: usize = 2;

const EXPLICIT: u8 = 0;
const IMPLICIT: u8 = 1;

const SYSTEM_ROOTS: u8 = 0;
const GIVEN_ROOTS: u8 = 1;
const PIN: u8 = 2;
const OFF: u8 = 3;

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn any_server_tls() -> impl Strategy<Value = ServerTls> {
        let root = vec(any::<u8>(), 0..2_000).prop_map(CertificateDer::from);
        let verify = prop_oneof![
            Just(CertificateCheck::Roots(None)),
            vec(root, 0..20).prop_map(|roots| CertificateCheck::Roots(Some(roots))),
            any::<[u8; 32]>().prop_map(|bytes| CertificateCheck::Pin(Fingerprint(bytes))),
            Just(CertificateCheck::Off),
        ];
        let mode = prop_oneof![Just(TlsStart::Explicit), Just(TlsStart::Implicit)];
        (mode, verify).prop_map(|(mode, verify)| ServerTls { mode, verify })
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_the_same(tls in any_server_tls()) {
            let mut bytes = Vec::new();
            tls.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), tls.encoded_bytes());
            prop_assert_eq!(ServerTls::decode(&bytes), Some(tls));
        }

        #[test]
        fn whatever_decodes_encodes_to_the_same_bytes(
            mode in 0..3_u8, verify in 0..5_u8, rest in vec(0..4_u8, 0..40)
        ) {
            let bytes = [&[mode, verify][..], &rest].concat();
            if let Some(tls) = ServerTls::decode(&bytes) {
                let mut again = Vec::new();
                tls.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }

        #[test]
        fn no_bytes_are_too_odd(bytes in vec(any::<u8>(), 0..200)) {
            let _ = ServerTls::decode(&bytes);
        }
    }

    #[test]
    fn more_than_the_bound_is_refused() {
        let root = CertificateDer::from(vec![7; ENCODED_MAX - 4]);
        let tls = ServerTls {
            mode: TlsStart::Explicit,
            verify: CertificateCheck::Roots(Some(vec![root])),
        };
        let mut bytes = Vec::new();
        tls.encode(&mut bytes);
        assert_eq!(bytes.len(), ENCODED_MAX);
        assert_eq!(ServerTls::decode(&bytes), Some(tls));
        bytes.extend_from_slice(&[0, 0]);
        assert_eq!(ServerTls::decode(&bytes), None);
    }
}
