//! The clock that limits how long a session waits for its server.

use ftp::session::far::{FarInput, ServerWait};
use tokio::time::{Instant, sleep_until};

use super::{Session, SessionError};

/// The present wait, and its start.
#[derive(Debug)]
pub(super) struct WaitClock {
    current: Option<ServerWait>,
    since: Instant,
    /// Bytes moved on the session's data connections at that time.
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
    /// Returns the end of the wait. `None` if there is no wait.
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

/// Resolves at `until`, and never without it.
pub(super) async fn wait_until(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
