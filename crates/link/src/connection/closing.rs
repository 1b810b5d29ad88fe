//! End of a connection: the copies of the CLOSE frame, and the reason for the end.
//!
//! Input: requests to close, and events that end the connection. Output: the time of the next copy
//! of the CLOSE frame, and the reason for the end.

use std::time::Duration;

use crate::time::Time;

/// Reason why a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// The peer closed the connection.
    ByPeer,
    /// The peer closed the connection because this gateway's key was removed from the peer's
    /// configuration.
    Dismissed,
    /// This side closed the connection.
    ByUs,
    /// No packet arrived within the idle timeout. The value is the time since the last packet.
    Silence(Duration),
    /// The peer violated the protocol.
    Violation,
    /// The keys have reached their usage limit.
    KeysWornOut,
}

/// Progress of closing a connection.
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

/// Code of a CLOSE frame whose sender no longer accepts the receiver's key. All other CLOSE frames
/// have the code 0.
pub(crate) const CLOSE_DISMISSED: u32 = 1;

/// Number of copies of a CLOSE frame. Several copies are sent because a lost CLOSE frame is never
/// retransmitted.
const CLOSE_COPIES: u32 = 3;
/// Time between two copies of a CLOSE frame. The time is longer than most bursts of losses.
const CLOSE_APART: Duration = Duration::from_millis(40);

impl Closing {
    /// Starts to send copies of a CLOSE frame with `code` to the peer.
    pub(super) fn begin(&mut self, code: u32) {
        self.close.get_or_insert(PendingClose {
            code,
            copies: CLOSE_COPIES,
            next: Time::default(),
        });
    }

    /// Whether this side has started to close the connection.
    pub(super) fn is_begun(&self) -> bool {
        self.close.is_some()
    }

    /// Returns the time of the next copy of the CLOSE frame.
    pub(super) fn due(&self) -> Option<Time> {
        self.close.map(|close| close.next)
    }

    /// Returns the code of the copy to send now. The last copy ends the connection.
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

    /// Ends the connection and stores the reason. If the connection had already ended, the first
    /// reason is kept.
    pub(super) fn set_end(&mut self, end: ConnectionEnd) {
        self.end.get_or_insert(end);
    }

    /// Returns the reason why the connection has ended, or `None` if it has not ended.
    pub(super) fn end(&self) -> Option<ConnectionEnd> {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_close_is_sent_three_times_and_then_the_connection_is_over() {
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
