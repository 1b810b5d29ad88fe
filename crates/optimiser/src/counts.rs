//! Counters of the coding of one direction of a stream.

/// Byte counts of one direction of a stream since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CodingCounts {
    /// Bytes before coding.
    pub bytes: u64,
    /// Bytes of the frames after coding.
    pub coded_bytes: u64,
    /// Bytes saved by compression.
    pub compression_saved_bytes: u64,
    /// Bytes saved by references.
    pub references_saved_bytes: u64,
}

impl CodingCounts {
    /// Returns the increase of each count since `earlier`. Both values must belong to the same
    /// stream.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes - earlier.bytes,
            coded_bytes: self.coded_bytes - earlier.coded_bytes,
            compression_saved_bytes: self.compression_saved_bytes - earlier.compression_saved_bytes,
            references_saved_bytes: self.references_saved_bytes - earlier.references_saved_bytes,
        }
    }
}
