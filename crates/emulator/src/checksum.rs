//! The Internet checksum (RFC 1071).

use super::frame::{ETHERNET_BYTES, IpVersion, Transport};

/// Returns the sum of the big-endian words in `bytes`. [`fold`] reduces the sum to 16 bits. If the
/// number of bytes is odd, the last byte counts as a high byte.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (quads, rest) = bytes.as_chunks::<4>();
    let quads: u64 = quads
        .iter()
        .map(|quad| u64::from(u32::from_be_bytes(*quad)))
        .sum();
    let rest = match *rest {
        [] => 0,
        [a] => u64::from(a) << 8,
        [a, b] => u64::from(u16::from_be_bytes([a, b])),
        [a, b, c] => u64::from(u16::from_be_bytes([a, b])) + (u64::from(c) << 8),
        _ => unreachable!("less than four bytes are left"),
    };
    quads + rest
}

/// Reduces a sum to 16 bits by adding the carries to the lower 16 bits.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// Returns the sum of the pseudo-header for the packet in `frame`.
pub(super) fn pseudo_header(
    frame: &[u8],
    ip_version: IpVersion,
    transport: Transport,
    transport_bytes: usize,
) -> u64 {
    let addresses = match ip_version {
        IpVersion::V4 => &frame[ETHERNET_BYTES + 12..ETHERNET_BYTES + 20],
        IpVersion::V6 => &frame[ETHERNET_BYTES + 8..ETHERNET_BYTES + 40],
    };
    let protocol: u64 = match transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
    };
    sum(addresses) + protocol + transport_bytes as u64
}

/// Completes a partial checksum in a frame. The checksum field is at offset `field`, and contains
/// the sum of the pseudo-header. The checksum covers all bytes from offset `start`.
pub(super) fn complete(frame: &mut [u8], start: usize, field: usize) {
    let checksum = match !fold(sum(&frame[start..])) {
        // In UDP, zero means "no checksum". In ones' complement, all ones have the same value as
        // zero (RFC 768).
        0 => 0xffff,
        checksum => checksum,
    };
    frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
}
