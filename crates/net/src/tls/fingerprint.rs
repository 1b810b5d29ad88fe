//! SHA-256 fingerprints of certificates, in the form of `openssl x509 -fingerprint -sha256`.

use std::{fmt, str::FromStr};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;

/// SHA-256 hash of a certificate in DER form. The text form is pairs of hex digits, as in
/// `AB:01:…`. The parser also accepts a text without colons.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

/// Error for a text that is not a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected the SHA-256 fingerprint of a certificate: 64 hex digits, with or without colons")]
pub struct FingerprintError;

impl Fingerprint {
    /// Computes the fingerprint of `certificate`.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = digest(&SHA256, certificate);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02X}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let text = text.trim();
        let digits = if text.contains(':') {
            if text.split(':').any(|pair| pair.len() != 2) {
                return Err(FingerprintError);
            }
            text.replace(':', "")
        } else {
            text.to_owned()
        };
        let mut digits = digits.chars().map(|c| c.to_digit(16));
        let mut bytes = [0; 32];
        for byte in &mut bytes {
            let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else {
                return Err(FingerprintError);
            };
            *byte = (high << 4 | low) as u8;
        }
        match digits.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(FingerprintError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_prints_and_is_read_with_and_without_colons() {
        let fingerprint = Fingerprint::of(&CertificateDer::from(b"abc".to_vec()));
        // FIPS 180-2, appendix B.1.
        let bare = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(bare.parse(), Ok(fingerprint));
        let text = fingerprint.to_string();
        assert!(
            text.starts_with("BA:78:16:BF:") && text.len() == 95,
            "{text}"
        );
        assert_eq!(text.parse(), Ok(fingerprint));
    }

    #[test]
    fn what_is_no_fingerprint_is_refused() {
        let bare = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        for text in [
            "",
            ":",
            &bare[1..],
            &format!("{bare}0"),
            &bare.replace('b', "g"),
            &format!("{}:{}", &bare[..1], &bare[1..]),
            &bare.replace('b', "ä"),
        ] {
            assert_eq!(text.parse::<Fingerprint>(), Err(FingerprintError), "{text}");
        }
    }
}
