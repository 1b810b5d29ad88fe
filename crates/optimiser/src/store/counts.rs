//! What a store tells of itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where a store stands, and what happened since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Chunks that the index knows, without those in the queue.
    pub entries: u64,
    pub segments: u64,
    /// Bytes of all segments, the footer included that the newest one will have.
    pub disk_bytes: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
    /// Bytes that wait to be written.
    pub queue_bytes: u64,
    /// Chunks that were written.
    pub written: u64,
    /// Bytes of the content of these.
    pub written_bytes: u64,
    /// Chunks that were put and are known already.
    pub known: u64,
    /// Chunks that were put and not kept: the queue was full, or the disk; they were too small or too large; or the store
    /// was retired.
    pub dropped: u64,
    /// Calls of `get` that returned a chunk.
    pub hits: u64,
    /// Calls of `get` that did not.
    pub misses: u64,
    /// Chunks that could not be read or were not what their name says, and segments that were none.
    pub damaged: u64,
    /// Segments removed to make room.
    pub evicted: u64,
    /// Writes and removals of files that failed.
    pub write_errors: u64,
    /// Whether the index is still being rebuilt: chunks of earlier runs may be unknown yet.
    pub is_rebuilding: bool,
}

/// The counts that go up.
#[derive(Default)]
pub(super) struct Tallies {
    pub written: Tally,
    pub written_bytes: Tally,
    pub known: Tally,
    pub dropped: Tally,
    pub hits: Tally,
    pub misses: Tally,
    pub damaged: Tally,
    pub evicted: Tally,
    pub write_errors: Tally,
}

#[derive(Default)]
pub(super) struct Tally(AtomicU64);

impl Tally {
    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
