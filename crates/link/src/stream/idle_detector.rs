//! Detection of write pauses on an open stream. In such a pause, the application may be waiting for
//! a reply to the bytes that are in flight.
//!
//! While the path is idle, slots in flight are repeated in passes over all of them. Input: each
//! pass, and the number of bytes written before the pass. Output: whether the pause is long enough
//! to repeat slots of this stream.

/// Number of passes after which a stream's first pause counts as long. Each pass visits all slots
/// that may be repeated. These passes together take a fraction of a round trip.
const PASSES: u32 = 4;

/// Detector of a write pause: the time since the application last wrote bytes.
#[derive(Debug)]
pub(super) struct IdleDetector {
    /// Number of consecutive passes since the application last wrote bytes.
    passes: u32,
    /// Number of passes after which a pause counts as long. After a long pause ends, the number
    /// becomes twice the length of that pause. An application that writes in bursts thus does not
    /// cause repeats in each pause.
    passes_needed: u32,
    written_bytes: u64,
}

impl Default for IdleDetector {
    fn default() -> Self {
        Self {
            passes: 0,
            passes_needed: PASSES,
            written_bytes: 0,
        }
    }
}

impl IdleDetector {
    /// Records the start of a pass over the slots to repeat. `written_bytes` is the total number of
    /// bytes written to the stream.
    pub(super) fn on_pass(&mut self, written_bytes: u64) {
        if written_bytes != self.written_bytes {
            if self.is_long() {
                self.passes_needed = self.passes.saturating_mul(2);
            }
            self.passes = 0;
        } else {
            self.passes = self.passes.saturating_add(1);
        }
        self.written_bytes = written_bytes;
    }

    /// Whether the pause is long enough that the application may be waiting for a reply.
    pub(super) fn is_long(&self) -> bool {
        self.passes >= self.passes_needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(idle: &mut IdleDetector, written_bytes: u64, count: u32) {
        for _ in 0..count {
            idle.on_pass(written_bytes);
        }
    }

    #[test]
    fn a_pause_counts_after_some_passes() {
        let mut idle = IdleDetector::default();
        passes(&mut idle, 1000, PASSES);
        assert!(!idle.is_long(), "the first pass sees what was written");
        passes(&mut idle, 1000, 1);
        assert!(idle.is_long());
        passes(&mut idle, 2000, 1);
        assert!(!idle.is_long());
    }

    #[test]
    fn after_a_pause_that_ended_the_next_must_last_twice_as_long() {
        let mut idle = IdleDetector::default();
        passes(&mut idle, 1000, 1 + PASSES);
        passes(&mut idle, 2000, 2 * PASSES);
        assert!(!idle.is_long());
        passes(&mut idle, 2000, 1);
        assert!(idle.is_long());
    }
}
