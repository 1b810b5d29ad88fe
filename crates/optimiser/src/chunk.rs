//! Content-defined chunks: bytes are cut where their content says so, so that the same bytes are cut alike wherever they
//! stand in a file; and the names of chunks.

/// The name of a chunk: BLAKE3 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub [u8; NAME_BYTES]);

impl Name {
    /// The name of `content`.
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for byte in &self.0[..8] {
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Bytes of a name.
pub const NAME_BYTES: usize = 32;

/// Most bytes of a chunk.
pub const CHUNK_MAX: usize = 64 * 1024;
