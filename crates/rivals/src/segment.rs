//! Segments and acknowledgements, which sender and receiver exchange.

/// A segment of full size, represented without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Position in the stream, counted in segments.
    pub number: u64,
}

/// An acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Number of the first segment that has not arrived. All segments below it have arrived.
    pub cumulative: u64,
    /// Ranges above `cumulative` that have arrived. The range that grew last is first (RFC 2018
    /// section 4). Unused ranges are empty.
    pub ranges: [Range; 3],
}

/// A range of segments, from `start` up to but not including `end`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Range {
    /// Number of the first segment.
    pub start: u64,
    /// Number of the first segment after the range.
    pub end: u64,
}

impl Range {
    /// Returns whether the range contains no segment.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// Bytes of a segment including its IP header. Such a segment fills the payload of an Ethernet
/// frame.
pub const SEGMENT_IP_BYTES: usize = 1500;
/// Payload bytes of a segment: its IP packet without the headers of IP (20) and TCP (20), and
/// without timestamps (12, RFC 7323).
pub const SEGMENT_PAYLOAD_BYTES: usize = 1448;
/// Bytes of an acknowledgement with three ranges: IP header 20, TCP header 20, timestamps 12,
/// ranges 28.
pub const ACK_IP_BYTES: usize = 80;
