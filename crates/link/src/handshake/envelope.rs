//! Envelope: message authentication of unencrypted handshake datagrams. Because of the envelope,
//! the link never replies to strangers.
//!
//! A TLS responder must reply to a first flight before it can authenticate the sender. The
//! unencrypted flights therefore carry an HMAC-SHA-256. Its key is derived from the public keys of
//! both sides.
//!
//! Each transmission of a first flight has a higher timestamp than the previous transmission. A
//! flight with an old timestamp is a replay.
//!
//! ```text
//! hello          0xc1 | key ID (8) | timestamp (8) | source connection ID (4)
//!                     | crypto offset (2) | crypto bytes | MAC (16)
//! hello answer   0xc2 | destination connection ID (4) | timestamp (8) | source connection ID (4)
//!                     | crypto offset (2) | crypto bytes | MAC (16)
//! cookie         0xc3 | destination connection ID (4) | timestamp (8) | cookie (16) | MAC (16)
//! with cookie    0xc4 | key ID (8) | timestamp (8) | source connection ID (4) | cookie (16)
//!                     | crypto offset (2) | crypto bytes | MAC (16)
//! ```

use aws_lc_rs::{constant_time, digest, hmac};

use super::cookie::{COOKIE_SIZE, Cookie};
use crate::{
    identity::PublicKey,
    wire::{
        Malformed,
        packet::{self, ConnectionId},
        varint::ByteReader,
    },
};

/// Identifier of the initiator's key: a truncated hash that does not reveal the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyId(pub(crate) [u8; 8]);

impl KeyId {
    pub(crate) fn of(key: &PublicKey) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"longhaul key id v1");
        context.update(&key.0);
        let hash = context.finish();
        Self(
            hash.as_ref()[..8]
                .try_into()
                .expect("a SHA-256 hash has 32 bytes"),
        )
    }
}

/// MAC key for handshakes between one initiator and one responder.
#[derive(Debug, Clone)]
pub(crate) struct EnvelopeKey(hmac::Key);

impl EnvelopeKey {
    pub(crate) fn new(responder: &PublicKey, initiator: &PublicKey) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"longhaul envelope v1");
        context.update(&responder.0);
        context.update(&initiator.0);
        Self(hmac::Key::new(hmac::HMAC_SHA256, context.finish().as_ref()))
    }

    fn mac(&self, bytes: &[u8]) -> hmac::Tag {
        hmac::sign(&self.0, bytes)
    }

    /// Whether the last [`MAC_SIZE`] bytes of `datagram` are a valid MAC of the bytes before them.
    pub(crate) fn verify(&self, datagram: &[u8]) -> bool {
        let Some((body, mac)) = datagram.split_last_chunk::<MAC_SIZE>() else {
            return false;
        };
        constant_time::verify_slices_are_equal(&self.mac(body).as_ref()[..MAC_SIZE], mac).is_ok()
    }
}

/// Parsed datagram of the unencrypted part of a handshake. Its MAC has not been verified yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hello<'a> {
    pub(crate) from: HelloSender,
    /// Time at which the initiator began this flight, in nanoseconds since the Unix epoch.
    pub(crate) timestamp: u64,
    pub(crate) source: ConnectionId,
    /// Cookie that the responder requested, if any.
    pub(crate) cookie: Option<Cookie>,
    pub(crate) crypto_offset: u16,
    pub(crate) crypto: &'a [u8],
}

/// Role of the sender of a hello, and the ID by which the receiver finds the MAC key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HelloSender {
    Initiator(KeyId),
    Responder(ConnectionId),
}

const MAC_SIZE: usize = 16;

impl<'a> Hello<'a> {
    pub(crate) fn read(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let body = datagram.split_last_chunk::<MAC_SIZE>().ok_or(Malformed)?.0;
        let mut reader = ByteReader(body);
        let kind = reader.byte()?;
        let from = match kind {
            packet::HELLO | packet::HELLO_WITH_COOKIE => {
                HelloSender::Initiator(KeyId(reader.array()?))
            }
            packet::HELLO_ANSWER => HelloSender::Responder(ConnectionId(reader.array()?)),
            _ => return Err(Malformed),
        };
        Ok(Self {
            from,
            timestamp: u64::from_be_bytes(reader.array()?),
            source: ConnectionId(reader.array()?),
            cookie: match kind {
                packet::HELLO_WITH_COOKIE => Some(reader.array()?),
                _ => None,
            },
            crypto_offset: u16::from_be_bytes(reader.array()?),
            crypto: reader.rest(),
        })
    }

    /// Appends the datagram and its MAC to `out`.
    pub(crate) fn put(&self, out: &mut Vec<u8>, key: &EnvelopeKey) {
        let start = out.len();
        match self.from {
            HelloSender::Initiator(id) => {
                out.push(match self.cookie {
                    None => packet::HELLO,
                    Some(_) => packet::HELLO_WITH_COOKIE,
                });
                out.extend_from_slice(&id.0);
            }
            HelloSender::Responder(to) => {
                out.push(packet::HELLO_ANSWER);
                out.extend_from_slice(&to.0);
            }
        }
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.source.0);
        if let (HelloSender::Initiator(_), Some(cookie)) = (self.from, &self.cookie) {
            out.extend_from_slice(cookie);
        }
        out.extend_from_slice(&self.crypto_offset.to_be_bytes());
        out.extend_from_slice(self.crypto);
        put_mac(out, start, key);
    }
}

/// Cookie with which a responder under load replies to a hello. The initiator must return the
/// cookie. The MAC of the reply has not been verified yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CookieReply {
    /// Connection ID of the initiator.
    pub(crate) to: ConnectionId,
    /// Timestamp of the hello.
    pub(crate) timestamp: u64,
    pub(crate) cookie: Cookie,
}

impl CookieReply {
    /// Size of the datagram in bytes.
    pub(crate) const SIZE: usize = 1 + 4 + 8 + COOKIE_SIZE + MAC_SIZE;

    pub(crate) fn read(datagram: &[u8]) -> Result<Self, Malformed> {
        let body = datagram.split_last_chunk::<MAC_SIZE>().ok_or(Malformed)?.0;
        let mut reader = ByteReader(body);
        if reader.byte()? != packet::COOKIE || datagram.len() != Self::SIZE {
            return Err(Malformed);
        }
        Ok(Self {
            to: ConnectionId(reader.array()?),
            timestamp: u64::from_be_bytes(reader.array()?),
            cookie: reader.array()?,
        })
    }

    /// Appends the datagram and its MAC to `out`.
    pub(crate) fn put(&self, out: &mut Vec<u8>, key: &EnvelopeKey) {
        let start = out.len();
        out.push(packet::COOKIE);
        out.extend_from_slice(&self.to.0);
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.cookie);
        put_mac(out, start, key);
    }
}

/// Appends a MAC to `out`. The MAC covers the bytes of `out` from offset `start` on.
fn put_mac(out: &mut Vec<u8>, start: usize, key: &EnvelopeKey) {
    let mac = key.mac(&out[start..]);
    out.extend_from_slice(&mac.as_ref()[..MAC_SIZE]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;

    #[test]
    fn a_hello_reads_back_and_any_flipped_bit_breaks_its_mac() {
        let [a, b] = [[1; 32], [2; 32]].map(|seed| Identity::from_seed(seed).public_key());
        let key = EnvelopeKey::new(&a, &b);
        let mut hello = Hello {
            from: HelloSender::Initiator(KeyId::of(&b)),
            timestamp: 42,
            source: ConnectionId([9; 4]),
            cookie: None,
            crypto_offset: 3,
            crypto: b"client hello",
        };
        for cookie in [None, Some([7; 16])] {
            hello.cookie = cookie;
            let mut datagram = Vec::new();
            hello.put(&mut datagram, &key);
            assert!(
                !EnvelopeKey::new(&b, &a).verify(&datagram),
                "the roles are part of the key"
            );
            let read = Hello::read(&datagram).expect("it was just written");
            assert_eq!((read.timestamp, read.crypto), (42, &b"client hello"[..]));
            assert_eq!(read.cookie, cookie);
            assert_is_covered(&key, datagram);
        }
    }

    #[test]
    fn a_cookie_reads_back_and_any_flipped_bit_breaks_its_mac() {
        let [a, b] = [[1; 32], [2; 32]].map(|seed| Identity::from_seed(seed).public_key());
        let key = EnvelopeKey::new(&a, &b);
        let reply = CookieReply {
            to: ConnectionId([9; 4]),
            timestamp: 42,
            cookie: [7; 16],
        };
        let mut datagram = Vec::new();
        reply.put(&mut datagram, &key);
        assert_eq!(datagram.len(), CookieReply::SIZE);
        assert_eq!(CookieReply::read(&datagram), Ok(reply));
        assert_is_covered(&key, datagram);
    }

    fn assert_is_covered(key: &EnvelopeKey, mut datagram: Vec<u8>) {
        assert!(key.verify(&datagram));
        for bit in 0..datagram.len() * 8 {
            datagram[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.verify(&datagram), "bit {bit} is not covered");
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
