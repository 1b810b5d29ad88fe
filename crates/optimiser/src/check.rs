//! Count and hash of all bytes of one direction of a stream. The sender computes them before
//! coding, the receiver after decoding.

use xxhash_rust::xxh3::Xxh3;

use crate::frame::FrameHead;

/// Count and hash of the bytes that a stream direction has carried so far.
#[derive(Clone, Default)]
pub struct StreamCheck {
    hash: Box<Xxh3>,
    total_bytes: u64,
}

impl StreamCheck {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.total_bytes += bytes.len() as u64;
    }

    /// Returns the frame that ends the stream or one of its parts. The frame contains the count and
    /// the hash.
    pub fn end(&self) -> FrameHead {
        FrameHead::End {
            total_bytes: self.total_bytes,
            hash: self.hash.digest128(),
        }
    }
}

impl std::fmt::Debug for StreamCheck {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Check({} bytes)", self.total_bytes)
    }
}
