//! The text of an invite, and the key pair that is derived from its token.

use std::{fmt, str::FromStr};

use aws_lc_rs::{digest, rand};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use link::{Identity, PublicKey};

use net::target::HostPort;
use relay::wire::TOKEN_BYTES;

/// An invite with which one gateway becomes a peer of the far gateway. An invite is secret, because
/// any gateway that holds it can become the peer.
#[derive(Clone, PartialEq, Eq)]
pub struct Invite {
    /// Public key of the far gateway.
    pub far: PublicKey,
    /// Endpoint of the far gateway: `host:port`.
    pub endpoint: String,
    pub(crate) token: [u8; TOKEN_BYTES],
}

/// Error: a text is not an invite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InviteError {
    /// The text does not start with the prefix of invites.
    #[error("this is no invite: one is a line that begins with {PREFIX}")]
    Other,
    /// A character is missing or wrong, according to the checksum.
    #[error("the invite is damaged: copy the whole line again")]
    Damaged,
}

impl Invite {
    /// Creates an invite with a random token.
    ///
    /// # Panics
    /// If the system provides no random bytes.
    pub fn new(far: PublicKey, endpoint: &HostPort) -> Self {
        let mut token = [0; TOKEN_BYTES];
        rand::fill(&mut token).expect("the system's randomness works");
        Self {
            far,
            endpoint: endpoint.to_string(),
            token,
        }
    }

    /// Returns the key pair that the invited gateway uses for its first connection.
    pub fn identity(&self) -> Identity {
        identity(self.far, &self.token)
    }
}

/// Derives a key pair from a token. The public key does not reveal the token.
pub(super) fn identity(far: PublicKey, token: &[u8; TOKEN_BYTES]) -> Identity {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"longhaul invite 1");
    context.update(&far.0);
    context.update(token);
    let seed = context.finish();
    Identity::from_seed(seed.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

impl fmt::Display for Invite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [&self.far.0[..], &self.token, self.endpoint.as_bytes()].concat();
        bytes.extend_from_slice(&checksum(&bytes));
        write!(f, "{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// Prints the invite without its secret token.
impl fmt::Debug for Invite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invite")
            .field("far", &self.far)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl FromStr for Invite {
    type Err = InviteError;

    fn from_str(text: &str) -> Result<Self, InviteError> {
        let body = text.trim().strip_prefix(PREFIX).ok_or(InviteError::Other)?;
        let damaged = InviteError::Damaged;
        if body.len() > BODY_MAX {
            return Err(damaged);
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(body).map_err(|_| damaged)?;
        let (bytes, sum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(damaged)?;
        if checksum(bytes) != *sum {
            return Err(damaged);
        }
        let (far, bytes) = bytes.split_first_chunk().ok_or(damaged)?;
        let (token, endpoint) = bytes.split_first_chunk().ok_or(damaged)?;
        let endpoint = str::from_utf8(endpoint).map_err(|_| damaged)?;
        let parsed: HostPort = endpoint.parse().map_err(|_| damaged)?;
        #[cfg(fuzz_canary)]
        assert!(
            parsed.port % 64 != 37,
            "canary: behind the checksum of invites"
        );
        Ok(Self {
            far: PublicKey(*far),
            endpoint: parsed.to_string(),
            token: *token,
        })
    }
}

/// Computes a checksum that detects copying errors. The checksum gives no protection against
/// attackers.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let digest = digest::digest(&digest::SHA256, bytes);
    *digest.as_ref().first_chunk().expect("a digest is longer")
}

const PREFIX: &str = "longhaul-invite-1-";

const CHECKSUM_BYTES: usize = 4;

/// Maximum length of an invite's body. It has room for a host name of 253 characters.
const BODY_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn invite() -> Invite {
        let far = Identity::from_seed([7; 32]).public_key();
        Invite::new(far, &"far.example.com:4810".parse().expect("an endpoint"))
    }

    #[test]
    fn an_invite_reads_back_and_stands_for_one_key() {
        let (one, other) = (invite(), invite());
        let text = one.to_string();
        assert!(
            !text.contains(char::is_whitespace) && text.len() < 160,
            "{text}"
        );
        let read: Invite = format!(" {text}\n").parse().expect("an invite");
        assert_eq!(read, one);
        assert_eq!(read.identity(), one.identity());
        assert_ne!(one.identity(), other.identity());
        assert!(!format!("{one:?}").contains(&text[PREFIX.len()..]));
    }

    #[test]
    fn no_character_can_be_another_one() {
        let text = invite().to_string();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert!(changed.parse::<Invite>().is_err(), "{changed}");
            let cut = format!("{}{}", &text[..at], &text[at + 1..]);
            assert!(cut.parse::<Invite>().is_err(), "{cut}");
        }
        assert_eq!("".parse::<Invite>(), Err(InviteError::Other));
        assert_eq!(PREFIX.parse::<Invite>(), Err(InviteError::Damaged));
    }

    proptest! {
        #[test]
        fn any_text_is_one_or_none(text in ".*", body in "[A-Za-z0-9_-]{0,600}") {
            let _ = text.parse::<Invite>();
            let _ = format!("{PREFIX}{body}").parse::<Invite>();
        }
    }
}
