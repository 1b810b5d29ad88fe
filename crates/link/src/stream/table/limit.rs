//! How many streams each side lets the other open.

use super::{COUNT_MAX, Streams};
use crate::control_frame::Control;

impl Streams {
    pub(crate) fn set_peer_limit(&mut self, limit: u32) {
        self.peer_limit = self.peer_limit.max(limit);
    }

    /// How many streams the peer lets us open in all.
    #[cfg(feature = "sim")]
    pub(crate) fn peer_limit(&self) -> u32 {
        self.peer_limit
    }

    /// The stream limit to tell the peer.
    pub(crate) fn stream_limit(&self) -> u32 {
        self.told_limit
    }

    /// Lets the peer open more streams when enough are over. A peer may hold up what we have to say of those that
    /// are over, so of the frames that wait those beyond one for each stream count as streams.
    pub(crate) fn raise_limit(&mut self) {
        let streams_max = self.streams_max as usize;
        let unsaid = self.controls.len().saturating_sub(streams_max);
        let taken = self.peer_open as usize + self.peer_skipped.len() + unsaid;
        let free = streams_max.saturating_sub(taken) as u32;
        let limit = (self.peer_count + free).min(COUNT_MAX);
        if limit >= self.told_limit + self.streams_max / 4 {
            self.told_limit = limit;
            self.controls.push(Control::StreamLimit);
        }
    }
}
