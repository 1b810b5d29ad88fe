//! Status of a chunk store.

use serde::{Deserialize, Serialize};

use crate::optimise::Stores;

/// An open chunk store. Counts begin when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// The name of its folder.
    pub store: String,
    /// Name of the peer.
    pub peer: String,
    /// Empty for chunks of no tenant.
    pub tenant: String,
    /// Chunks in the store, lists of chunks included.
    pub chunks: u64,
    /// Number of segments.
    pub segments: u64,
    /// Bytes of the segments on the disk.
    pub disk_bytes: u64,
    /// Maximum number of bytes of the segments on the disk.
    pub size_max_bytes: u64,
    /// Memory of the index.
    pub index_bytes: u64,
    /// Chunks that were read.
    pub hits: u64,
    /// Chunks that were looked up, and not found.
    pub misses: u64,
    /// Damaged chunks and segments. They cost time, never a byte.
    pub damaged: u64,
    /// Chunks that were not stored, since the queue to the disk or the disk was full.
    pub dropped: u64,
    /// Segments removed to make room.
    pub evicted_segments: u64,
    /// Writes and removals of files that failed.
    pub write_errors: u64,
    /// Whether chunks of earlier runs may still be unknown.
    pub is_rebuilding: bool,
    /// Reason why the store accepts no new chunks at the moment.
    #[serde(default)]
    pub trouble: Option<String>,
}

impl StoreStatus {
    /// Returns the status of all open stores.
    pub fn all(stores: &Stores) -> Vec<Self> {
        let size_max_bytes = stores.size_max().bytes();
        let all = stores.counts().into_iter();
        let all = all.map(|(name, counts, trouble)| Self {
            store: name.folder,
            peer: name.peer,
            tenant: name.tenant,
            chunks: counts.entries,
            segments: counts.segments,
            disk_bytes: counts.disk_bytes,
            size_max_bytes,
            index_bytes: counts.index_bytes,
            hits: counts.hits,
            misses: counts.misses,
            damaged: counts.damaged,
            dropped: counts.dropped,
            evicted_segments: counts.evicted,
            write_errors: counts.write_errors,
            is_rebuilding: counts.is_rebuilding,
            trouble,
        });
        all.collect()
    }
}
