//! Lists of consecutive chunks, as one object with its own name.
//!
//! A known file is then named by some 34 bytes for each 1.3 MB instead of each 16 KB. The names of
//! chunks determine the ends of lists, as the bytes determine the ends of chunks. Both gateways
//! make the same lists from the same chunks, and store them like chunks.

use bytes::{Bytes, BytesMut};

use crate::{
    chunk::{CHUNK_MAX, ChunkName, KEPT_LEAST},
    frame::{self, ChunkReference, REFERENCE_BYTES},
};

/// Finder of the ends of lists in the chunks of a stream.
#[derive(Debug, Default)]
pub struct ListBuilder {
    begun: BytesMut,
    /// Bytes of the chunks in the present list.
    bytes: usize,
}

/// A complete list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkList {
    /// Name of the list.
    pub name: ChunkName,
    /// References to its chunks.
    pub bytes: Bytes,
}

impl ListBuilder {
    /// Adds the next chunk of the stream. Returns the list that it ends.
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

    /// Ends the stream. Returns the last list, if it is long enough.
    pub fn end(&mut self) -> Option<ChunkList> {
        match self.count() >= LIST_MIN {
            true => Some(self.take()),
            false => None,
        }
    }

    /// Returns the number of chunks in the present list.
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

/// Fewest chunks of a list. A shorter one is not worth storing.
pub const LIST_MIN: usize = 32;

/// The shortest list is long enough to be stored.
const _: () = assert!(LIST_MIN * REFERENCE_BYTES >= KEPT_LEAST);

/// Maximum number of chunks of a list.
pub const LIST_MAX: usize = 256;

/// Bytes of chunks at which a list ends, with at least [`LIST_MIN`] chunks.
///
/// A sender keeps the chunks until it has looked the list up.
const LISTED_BYTES: usize = LIST_MIN * CHUNK_MAX;

/// Maximum number of bytes of the chunks of a list.
pub const LISTED_MAX: usize = LISTED_BYTES + CHUNK_MAX;

/// Mask of a name that ends a list of sufficient length: one in 64 names.
const END_MASK: u8 = 63;
