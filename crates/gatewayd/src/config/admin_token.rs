//! The secret token that permits use of the dashboard.

use std::fmt;

use aws_lc_rs::{constant_time::verify_slices_are_equal, digest};

/// A secret of at least 128 bits. The gateway stores only its hash.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken([u8; 32]);

impl AdminToken {
    /// Creates a token from a text. Returns `None` if the text has fewer than 32 hexadecimal
    /// digits, or fewer than 22 other characters. Also returns `None` if the text has more than 512
    /// characters, or characters other than visible ASCII.
    pub fn new(text: &str) -> Option<Self> {
        let is_hexadecimal = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let least = if is_hexadecimal { HEX_MIN } else { TEXT_MIN };
        let is_one = text.bytes().all(|byte| byte.is_ascii_graphic());
        (is_one && (least..=TEXT_MAX).contains(&text.len())).then(|| Self(hash(text)))
    }

    /// Whether this text is the token. The comparison takes constant time, so an attacker cannot
    /// guess the token character by character.
    pub(crate) fn is(&self, text: &str) -> bool {
        verify_slices_are_equal(&self.0, &hash(text)).is_ok()
    }

    /// Returns the token's hash. Other secrets are derived from the hash instead of the token.
    pub(crate) fn hash(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

fn hash(text: &str) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Minimum number of hexadecimal digits in a token. Each digit has 4 bits.
const HEX_MIN: usize = 32;

/// Minimum number of characters in a token that is not hexadecimal. Each character has 6 bits, as
/// in base64.
const TEXT_MIN: usize = 22;

pub(super) const TEXT_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_enough_and_known_again() {
        let token = AdminToken::new("c2VjcmV0IHNlY3JldCBzZQ").expect("22 characters");
        assert!(token.is("c2VjcmV0IHNlY3JldCBzZQ"));
        assert!(!token.is("c2VjcmV0IHNlY3JldCBzZR") && !token.is(""));
        assert_eq!(format!("{token:?}"), "***");
        for wrong in [
            "",
            "short",
            "0123456789abcdef0123456789abcde",
            "with a space 0123456789abc",
            "ü234567890123456789012",
        ] {
            assert_eq!(AdminToken::new(wrong), None, "{wrong}");
        }
        assert!(AdminToken::new("0123456789abcdef0123456789abcdef").is_some());
        assert_eq!(AdminToken::new(&"x".repeat(TEXT_MAX + 1)), None);
    }
}
