//! Order of frames that state a property of the whole connection. If two frames are of the same
//! kind, only the newer frame is valid.
//!
//! Input: frames, and the numbers of the packets that carried them. Output: whether a frame is
//! valid.

use crate::wire::frame::Frame;

/// For each kind of frame, the highest number of a packet that carried such a frame.
#[derive(Debug, Default)]
pub(super) struct NewestFrames {
    rate_max: u64,
    initial_window: u64,
    path_hint: u64,
}

impl NewestFrames {
    /// Whether a frame is at least as new as the newest frame of its kind. If so, the frame is
    /// recorded as the newest.
    pub(super) fn takes(&mut self, frame: &Frame<'_>, number: u64) -> bool {
        let newest = match frame {
            Frame::RateMax { .. } => &mut self.rate_max,
            Frame::InitialWindow { .. } => &mut self.initial_window,
            Frame::PathHint { .. } => &mut self.path_hint,
            _ => return true,
        };
        let is_newest = number >= *newest;
        *newest = (*newest).max(number);
        is_newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_state_that_comes_late_does_not_count() {
        let mut newest_frames = NewestFrames::default();
        let rate = Frame::RateMax { bytes_per_s: 1 };
        let hint = Frame::PathHint { rtt_us: 1 };
        assert!(newest_frames.takes(&rate, 7));
        assert!(!newest_frames.takes(&rate, 6));
        assert!(newest_frames.takes(&hint, 6), "another kind");
        assert!(newest_frames.takes(&rate, 8));
        assert!(newest_frames.takes(&Frame::Ping, 0));
    }
}
