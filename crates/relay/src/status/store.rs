//! Status of a chunk store.

use serde::{Deserialize, Serialize};

use crate::optimise::Stores;

/// State of an open chunk store. Counters start at zero when the gateway opens the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Name of the store's folder.
    pub store: String,
    /// Name of the peer.
    pub peer: String,
    /// Name of the tenant. Empty for chunks that belong to no tenant.
    pub tenant: String,
    /// Number of chunks in the store, including lists of chunks.
    pub chunks: u64,
    /// Number of segments (append-only files) of the store.
    pub segments: u64,
    /// Size of all segments on the disk, in bytes.
    pub disk_bytes: u64,
    /// Maximum size of all segments on the disk, in bytes.
    pub size_max_bytes: u64,
    /// Memory that the index of chunks uses, in bytes.
    pub index_bytes: u64,
    /// Number of chunks read from the store.
    pub hits: u64,
    /// Number of chunks that were looked up and not found.
    pub misses: u64,
    /// Number of damaged chunks and segments. Damage costs time, but never corrupts transferred
    /// data.
    pub damaged: u64,
    /// Number of chunks that were not stored, because the write queue or the disk was full.
    pub dropped: u64,
    /// Number of segments removed in order to free disk space.
    pub evicted_segments: u64,
    /// Number of failed writes and removals of files.
    pub write_errors: u64,
    /// Whether the index may still lack chunks from earlier runs.
    pub is_rebuilding: bool,
    /// Reason why the store accepts no new chunks at present. `None` if the store accepts new
    /// chunks.
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
