//! Streams: ordered bytes in each direction, cut into slots of at most [`SLOT_SIZE`] bytes.
//!
//! The input is bytes of applications, and slots and credit of the peer. The output is slots to
//! send, bytes in order, and events for applications. The connection handles packets, loss and
//! congestion.
//!
//! A stream is a sequence of slots. A packet carries whole slots, named by stream and index, so
//! both sides find a slot by arithmetic. They need no list of ranges, and the number of gaps has no
//! limit.

pub(crate) mod byte_queue;
mod copies;
pub(crate) mod credit_pool;
mod idle_detector;
pub(crate) mod memory;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod slab;
pub(crate) mod table;
mod window_need;

/// Maximum number of bytes of one slot: the space for data in a 1500-byte packet.
pub(crate) const SLOT_SIZE: usize = 1448;

/// Name of one slot of a sending stream of ours.
///
/// It contains the stream's position in the table, the stream's number, and the slot's index. The
/// number shows whether another stream has the position now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkRef {
    pub(crate) slot: u32,
    pub(crate) stream: u32,
    pub(crate) index: u64,
}

/// Queue to which a stream belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// For commands and replies, which overtake bulk streams.
    Control,
    /// For bulk data. The streams share the remaining capacity evenly.
    Bulk,
}

/// Parts of a stream's number: the side that opened the stream, its class, and a count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamNumber {
    pub(crate) count: u32,
    pub(crate) class: Class,
    /// Whether the initiator of the handshake opened the stream.
    pub(crate) by_initiator: bool,
}

/// Maximum number of streams that one side can open in a connection. Their number has 32 bits, and
/// the count has 30 of them.
pub(crate) const COUNT_MAX: u32 = (1 << 30) - 1;

impl StreamNumber {
    pub(crate) fn encode(self) -> u32 {
        self.count << 2 | u32::from(self.class == Class::Bulk) << 1 | u32::from(self.by_initiator)
    }

    pub(crate) fn decode(number: u32) -> Self {
        Self {
            count: number >> 2,
            class: if number & 2 == 0 {
                Class::Control
            } else {
                Class::Bulk
            },
            by_initiator: number & 1 == 1,
        }
    }
}
