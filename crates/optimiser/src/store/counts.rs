//! Counters of a store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// State of a store, and counts of events since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreCounts {
    /// Chunks in the index, without chunks in the queue.
    pub entries: u64,
    /// Number of segments.
    pub segments: u64,
    /// Bytes of all segments, including the future footer of the newest one.
    pub disk_bytes: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
    /// Bytes that wait to be written.
    pub queue_bytes: u64,
    /// Chunks that were written.
    pub written: u64,
    /// Bytes of content of the written chunks.
    pub written_bytes: u64,
    /// Chunks that were put although they were known.
    pub known: u64,
    /// Chunks that were put and not kept. They were too small or too large, or the queue or the
    /// disk was full, or the store was retired.
    pub dropped: u64,
    /// Calls of `get` that returned a chunk.
    pub hits: u64,
    /// Calls of `get` that returned none.
    pub misses: u64,
    /// Unreadable chunks, chunks that differed from their names, and files that were no segments.
    pub damaged: u64,
    /// Segments removed to make room.
    pub evicted: u64,
    /// Failed writes and removals of files.
    pub write_errors: u64,
    /// Whether the index is still being rebuilt. Chunks of earlier runs may be missing in it.
    pub is_rebuilding: bool,
}

/// The counters that only rise.
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
