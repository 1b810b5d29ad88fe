//! Detection of pauses in which the application of an open stream may wait for an answer.
//!
//! The input is each pass of repeats over the stream, and the bytes written until then. The output
//! is whether the pause is long enough to repeat slots in flight.

/// Length of the first pause that counts, in passes of repeats: a fraction of a round trip.
const PASSES: u32 = 4;

/// Detector of a pause: the time without new bytes.
#[derive(Debug)]
pub(super) struct IdleDetector {
    /// Passes in a row before which no bytes were written.
    passes: u32,
    /// Passes that make a pause count. They double after a pause that ended after all, so that an
    /// application that writes in bursts does not pay for each pause.
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
    /// Records the start of a pass, and the bytes written in all.
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

    /// Whether the application may wait for an answer.
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
