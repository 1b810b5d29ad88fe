//! Packet headers and their protection.
//!
//! There are three kinds of datagrams, distinguished by the first byte:
//!
//! ```text
//! hello      0xc1 to 0xc4  in the clear under a MAC, see `handshake::envelope`
//! handshake  0xd1          connection ID (4), packet number (4), sealed crypto bytes
//! data       0b010kpp11    connection ID (4), packet number (4), sealed frames
//! ```
//!
//! In data packets, header protection masks the low five bits of the first byte and the packet
//! number (RFC 9001 section 5.4). The bit `k` is the key phase.

use rustls::quic::{HeaderProtectionKey, PacketKey, Tag};

use super::varint::Malformed;

/// Identifier of a connection. Each gateway selects the IDs of the packets that it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct ConnectionId(pub(crate) [u8; 4]);

/// First byte of a hello, the first datagram of a handshake.
pub(crate) const HELLO: u8 = 0xc1;
/// First byte of a reply to a hello.
pub(crate) const HELLO_ANSWER: u8 = 0xc2;
/// First byte of a reply with a cookie. The initiator must return the cookie.
pub(crate) const COOKIE: u8 = 0xc3;
/// First byte of a hello that contains a cookie.
pub(crate) const HELLO_WITH_COOKIE: u8 = 0xc4;
/// First byte of a packet that is encrypted with handshake keys.
pub(crate) const HANDSHAKE: u8 = 0xd1;
const DATA: u8 = 0b0100_0011;
const DATA_MASK: u8 = 0b1110_0000;
const KEY_PHASE: u8 = 0b0000_0100;

/// Size of the header of a handshake or data packet, in bytes. Encrypted bytes follow the header.
pub(crate) const HEADER_SIZE: usize = 1 + 4 + 4;
/// Size of the authentication tag after the payload, in bytes.
pub(crate) const TAG_SIZE: usize = 16;
/// Size of header and tag of a data packet, in bytes.
pub(crate) const OVERHEAD: usize = HEADER_SIZE + TAG_SIZE;

/// Kind of a datagram. The first byte of the datagram determines its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatagramKind {
    Hello,
    HelloAnswer,
    Cookie,
    Handshake,
    Data,
}

/// Returns the kind of a datagram and its connection ID. For a hello, which has no destination
/// connection ID, the ID is all zeros.
pub(crate) fn classify(datagram: &[u8]) -> Result<(DatagramKind, ConnectionId), Malformed> {
    let kind = match *datagram.first().ok_or(Malformed)? {
        HELLO | HELLO_WITH_COOKIE => return Ok((DatagramKind::Hello, ConnectionId::default())),
        HELLO_ANSWER => DatagramKind::HelloAnswer,
        COOKIE => DatagramKind::Cookie,
        HANDSHAKE => DatagramKind::Handshake,
        first if first & DATA_MASK == DATA & DATA_MASK => DatagramKind::Data,
        _ => return Err(Malformed),
    };
    let id = datagram.get(1..5).ok_or(Malformed)?;
    if matches!(kind, DatagramKind::Handshake | DatagramKind::Data) && datagram.len() < OVERHEAD {
        return Err(Malformed);
    }
    Ok((
        kind,
        ConnectionId(id.try_into().expect("the slice has four bytes")),
    ))
}

/// Appends the header of a handshake packet.
pub(crate) fn put_handshake_header(out: &mut Vec<u8>, to: ConnectionId, number: u32) {
    out.push(HANDSHAKE);
    out.extend_from_slice(&to.0);
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends the header of a data packet without header protection.
pub(crate) fn put_data_header(out: &mut Vec<u8>, to: ConnectionId, number: u64, key_phase: bool) {
    out.push(DATA | if key_phase { KEY_PHASE } else { 0 });
    out.extend_from_slice(&to.0);
    out.extend_from_slice(&(number as u32).to_be_bytes());
}

/// Encrypts the packet that starts at offset `start` of `out`. It encrypts the payload and appends
/// the tag. If `mask` is given, it also applies header protection.
pub(crate) fn seal(
    out: &mut Vec<u8>,
    start: usize,
    number: u64,
    key: &dyn PacketKey,
    mask: Option<&dyn HeaderProtectionKey>,
) {
    let (header, payload) = out[start..].split_at_mut(HEADER_SIZE);
    let tag: Tag = key
        .encrypt_in_place(number, header, payload)
        .expect("payloads are far below the cipher's limit");
    out.extend_from_slice(tag.as_ref());
    if let Some(mask) = mask {
        let (header, sealed) = out[start..].split_at_mut(HEADER_SIZE);
        let (first, rest) = header.split_at_mut(1);
        mask.encrypt_in_place(&sealed[..mask.sample_len()], &mut first[0], &mut rest[4..])
            .expect("the sample has the length that the key asks for");
    }
}

/// Removes header protection from a data packet. Returns the truncated packet number and the key
/// phase.
pub(crate) fn unmask(
    datagram: &mut [u8],
    mask: &dyn HeaderProtectionKey,
) -> Result<(u32, bool), Malformed> {
    let (header, sealed) = datagram
        .split_at_mut_checked(HEADER_SIZE)
        .ok_or(Malformed)?;
    let sample = sealed.get(..mask.sample_len()).ok_or(Malformed)?;
    let (first, rest) = header.split_at_mut(1);
    mask.decrypt_in_place(sample, &mut first[0], &mut rest[4..])
        .map_err(|_| Malformed)?;
    let number = u32::from_be_bytes(rest[4..].try_into().expect("four bytes are left"));
    Ok((number, first[0] & KEY_PHASE != 0))
}

/// Decrypts a packet whose header has no header protection. Returns the payload.
pub(crate) fn open<'a>(
    datagram: &'a mut [u8],
    number: u64,
    key: &dyn PacketKey,
) -> Result<&'a [u8], Malformed> {
    let (header, sealed) = datagram
        .split_at_mut_checked(HEADER_SIZE)
        .ok_or(Malformed)?;
    key.decrypt_in_place(number, header, sealed)
        .map_err(|_| Malformed)
}

/// Returns the full packet number that has the low 32 bits `truncated` and is nearest to `expected`
/// (RFC 9000 appendix A.3).
pub(crate) fn expand_number(truncated: u32, expected: u64) -> u64 {
    const WINDOW: u64 = 1 << 32;
    let candidate = expected & !(WINDOW - 1) | u64::from(truncated);
    if candidate + WINDOW / 2 <= expected {
        candidate + WINDOW
    } else if candidate > expected + WINDOW / 2 && candidate >= WINDOW {
        candidate - WINDOW
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_within_two_billion_of_the_expected_one_expands(
            expected in 0u64..1 << 50,
            distance in -(1i64 << 31) + 1..1 << 31,
        ) {
            let number = expected.saturating_add_signed(distance);
            prop_assert_eq!(expand_number(number as u32, expected), number);
        }

        #[test]
        fn any_datagram_is_classified_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok((DatagramKind::Data | DatagramKind::Handshake, _)) = classify(&bytes) {
                prop_assert!(bytes.len() >= OVERHEAD);
            }
        }
    }
}
