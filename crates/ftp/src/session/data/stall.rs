//! Detection of a stalled data connection.

use std::time::Duration;

use super::DataProgress;

/// Detects a data connection on which no byte moves. The detector compares the byte counts of two
/// successive checks.
#[derive(Debug)]
pub(super) struct StallDetector {
    timeout: Duration,
    since: DataProgress,
    /// Number of checks that detected no progress. The detector counts only checks of an upload
    /// whose bytes the peer may still be writing.
    rests: u32,
}

impl StallDetector {
    /// Creates a detector. The gateway resets the data connection if no byte moves for `timeout`.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            since: DataProgress::default(),
            rests: 0,
        }
    }

    /// Returns the time of the next check.
    pub(super) fn next(&self, now: Duration) -> Duration {
        now + self.timeout
    }

    /// Checks whether bytes have moved since the last check. The interval between two checks is one
    /// timeout. Returns an error text if no byte has moved.
    pub(super) fn check(&mut self, progress: DataProgress) -> Option<String> {
        let bytes = |progress: &DataProgress| (progress.outbound_bytes, progress.inbound_bytes);
        let is_stalled = bytes(&progress) == bytes(&self.since);
        self.since = progress;
        let seconds = self.timeout.as_secs();
        is_stalled.then(|| format!("nothing has moved for {seconds} s"))
    }

    /// Checks an upload whose progress only the peer can measure. The peer may still be writing the
    /// bytes from a spool to a slow server. Returns an error text only if more than [`RESTS_MAX`]
    /// checks detect no progress.
    pub(super) fn check_awaited(&mut self, progress: DataProgress) -> Option<String> {
        let stalled = self.check(progress)?;
        self.rests += 1;
        (self.rests > RESTS_MAX).then_some(stalled)
    }
}

/// Maximum number of checks without progress. With a timeout of one hour, 24 checks take one day.
const RESTS_MAX: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_of_an_awaited_upload_permits_a_day_of_rest() {
        let mut stall = StallDetector::new(Duration::from_secs(3600));
        let moved = DataProgress {
            outbound_bytes: 1,
            ..DataProgress::default()
        };
        assert_eq!(stall.check_awaited(moved), None);
        for _ in 0..RESTS_MAX {
            assert_eq!(stall.check_awaited(moved), None);
        }
        assert!(stall.check_awaited(moved).is_some());
        assert!(stall.check(moved).is_some(), "other checks report a stall");
    }
}
