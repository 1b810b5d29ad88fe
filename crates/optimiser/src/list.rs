//! Lists of chunks: chunks that follow each other, as one object that has a name of its own.
//!
//! A file that is known as a whole is then named by some 34 bytes for each 1.3 MB instead of each 16 KB. Lists end where the
//! names of their chunks say so, as chunks end where their bytes say so; both gateways make the same lists from the
//! same chunks, and keep them where they keep chunks.

use bytes::{Bytes, BytesMut};

use crate::{
    chunk::{CHUNK_MAX, KEPT_LEAST, Name},
    frame::{self, REFERENCE_BYTES, Reference},
};

/// Finds where lists end in the chunks of a stream.
#[derive(Debug, Default)]
pub struct Lister {
    begun: BytesMut,
    /// Of the chunks in it.
    bytes: usize,
}

/// A list that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// What it is called.
    pub name: Name,
    /// References to its chunks.
    pub bytes: Bytes,
}

impl Lister {
    /// The next chunk of the stream. Returns the list that it ends.
    pub fn push(&mut self, reference: &Reference) -> Option<List> {
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

    /// The stream has ended. Returns the last list, if it is long enough to be one.
    pub fn end(&mut self) -> Option<List> {
        match self.count() >= LIST_MIN {
            true => Some(self.take()),
            false => None,
        }
    }

    /// How many chunks are in the list that has begun.
    pub fn count(&self) -> usize {
        self.begun.len() / REFERENCE_BYTES
    }

    fn take(&mut self) -> List {
        self.bytes = 0;
        let bytes = self.begun.split().freeze();
        List {
            name: Name::of(&bytes),
            bytes,
        }
    }
}

/// Fewest chunks of a list. A shorter one is not worth being kept.
pub const LIST_MIN: usize = 32;

/// The shortest list is long enough to be kept.
const _: () = assert!(LIST_MIN * REFERENCE_BYTES >= KEPT_LEAST);

/// Most chunks of a list.
pub const LIST_MAX: usize = 256;

/// A list of so many bytes ends: a sender keeps them until it knows whether the list is known. So many have at least
/// [`LIST_MIN`] chunks.
const LISTED_BYTES: usize = LIST_MIN * CHUNK_MAX;

/// Most bytes of the chunks of a list.
pub const LISTED_MAX: usize = LISTED_BYTES + CHUNK_MAX;

/// One in 64 names ends a list that is long enough.
const END_MASK: u8 = 63;
