//! Counters of a store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// State of a store, and event counts since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreCounts {
    /// Number of chunks in the index. Chunks in the write queue do not count.
    pub entries: u64,
    /// Number of segments.
    pub segments: u64,
    /// Bytes of all segments. The number includes the future footer of the newest segment.
    pub disk_bytes: u64,
    /// Memory of the index in bytes.
    pub index_bytes: u64,
    /// Bytes in the write queue.
    pub queue_bytes: u64,
    /// Number of chunks written to the disk.
    pub written: u64,
    /// Content bytes of the chunks written to the disk.
    pub written_bytes: u64,
    /// Number of `put` calls for chunks that the store already had.
    pub known: u64,
    /// Number of `put` calls whose chunk was dropped. Reasons are a chunk that is too small or too
    /// large, a full queue, a full disk, and a retired store.
    pub dropped: u64,
    /// Number of `get` calls that returned a chunk.
    pub hits: u64,
    /// Number of `get` calls that returned no chunk.
    pub misses: u64,
    /// Number of damaged objects: unreadable chunks, chunks that differed from their names, and
    /// files that were not segments.
    pub damaged: u64,
    /// Number of segments removed to make room.
    pub evicted: u64,
    /// Number of failed writes and failed removals of files.
    pub write_errors: u64,
    /// Whether the index is still being rebuilt. Until the rebuild ends, the index may lack chunks
    /// of earlier runs.
    pub is_rebuilding: bool,
}

/// Counters that never decrease.
#[derive(Default)]
pub(super) struct EventCounters {
    pub written: EventCounter,
    pub written_bytes: EventCounter,
    pub known: EventCounter,
    pub dropped: EventCounter,
    pub hits: EventCounter,
    pub misses: EventCounter,
    pub damaged: EventCounter,
    pub evicted: EventCounter,
    pub write_errors: EventCounter,
}

#[derive(Default)]
pub(super) struct EventCounter(AtomicU64);

impl EventCounter {
    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
