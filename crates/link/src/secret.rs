//! Numbers that the peer must not be able to guess: tokens of challenges, and skipped packet
//! numbers.

use aws_lc_rs::hmac;

use crate::{identity::Identity, wire::packet::ConnectionId};

/// Generator of unpredictable numbers. Its key never leaves this endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Secret {
    key: hmac::Key,
    instance: u64,
}

/// Purpose of a number. Different purposes use different sequences of numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SecretPurpose {
    /// Token in a challenge to an address.
    Challenge,
    /// Distance in packet numbers to the next skipped packet number.
    SkippedNumber,
}

impl Secret {
    /// Creates the generator from the private key of `identity`. With another `instance`, the
    /// generator returns other numbers.
    pub(crate) fn new(identity: &Identity, instance: u64) -> Self {
        let private = identity.pkcs8();
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, private.secret_pkcs8_der()),
            instance,
        }
    }

    /// Returns the number with index `count` in the sequence of a connection and a purpose.
    pub(crate) fn number(
        &self,
        purpose: SecretPurpose,
        connection: ConnectionId,
        count: u64,
    ) -> u64 {
        let mut mac = hmac::Context::with_key(&self.key);
        mac.update(match purpose {
            SecretPurpose::Challenge => b"longhaul challenge v1",
            SecretPurpose::SkippedNumber => b"longhaul omission v1",
        });
        mac.update(&self.instance.to_be_bytes());
        mac.update(&connection.0);
        mac.update(&count.to_be_bytes());
        let first = mac.sign().as_ref()[..8].try_into();
        u64::from_be_bytes(first.expect("a SHA-256 MAC has 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_differ_by_identity_instance_purpose_connection_and_count() {
        let mut numbers = HashSet::new();
        for (seed, instance) in [(1, 1), (1, 2), (2, 1)] {
            let secret = Secret::new(&Identity::from_seed([seed; 32]), instance);
            for purpose in [SecretPurpose::Challenge, SecretPurpose::SkippedNumber] {
                for connection in [1u32, 2] {
                    let connection = ConnectionId(connection.to_be_bytes());
                    numbers.extend((0..3).map(|n| secret.number(purpose, connection, n)));
                }
            }
        }
        assert_eq!(numbers.len(), 3 * 2 * 2 * 3);
    }
}
