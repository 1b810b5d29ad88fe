//! The count and the hash of all bytes of a stream's direction, taken before coding and after decoding.

use xxhash_rust::xxh3::Xxh3;

use crate::frame::Head;

/// What has gone by so far.
#[derive(Clone, Default)]
pub struct Check {
    hash: Box<Xxh3>,
    total_bytes: u64,
}

impl Check {
    /// These bytes go by.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.total_bytes += bytes.len() as u64;
    }

    /// The frame that ends the stream.
    pub fn end(&self) -> Head {
        Head::End {
            total_bytes: self.total_bytes,
            hash: self.hash.digest128(),
        }
    }
}

impl std::fmt::Debug for Check {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Check({} bytes)", self.total_bytes)
    }
}
