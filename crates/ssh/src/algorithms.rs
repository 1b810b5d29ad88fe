//! Algorithms and parameters of SSH connections, to clients and to servers.

use std::{borrow::Cow, time::Duration};

use russh::{Limits, Preferred, SshId, cipher, client, compression, keys::Algorithm, mac};

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
        limits: rekey_limits(),
        ..client::Config::default()
    }
}

/// Returns the limits after which the gateway begins a key exchange.
///
/// During such an exchange, the library accepts at most two windows of data of all channels
/// together, and then ends the connection. The limits are therefore high, so that the peer usually
/// begins the exchange.
pub(crate) fn rekey_limits() -> Limits {
    Limits {
        rekey_write_limit: KEY_BYTES_MAX,
        rekey_read_limit: KEY_BYTES_MAX,
        rekey_time_limit: KEY_AGE_MAX,
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

/// Window of a channel in bytes. The library opens the window again when half of it is used. Half
/// of the window is sufficient for a network of 1 Gbit/s with a round-trip time of 16 ms.
///
/// While the gateway does not read, OpenSSH keeps up to one window of data in its memory. It copies
/// all this data for each further 32 KiB. With a window of 16 MiB, the copies took up to 2.5 s.
pub(crate) const WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// Number of messages in the queue of a channel. It is unlimited in practice. If a queue could fill
/// up, the task of the connection would wait for this channel, and all other channels would wait,
/// too. The backpressure of the connection limits the queues.
pub(crate) const CHANNEL_BUFFER: usize = usize::MAX >> 4;

/// Maximum number of bytes in one direction between two key exchanges: 2^32 blocks of AES (RFC 4344
/// section 3.2).
const KEY_BYTES_MAX: usize = 64 << 30;

/// Maximum time between two key exchanges. A packet number has 32 bits, and must not repeat with
/// one key. A repetition within this time needs 298,000 packets per second.
const KEY_AGE_MAX: Duration = Duration::from_secs(4 * 3600);

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
