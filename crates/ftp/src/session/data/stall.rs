//! Whether a data connection still moves.

use std::time::Duration;

use super::Progress;

/// What had moved when that was last looked at.
#[derive(Debug)]
pub(super) struct Stall {
    timeout: Duration,
    since: Progress,
}

impl Stall {
    /// For a data connection that is reset after `timeout` without a byte.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            since: Progress::default(),
        }
    }

    /// When to look next.
    pub(super) fn next(&self, now: Duration) -> Duration {
        now + self.timeout
    }

    /// Looks, a timeout after the last time. `Some` if nothing has moved: what to say.
    pub(super) fn check(&mut self, progress: Progress) -> Option<String> {
        let bytes = |progress: &Progress| (progress.outbound_bytes, progress.inbound_bytes);
        let is_stalled = bytes(&progress) == bytes(&self.since);
        self.since = progress;
        let seconds = self.timeout.as_secs();
        is_stalled.then(|| format!("nothing has moved for {seconds} s"))
    }
}
