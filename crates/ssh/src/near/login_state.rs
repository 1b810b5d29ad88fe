//! Progress of a client's log-in.

use bytes::Bytes;

use super::server_memory::KeyDigest;
use crate::settings::PublicKeyWay;

/// Progress of a client's log-in by a public key.
#[derive(Debug, Default)]
pub(super) struct LoginState {
    /// User name at the server.
    pub(super) user: String,
    /// Key of this user that the server accepts, or has accepted at an earlier log-in.
    pub(super) known_key: Option<KnownKey>,
    /// Reason why no program can start any more, as a sentence for the user.
    pub(super) failure: Option<String>,
    /// Ways by which the gateway can still log in at the server before the first program starts.
    /// Empty if the log-in is complete.
    pub(super) deferred: Vec<PublicKeyWay>,
}

/// Key for the log-in of a user.
#[derive(Debug, Clone)]
pub(super) struct KnownKey {
    /// User name that the client sent.
    pub(super) user: String,
    /// Public key in its wire format.
    pub(super) key: Bytes,
    pub(super) algorithm: String,
    /// Data that the private key must sign. `None` until the server's answer has been read.
    pub(super) to_sign: Option<Bytes>,
}

impl KnownKey {
    /// Returns the digest under which the gateway remembers the key.
    pub(super) fn digest(&self) -> KeyDigest {
        KeyDigest::of(&self.key, &self.algorithm)
    }
}
