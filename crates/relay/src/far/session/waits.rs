//! Timer that limits the wait of a session for its server.

use ftp::session::far::{FarInput, ServerWait};
use tokio::time::{Instant, sleep_until};

use super::{Session, SessionError};

/// Present wait of a session for its server, and the start of the wait.
#[derive(Debug)]
pub(super) struct WaitClock {
    current: Option<ServerWait>,
    since: Instant,
    /// Number of bytes moved on the session's data connections at the latest check.
    moved_bytes: u64,
}

impl Default for WaitClock {
    fn default() -> Self {
        Self {
            current: None,
            since: Instant::now(),
            moved_bytes: 0,
        }
    }
}

impl WaitClock {
    /// Returns the time at which the wait expires. Returns `None` if the session does not wait for
    /// its server.
    pub(super) fn until(&mut self, wait: Option<ServerWait>) -> Option<Instant> {
        let number = |wait: Option<ServerWait>| wait.map(|wait| wait.number);
        if number(wait) != number(self.current) {
            self.since = Instant::now();
        }
        self.current = wait;
        wait.map(|wait| self.since + wait.time)
    }
}

impl Session<'_> {
    pub(super) fn handle_wait_timeout(
        &mut self,
        waits: &mut WaitClock,
    ) -> Result<(), SessionError> {
        let transfers = self
            .data
            .values()
            .filter_map(|data| data.transfer.upgrade());
        let moved_bytes = transfers
            .map(|transfer| {
                let (outbound, inbound) = transfer.meters();
                outbound.bytes() + inbound.bytes()
            })
            .sum();
        let counts_data = waits.current.is_some_and(|wait| wait.counts_data);
        if counts_data && waits.moved_bytes != moved_bytes {
            waits.moved_bytes = moved_bytes;
            waits.since = Instant::now();
            return Ok(());
        }
        Ok(self.far.handle(FarInput::WaitTimedOut)?)
    }
}

/// Waits until the time `until`. If `until` is `None`, the future never resolves.
pub(super) async fn wait_until(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
