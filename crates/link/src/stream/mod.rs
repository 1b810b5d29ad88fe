//! Streams: ordered bytes in each direction, divided into slots of at most [`SLOT_SIZE`] bytes.
//!
//! Input: bytes from applications, and slots and credit from the peer. Output: slots to send, bytes
//! in order, and events for applications. The connection handles packets, loss and congestion.
//!
//! A stream is a sequence of slots. A packet carries whole slots, identified by stream number and
//! slot index. Both gateways therefore locate a slot by arithmetic and need no list of byte ranges.
//! The number of gaps has no limit.

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

/// Identifier of one slot of a stream that this side sends.
///
/// It contains the stream's index in the table, the stream number and the slot index. The stream
/// number shows whether the table index now belongs to another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkRef {
    pub(crate) slot: u32,
    pub(crate) stream: u32,
    pub(crate) index: u64,
}

/// Priority class of a stream. Each class has its own send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamClass {
    /// Streams with commands and replies. They are sent before all bulk streams.
    Control,
    /// Streams with bulk data. They share the remaining capacity evenly.
    Bulk,
}

/// Fields of a stream number: the side that opened the stream, its class, and a count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamNumber {
    pub(crate) count: u32,
    pub(crate) class: StreamClass,
    /// Whether the stream was opened by the initiator of the handshake.
    pub(crate) by_initiator: bool,
}

/// Maximum number of streams that one side can open in a connection. A stream number has 32 bits,
/// and 30 of them hold the count.
pub(crate) const COUNT_MAX: u32 = (1 << 30) - 1;

impl StreamNumber {
    pub(crate) fn encode(self) -> u32 {
        self.count << 2
            | u32::from(self.class == StreamClass::Bulk) << 1
            | u32::from(self.by_initiator)
    }

    pub(crate) fn decode(number: u32) -> Self {
        Self {
            count: number >> 2,
            class: if number & 2 == 0 {
                StreamClass::Control
            } else {
                StreamClass::Bulk
            },
            by_initiator: number & 1 == 1,
        }
    }
}
