//! Limits on the number of streams that the peer may open, and that this side may open.

use super::{COUNT_MAX, StreamTable};
use crate::control_frame::ControlFrame;

impl StreamTable {
    pub(crate) fn set_peer_limit(&mut self, limit: u32) {
        self.peer_limit = self.peer_limit.max(limit);
    }

    /// Returns the total number of streams that the peer permits this side to open.
    #[cfg(feature = "sim")]
    pub(crate) fn peer_limit(&self) -> u32 {
        self.peer_limit
    }

    /// Returns the stream limit that is announced to the peer.
    pub(crate) fn stream_limit(&self) -> u32 {
        self.announced_limit
    }

    /// Raises the peer's stream limit if enough earlier streams have ended and memory permits the
    /// least windows of new streams.
    ///
    /// A peer may block this side's control frames about ended streams. If the number of waiting
    /// control frames exceeds the number of permitted streams, the excess counts as open streams.
    pub(crate) fn raise_limit(&mut self) {
        let streams_max = self.streams_max as usize;
        let waiting = self.controls.len().saturating_sub(streams_max);
        let taken = self.peer_open as usize + self.peer_skipped.len() + waiting;
        let free = streams_max.saturating_sub(taken) as u32;
        let wanted = (self.peer_count + free.min(self.streams_at_first)).min(COUNT_MAX);
        let step = self.streams_at_first / 4;
        if wanted < self.announced_limit + step {
            return;
        }
        let fit = u32::try_from(self.memory.room_for_peer_streams()).unwrap_or(COUNT_MAX);
        let limit = wanted.min(self.announced_limit.saturating_add(fit));
        if limit >= self.announced_limit + step {
            self.announced_limit = limit;
            self.controls.push(ControlFrame::StreamLimit);
        }
        self.reserve_streams();
    }

    /// Reserves memory for the streams that the peer has open or may still open.
    pub(super) fn reserve_streams(&mut self) {
        let over = self.peer_count - self.peer_open - self.peer_skipped.len() as u32;
        let allowed = u64::from(self.announced_limit - over);
        self.memory.allow_peer_streams(allowed);
    }
}
