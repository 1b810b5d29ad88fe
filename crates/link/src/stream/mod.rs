//! Streams: ordered bytes in each direction, cut into slots of at most [`SLOT_SIZE`] bytes.
//!
//! In: bytes of applications, slots and credit of the peer. Out: slots to send, bytes in order, events for
//! applications. Packets, loss and congestion are the connection's business.
//!
//! A stream is a sequence of slots. A packet carries whole slots, named by stream and index, so both
//! sides find a slot by arithmetic: there is no list of ranges, and no limit to the number of gaps.

mod copies;
pub(crate) mod credit_pool;
pub(crate) mod memory;
mod need;
pub(crate) mod pieces;
mod quiet;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod slab;
pub(crate) mod table;

/// Bytes that one slot holds at most: what a 1500-byte packet leaves for data.
pub(crate) const SLOT_SIZE: usize = 1448;

/// Names one slot of a sending stream of ours: the stream's place in the table, its number (which shows whether
/// the place holds another stream by now), and the slot's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkRef {
    pub(crate) slot: u32,
    pub(crate) stream: u32,
    pub(crate) index: u64,
}

/// Which queue a stream belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Overtakes bulk streams; for commands and replies.
    Control,
    /// Shares the rest evenly.
    Bulk,
}

/// The parts of a stream's number: which side opened the stream, its class, and a count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamNumber {
    pub(crate) count: u32,
    pub(crate) class: Class,
    /// Opened by the side that began the handshake.
    pub(crate) by_initiator: bool,
}

/// Streams that one side can open in a connection: their number has 32 bits, of which the count has 30.
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
