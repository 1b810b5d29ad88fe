//! The packets between sender and receiver.

/// A full segment, without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Position in the stream, counted in segments.
    pub number: u64,
}

/// An acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// All segments below this number have arrived.
    pub cumulative: u64,
    /// Ranges above `cumulative` that have arrived, the most recently grown first (RFC 2018 section
    /// 4). Empty ranges are unused.
    pub ranges: [Range; 3],
}

/// The segments from `start` up to, but without, `end`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Range {
    /// Number of the first segment.
    pub start: u64,
    /// Number behind the last segment.
    pub end: u64,
}

impl Range {
    /// Whether the range contains no segment.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// Bytes of a segment with its IP header: the payload of a full Ethernet frame.
pub const SEGMENT_IP_BYTES: usize = 1500;
/// Payload bytes of a segment: its IP packet less 20 of IP, 20 of TCP and 12 of timestamps (RFC
/// 7323).
pub const SEGMENT_PAYLOAD_BYTES: usize = 1448;
/// Bytes of an acknowledgement with three ranges: 20 of IP, 20 of TCP, 12 of timestamps, 28 of
/// ranges.
pub const ACK_IP_BYTES: usize = 80;
