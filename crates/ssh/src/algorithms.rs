//! Algorithms and parameters of SSH connections, to clients and to servers.

use std::borrow::Cow;

use russh::{Preferred, SshId, cipher, client, compression, keys::Algorithm, mac};

/// Returns the configuration of a client of SSH servers, with these host key algorithms.
pub fn client_config(key: Vec<Algorithm>) -> client::Config {
    client::Config {
        client_id: SshId::Standard(IDENTIFICATION.into()),
        preferred: Preferred {
            key: Cow::Owned(key),
            ..preferred()
        },
        // Sessions have their own timeouts, so the library needs none.
        inactivity_timeout: None,
        ..client::Config::default()
    }
}

/// Returns the algorithms in the order of preference. The fastest cipher comes first. Compression
/// is off, since the link compresses.
pub(crate) fn preferred() -> Preferred {
    Preferred {
        cipher: Cow::Borrowed(CIPHERS),
        mac: Cow::Borrowed(MACS),
        compression: Cow::Borrowed(&[compression::NONE]),
        ..Preferred::DEFAULT
    }
}

/// Returns the algorithms for a client that supports AES-GCM. The list has no other ciphers,
/// because the client's order of preference decides (RFC 4253 section 7.1).
pub(crate) fn preferred_with_gcm() -> Preferred {
    Preferred {
        cipher: Cow::Borrowed(&CIPHERS[..2]),
        ..preferred()
    }
}

/// Identification of the gateway in the protocol version exchange (RFC 4253 section 4.2).
pub(crate) const IDENTIFICATION: &str = concat!("SSH-2.0-Longhaul_", env!("CARGO_PKG_VERSION"));

/// Window of a channel in bytes. The window is sufficient for a network of 10 Gbit/s with a
/// round-trip time of 10 ms. The backpressure of the connection limits the memory.
pub(crate) const WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// Number of messages in the queue of a channel. It is unlimited in practice. If a queue could fill
/// up, the task of the connection would wait for this channel, and all other channels would wait,
/// too. The backpressure of the connection limits the queues.
pub(crate) const CHANNEL_BUFFER: usize = usize::MAX >> 4;

/// AES-GCM takes half the processor time of ChaCha20 on processors with AES instructions. AES-CTR
/// is for old clients and servers.
const CIPHERS: &[cipher::Name] = &[
    cipher::AES_128_GCM,
    cipher::AES_256_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_CTR,
    cipher::AES_128_CTR,
];

const MACS: &[mac::Name] = &[
    mac::HMAC_SHA256_ETM,
    mac::HMAC_SHA512_ETM,
    mac::HMAC_SHA256,
    mac::HMAC_SHA512,
];
