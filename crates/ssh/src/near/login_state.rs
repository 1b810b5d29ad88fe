//! Progress of a client's log-in.

use bytes::Bytes;

use crate::settings::PublicKeyWay;

/// Progress of a client's log-in by a public key.
#[derive(Debug, Default)]
pub(super) struct LoginState {
    /// User name at the server.
    pub(super) user: String,
    /// Key that the server accepts for this user.
    pub(super) known_key: Option<KnownKey>,
    /// Ways by which the gateway can still log in at the server before the first program starts.
    /// Empty if the log-in is complete.
    pub(super) deferred: Vec<PublicKeyWay>,
}

/// Key that the server accepts for the log-in of a user.
#[derive(Debug, Clone)]
pub(super) struct KnownKey {
    /// User name that the client sent.
    pub(super) user: String,
    /// Public key in its wire format.
    pub(super) key: Bytes,
    pub(super) algorithm: String,
    /// Data that the private key must sign.
    pub(super) to_sign: Bytes,
}
