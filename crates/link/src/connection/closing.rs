//! End of a connection: the copies of the close, and the reason.
//!
//! The input is the request to close, and reasons why a connection is over. The output is the time
//! of the next copy, and the end.

use std::time::Duration;

use crate::time::Time;

/// Reason why a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// The peer closed it.
    ByPeer,
    /// The peer closed it because our key no longer belongs to its peers.
    Dismissed,
    /// We closed it.
    ByUs,
    /// No packet came for the idle timeout.
    Silence(Duration),
    /// The peer broke the protocol.
    Violation,
    /// Keys may not be used further.
    KeysWornOut,
}

/// Progress of the end of a connection.
#[derive(Debug, Default)]
pub(super) struct Closing {
    close: Option<PendingClose>,
    end: Option<ConnectionEnd>,
}

#[derive(Debug, Clone, Copy)]
struct PendingClose {
    code: u32,
    copies: u32,
    next: Time,
}

/// Code of a close: the receiver's key no longer belongs to a peer. All other closes have the code
/// 0.
pub(crate) const CLOSE_DISMISSED: u32 = 1;

/// Number of times a close is sent, since no other packet repeats it.
const CLOSE_COPIES: u32 = 3;
/// Time between two copies of a close: longer than most bursts of losses.
const CLOSE_APART: Duration = Duration::from_millis(40);

impl Closing {
    /// Starts sending the close to the peer.
    pub(super) fn begin(&mut self, code: u32) {
        self.close.get_or_insert(PendingClose {
            code,
            copies: CLOSE_COPIES,
            next: Time::default(),
        });
    }

    /// Whether the close is being sent.
    pub(super) fn is_begun(&self) -> bool {
        self.close.is_some()
    }

    /// Returns the time of the next copy of the close.
    pub(super) fn due(&self) -> Option<Time> {
        self.close.map(|close| close.next)
    }

    /// Takes the code of the copy to send now. The last copy ends the connection.
    pub(super) fn take_copy(&mut self, now: Time) -> Option<u32> {
        let close = self.close.as_mut()?;
        close.copies = close.copies.saturating_sub(1);
        close.next = now + CLOSE_APART;
        let (code, is_last) = (close.code, close.copies == 0);
        if is_last {
            self.set_end(ConnectionEnd::ByUs);
        }
        Some(code)
    }

    /// Ends the connection; the first reason counts.
    pub(super) fn set_end(&mut self, end: ConnectionEnd) {
        self.end.get_or_insert(end);
    }

    /// Returns the reason why the connection is over. `None` while it is not.
    pub(super) fn end(&self) -> Option<ConnectionEnd> {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_told_three_times_and_then_the_connection_is_over() {
        let mut closing = Closing::default();
        assert_eq!(closing.due(), None);
        closing.begin(7);
        closing.begin(8);
        let mut now = Time(1_000_000_000);
        for copy in 1..=3 {
            assert!(closing.due().is_some_and(|due| due <= now));
            assert_eq!(closing.end(), None);
            assert_eq!(closing.take_copy(now), Some(7), "copy {copy}");
            assert_eq!(closing.due(), Some(now + CLOSE_APART));
            now = now + CLOSE_APART;
        }
        assert_eq!(closing.end(), Some(ConnectionEnd::ByUs));
    }

    #[test]
    fn the_first_reason_of_the_end_counts() {
        let mut closing = Closing::default();
        closing.set_end(ConnectionEnd::ByPeer);
        closing.set_end(ConnectionEnd::Violation);
        assert_eq!(closing.end(), Some(ConnectionEnd::ByPeer));
        assert!(!closing.is_begun());
    }
}
