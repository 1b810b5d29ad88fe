//! Lists of consecutive chunks. A list is stored under its own name, like a chunk.
//!
//! A single reference of 34 bytes to a list replaces about 1.3 MB that the receiver already has. A
//! reference to a chunk replaces only 16 KB. The names of chunks determine where a list ends, just
//! as the bytes determine where a chunk ends. Both gateways therefore make the same lists from the
//! same chunks.

use bytes::{Bytes, BytesMut};

use crate::{
    chunk::{CHUNK_MAX, ChunkName, KEPT_LEAST},
    frame::{self, ChunkReference, REFERENCE_BYTES},
};

/// Builder that groups the chunks of a stream into lists.
#[derive(Debug, Default)]
pub struct ListBuilder {
    begun: BytesMut,
    /// Total bytes of the chunks in the incomplete list.
    bytes: usize,
}

/// A complete list of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkList {
    /// Name of the list.
    pub name: ChunkName,
    /// Encoded references to the chunks of the list.
    pub bytes: Bytes,
}

impl ListBuilder {
    /// Adds the next chunk of the stream. Returns the complete list if this chunk ends a list.
    pub fn push(&mut self, reference: &ChunkReference) -> Option<ChunkList> {
        frame::put_reference(&mut self.begun, reference);
        self.bytes += reference.bytes;
        let count = self.count();
        let is_end = reference.name.0[0] & END_MASK == 0;
        let is_long = count >= LIST_MAX || self.bytes >= LISTED_BYTES;
        match is_long || count >= LIST_MIN && is_end {
            true => Some(self.take()),
            false => None,
        }
    }

    /// Ends the stream. Returns the last list if it has at least [`LIST_MIN`] chunks.
    pub fn end(&mut self) -> Option<ChunkList> {
        match self.count() >= LIST_MIN {
            true => Some(self.take()),
            false => None,
        }
    }

    /// Returns the number of chunks in the incomplete list.
    pub fn count(&self) -> usize {
        self.begun.len() / REFERENCE_BYTES
    }

    fn take(&mut self) -> ChunkList {
        self.bytes = 0;
        let bytes = self.begun.split().freeze();
        ChunkList {
            name: ChunkName::of(&bytes),
            bytes,
        }
    }
}

/// Minimum number of chunks of a list. A shorter list is not worth storing.
pub const LIST_MIN: usize = 32;

/// Check that the shortest list has enough bytes to be stored.
const _: () = assert!(LIST_MIN * REFERENCE_BYTES >= KEPT_LEAST);

/// Maximum number of chunks of a list.
pub const LIST_MAX: usize = 256;

/// Number of bytes at which a list ends. A list with at least [`LIST_MIN`] chunks ends when its
/// chunks have this number of bytes.
///
/// A sender keeps the chunks in memory until it has looked up the list, so this limit also bounds
/// the memory.
const LISTED_BYTES: usize = LIST_MIN * CHUNK_MAX;

/// Maximum total bytes of the chunks of a list.
pub const LISTED_MAX: usize = LISTED_BYTES + CHUNK_MAX;

/// Bit mask for the name of a chunk. A list that is long enough ends with the next chunk whose
/// masked name is zero. On average, one chunk in 64 has such a name.
const END_MASK: u8 = 63;
