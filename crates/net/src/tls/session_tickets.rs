//! TLS tickets of one FTP session. Each session has its own ticket key, so only connections of this
//! session can use the tickets.
//!
//! The TLS library changes the key of its own tickets every six hours. The session's ticket key
//! lasts as long as the session, since a session of several days must still accept its first
//! ticket.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    rand,
};
use rustls::server::ProducesTickets;

/// Encrypts and decrypts the tickets of one FTP session.
#[derive(Debug)]
pub(super) struct SessionTickets {
    key: RandomizedNonceKey,
}

impl SessionTickets {
    pub(super) fn new() -> Self {
        let mut bytes = [0; KEY_BYTES];
        rand::fill(&mut bytes).expect("the system's randomness works");
        let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes);
        Self {
            key: key.expect("the length is that of AES-256"),
        }
    }
}

impl ProducesTickets for SessionTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_S
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = plain.to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::empty(), &mut sealed);
        let mut ticket = nonce.ok()?.as_ref().to_vec();
        ticket.append(&mut sealed);
        Some(ticket)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = cipher.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut opened = sealed.to_vec();
        let plain = self.key.open_in_place(nonce, Aad::empty(), &mut opened);
        let plain_bytes = plain.ok()?.len();
        opened.truncate(plain_bytes);
        Some(opened)
    }
}

/// Lifetime of a ticket in seconds: one week, the maximum in TLS 1.3 (RFC 8446 section 4.6.1).
const LIFETIME_S: u32 = 604_800;

const KEY_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_opens_by_the_key_of_its_session_alone() {
        let (own, other) = (SessionTickets::new(), SessionTickets::new());
        let ticket = own.encrypt(b"session").expect("a ticket");
        assert_eq!(own.decrypt(&ticket), Some(b"session".to_vec()));
        assert_ne!(own.encrypt(b"session"), Some(ticket.clone()));
        assert_eq!(other.decrypt(&ticket), None);
        for length in 0..ticket.len() {
            assert_eq!(own.decrypt(&ticket[..length]), None);
        }
    }
}
