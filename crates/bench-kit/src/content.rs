//! Incompressible bytes for transfers. Content of any size needs only the memory of one block.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Write},
    path::Path,
};

use bytes::Bytes;
use units::ByteCount;
use xxhash_rust::xxh3::Xxh3;

/// Content that repeats one block of random bytes without end. Every run generates the same bytes.
#[derive(Debug, Clone)]
pub struct Content {
    block: Bytes,
}

/// Size of the block. It is a prime number, so it is not a multiple of any size that programs read
/// or write.
const BLOCK_BYTES: usize = 16_777_259;

impl Content {
    /// Generates the block. This takes some milliseconds.
    pub fn generate() -> Self {
        let mut bytes = vec![0; BLOCK_BYTES];
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for word in bytes.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        Self {
            block: bytes.into(),
        }
    }

    /// Returns at least one and at most `most` bytes of the content, starting at `offset`.
    pub fn at(&self, offset: u64, most: u64) -> &[u8] {
        let start = (offset % BLOCK_BYTES as u64) as usize;
        let rest = &self.block[start..];
        &rest[..rest.len().min(usize::try_from(most).unwrap_or(usize::MAX))]
    }

    /// Returns the first `size` bytes, split into blocks.
    fn pieces(&self, size: ByteCount) -> impl Iterator<Item = &[u8]> {
        let size = size.bytes();
        (0..size)
            .step_by(BLOCK_BYTES)
            .map(move |offset| self.at(offset, size - offset))
    }

    /// Writes the first `size` bytes to a file.
    pub fn write(&self, path: &Path, size: ByteCount) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for piece in self.pieces(size) {
            file.write_all(piece)?;
        }
        file.flush()
    }

    /// Returns the hash of the first `size` bytes.
    pub fn hash(&self, size: ByteCount) -> u64 {
        let mut hash = Xxh3::new();
        self.pieces(size).for_each(|piece| hash.update(piece));
        hash.digest()
    }
}

/// Returns the hash of a file.
pub fn hash_file(path: &Path) -> io::Result<u64> {
    let (mut file, mut hash) = (File::open(path)?, Xxh3::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.digest()),
            count => hash.update(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_hash_of_its_content() {
        let content = Content::generate();
        let path = std::env::temp_dir().join(format!("longhaul-content-{}", std::process::id()));
        for size in [0, 1, BLOCK_BYTES as u64, BLOCK_BYTES as u64 + 5] {
            let size = ByteCount::new(size);
            content.write(&path, size).expect("room");
            let hash = hash_file(&path).expect("written");
            assert_eq!(hash, content.hash(size), "{size}");
        }
        let _ = std::fs::remove_file(&path);
        assert_eq!(content.at(BLOCK_BYTES as u64, 3), content.at(0, 3));
        assert_eq!(content.at(BLOCK_BYTES as u64 - 1, 9).len(), 1);
    }
}
