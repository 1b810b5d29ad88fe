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

/// Values of [`CodingCounters`] at one moment, or their increase between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CodingSnapshot {
    /// Number of application bytes before coding.
    pub bytes: u64,
    /// Number of bytes in the link streams after coding.
    pub wan_bytes: u64,
    /// Number of bytes that compression has saved.
    pub compression_saved_bytes: u64,
    /// Number of bytes that references have saved.
    pub deduplication_saved_bytes: u64,
    /// Processor time that this gateway has spent on coding and decoding.
    pub processor: Duration,
}

impl CodingSnapshot {
    /// Returns the increase since an earlier snapshot of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes - earlier.bytes,
            wan_bytes: self.wan_bytes - earlier.wan_bytes,
            compression_saved_bytes: self.compression_saved_bytes - earlier.compression_saved_bytes,
            // If the receiver lacks a referenced chunk, the saving is subtracted again, so this
            // counter can decrease.
            deduplication_saved_bytes: self
                .deduplication_saved_bytes
                .saturating_sub(earlier.deduplication_saved_bytes),
            processor: self.processor - earlier.processor,
        }
    }

    /// Returns the counts multiplied by `part` and divided by `whole`. `part` and `whole` are
    /// numbers of moved bytes.
    #[must_use]
    pub fn share(&self, part: u64, whole: u64) -> Self {
        let of = |count: u64| {
            let share = u128::from(count) * u128::from(part) / u128::from(whole.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        Self {
            bytes: of(self.bytes),
            wan_bytes: of(self.wan_bytes),
            compression_saved_bytes: of(self.compression_saved_bytes),
            deduplication_saved_bytes: of(self.deduplication_saved_bytes),
            processor: Duration::from_nanos(of(self.processor.as_nanos() as u64)),
        }
    }
}

impl CodingCounters {
    /// Adds a part of the counts of a stream that carries several transfers. The counters of all
    /// transfers already contain these counts.
    pub(crate) fn add_part(&self, part: &CodingSnapshot) {
        self.of_transfer.add(part);
    }

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
    pub fn snapshot(&self) -> CodingSnapshot {
        self.of_transfer.snapshot()
    }
}

impl CodingTotals {
    fn add(&self, part: &CodingSnapshot) {
        self.bytes.fetch_add(part.bytes, Relaxed);
        self.wan_bytes.fetch_add(part.wan_bytes, Relaxed);
        let saved = &self.compression_saved_bytes;
        saved.fetch_add(part.compression_saved_bytes, Relaxed);
        let saved = &self.deduplication_saved_bytes;
        saved.fetch_add(part.deduplication_saved_bytes, Relaxed);
        let processor_ns = part.processor.as_nanos() as u64;
        self.processor_ns.fetch_add(processor_ns, Relaxed);
    }

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
