//! What travels between a sender and a receiver.

/// A full segment. Its payload is not carried along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its place in the stream, counted in segments.
    pub number: u64,
}

/// An answer to a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Every segment below this number has arrived.
    pub cumulative: u64,
    /// Ranges above it that have arrived, the one that grew last first (RFC 2018 section 4); empty
    /// ones are unused.
    pub ranges: [Range; 3],
}

/// Segments from `start` up to, and without, `end`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
}

impl Range {
    /// Whether it holds no segment.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// A segment with its IP header: a full Ethernet frame's payload.
pub const SEGMENT_IP_BYTES: usize = 1500;
/// What is left of it for data: less 20 of IP, 20 of TCP and 12 of timestamps (RFC 7323).
pub const SEGMENT_PAYLOAD_BYTES: usize = 1448;
/// An acknowledgement with three ranges: 20 of IP, 20 of TCP, 12 of timestamps, 28 of ranges.
pub const ACK_IP_BYTES: usize = 80;
