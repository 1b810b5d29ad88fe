//! How dense the traffic of a driver is.

use std::time::{Duration, Instant};

/// How long the driver sleeps while packets flow: the quantum of pacing.
pub(super) const TICK: Duration = Duration::from_micros(400);

/// How dense the traffic is: whether waking for each packet costs more than ticks.
///
/// A line that grows by what is sent or received, and drains with time. Commands and replies find it short,
/// and wait for no tick; each passes four drivers on its way to the server and back.
pub(super) struct Flow {
    drained: Instant,
}

/// In a tick a full packet drains: where they come closer together, ticks wake the driver less often.
const BYTE_DRAINS: Duration = Duration::from_nanos(TICK.as_nanos() as u64 / 1500);
/// A batch costs as much as this number of bytes, in addition to its own.
const BATCH_BYTES: usize = 150;
/// A longer line is dense: 24 KB, so that a small file's is not.
const SPARSE_MAX: Duration = TICK.saturating_mul(16);
/// The line grows no longer than by this: so long the driver goes on in ticks after the last packet.
const DENSE: Duration = Duration::from_millis(3);

impl Flow {
    pub(super) fn new(now: Instant) -> Self {
        Self { drained: now }
    }

    /// Adds a batch of packets with `bytes` bytes.
    pub(super) fn moved(&mut self, bytes: usize, now: Instant) {
        let line_max = SPARSE_MAX + DENSE;
        let bytes = u32::try_from(BATCH_BYTES + bytes).unwrap_or(u32::MAX);
        let more = BYTE_DRAINS.saturating_mul(bytes).min(line_max);
        self.drained = (self.drained.max(now) + more).min(now + line_max);
    }

    pub(super) fn is_dense(&self, now: Instant) -> bool {
        now + SPARSE_MAX < self.drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether batches of `bytes` bytes, `apart` from each other, end up dense.
    fn is_dense(bytes: usize, apart: Duration) -> bool {
        let mut now = Instant::now();
        let mut flow = Flow::new(now);
        for _ in 0..10_000 {
            now += apart;
            flow.moved(bytes, now);
        }
        flow.is_dense(now)
    }

    #[test]
    fn commands_are_sparse_and_bulk_data_is_dense() {
        // A command or reply and the reports about it, four packets, each half millisecond.
        assert!(!is_dense(100, Duration::from_micros(125)));
        // 20 and 50 Mbit/s.
        assert!(!is_dense(1500, Duration::from_micros(600)));
        assert!(is_dense(1500, Duration::from_micros(240)));
    }

    #[test]
    fn what_was_dense_is_sparse_three_milliseconds_later() {
        let mut now = Instant::now();
        let mut flow = Flow::new(now);
        for _ in 0..1000 {
            now += TICK;
            flow.moved(64 * 1024, now);
        }
        assert!(flow.is_dense(now + DENSE - TICK));
        assert!(!flow.is_dense(now + DENSE + TICK));
    }
}
