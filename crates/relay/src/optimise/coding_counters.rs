//! Counters of coding (compression and deduplication): bytes before and after coding, and processor
//! time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use nix::time::{ClockId, clock_gettime};
use optimiser::{counts::CodingCounts, frame::REFERENCE_BYTES};

/// Counters of one transfer, for both directions together. An increase of these counters also
/// increases the counters of all transfers.
#[derive(Debug)]
pub struct CodingCounters {
    of_transfer: CodingTotals,
    of_all: Arc<CodingTotals>,
}

/// Sums over all coded bytes of one transfer, or of all transfers.
#[derive(Debug, Default)]
pub(crate) struct CodingTotals {
    bytes: AtomicU64,
    wan_bytes: AtomicU64,
    compression_saved_bytes: AtomicU64,
    deduplication_saved_bytes: AtomicU64,
    processor_ns: AtomicU64,
}

/// Values of [`CodingTotals`] at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CodingSnapshot {
    /// Number of application bytes before coding.
    pub(crate) bytes: u64,
    /// Number of bytes in the link streams after coding.
    pub(crate) wan_bytes: u64,
    pub(crate) compression_saved_bytes: u64,
    pub(crate) deduplication_saved_bytes: u64,
    /// Processor time that this gateway has spent on coding and decoding.
    pub(crate) processor: Duration,
}

impl CodingCounters {
    /// Creates the counters of a new transfer. `of_all` are the counters of all transfers.
    pub(crate) fn new(of_all: Arc<CodingTotals>) -> Self {
        Self {
            of_transfer: CodingTotals::default(),
            of_all,
        }
    }

    /// Adds the bytes that were encoded or decoded since the last call.
    pub fn add(&self, counts: &CodingCounts) {
        self.each(|sums| {
            sums.bytes.fetch_add(counts.bytes, Relaxed);
            sums.wan_bytes.fetch_add(counts.coded_bytes, Relaxed);
            let saved = &sums.compression_saved_bytes;
            saved.fetch_add(counts.compression_saved_bytes, Relaxed);
            let saved = &sums.deduplication_saved_bytes;
            saved.fetch_add(counts.references_saved_bytes, Relaxed);
        });
    }

    /// Counts a referenced chunk that the receiver did not have. The sender has sent that chunk
    /// later in a frame, so the reference saved no bytes.
    ///
    /// The saving was already counted. The function subtracts it only from the counters of the
    /// transfer. The counters of all transfers keep the saving, because counters must never
    /// decrease.
    pub(super) fn count_missing(&self, chunk_bytes: usize, frame_bytes: usize) {
        self.each(|sums| {
            sums.wan_bytes.fetch_add(frame_bytes as u64, Relaxed);
        });
        let saved = &self.of_transfer.deduplication_saved_bytes;
        let was = chunk_bytes.saturating_sub(REFERENCE_BYTES) as u64;
        let less = |saved: u64| Some(saved.saturating_sub(was));
        let _ = saved.fetch_update(Relaxed, Relaxed, less);
    }

    /// Calls `work`, and counts its processor time.
    pub(super) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = processor_time();
        let result = work();
        let took = processor_time().saturating_sub(before);
        self.each(|sums| {
            sums.processor_ns.fetch_add(took.as_nanos() as u64, Relaxed);
        });
        result
    }

    fn each(&self, add: impl Fn(&CodingTotals)) {
        add(&self.of_transfer);
        add(&self.of_all);
    }

    /// Returns the present counts of the transfer.
    pub(crate) fn snapshot(&self) -> CodingSnapshot {
        self.of_transfer.snapshot()
    }
}

impl CodingTotals {
    pub(crate) fn snapshot(&self) -> CodingSnapshot {
        CodingSnapshot {
            bytes: self.bytes.load(Relaxed),
            wan_bytes: self.wan_bytes.load(Relaxed),
            compression_saved_bytes: self.compression_saved_bytes.load(Relaxed),
            deduplication_saved_bytes: self.deduplication_saved_bytes.load(Relaxed),
            processor: Duration::from_nanos(self.processor_ns.load(Relaxed)),
        }
    }
}

/// Returns the processor time of the calling thread.
fn processor_time() -> Duration {
    // Every Linux has this clock.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
