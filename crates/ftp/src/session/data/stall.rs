//! Detection of a stalled data connection.

use std::time::Duration;

use super::DataProgress;

/// Bytes moved at the last check.
#[derive(Debug)]
pub(super) struct StallDetector {
    timeout: Duration,
    since: DataProgress,
    /// Checks of an awaited upload at which no bytes had moved.
    rests: u32,
}

impl StallDetector {
    /// Creates the check for a data connection that is reset after `timeout` without a byte.
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

    /// Checks for progress, a timeout after the last check. Returns an error text if no bytes have
    /// moved.
    pub(super) fn check(&mut self, progress: DataProgress) -> Option<String> {
        let bytes = |progress: &DataProgress| (progress.outbound_bytes, progress.inbound_bytes);
        let is_stalled = bytes(&progress) == bytes(&self.since);
        self.since = progress;
        let seconds = self.timeout.as_secs();
        is_stalled.then(|| format!("nothing has moved for {seconds} s"))
    }

    /// Checks an upload whose progress only the peer sees. Its bytes may come from a spool of a
    /// slow server. Returns an error text only after [`RESTS_MAX`] checks.
    pub(super) fn check_awaited(&mut self, progress: DataProgress) -> Option<String> {
        let stalled = self.check(progress)?;
        self.rests += 1;
        (self.rests > RESTS_MAX).then_some(stalled)
    }
}

/// Checks in a row: a day, if the timeout is an hour.
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
