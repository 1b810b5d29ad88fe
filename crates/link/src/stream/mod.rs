//! Streams: ordered bytes in each direction, cut into slots of at most [`SLOT_SIZE`] bytes.
//!
//! A stream is a sequence of slots. A packet carries whole slots, named by stream and index, so both
//! sides find a slot by arithmetic: there is no list of ranges, and no limit to the number of gaps.

mod copies;
pub(crate) mod memory;
pub(crate) mod pace;
pub(crate) mod readers;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod slab;
pub(crate) mod table;

/// Bytes that one slot holds at most: what a 1500-byte packet leaves for data.
pub(crate) const SLOT_SIZE: usize = 1448;

/// Names one slot of one of our sending streams: its place in the table, the stream that must still
/// be there, and the index.
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

/// The bits of a stream's number: who opened it, its class, and a count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamNumber {
    pub(crate) count: u32,
    pub(crate) class: Class,
    /// Opened by the side that began the handshake.
    pub(crate) by_initiator: bool,
}

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
