//! Count and hash of all bytes of one direction of a stream, taken before coding and after
//! decoding.

use xxhash_rust::xxh3::Xxh3;

use crate::frame::FrameHead;

/// Count and hash of the bytes so far.
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

    /// Returns the frame that ends the stream.
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
