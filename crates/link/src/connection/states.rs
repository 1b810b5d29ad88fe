//! Frames that tell a state: of those that come late, the newest one counts.
//!
//! In: frames, and the numbers of the packets that carried them. Out: whether a frame is to be taken in.

use crate::wire::frame::Frame;

/// The packets that have brought the newest frame of each kind.
#[derive(Debug, Default)]
pub(super) struct States {
    rate_max: u64,
    initial_window: u64,
    path_hint: u64,
}

impl States {
    /// Whether a frame is no older state than what a packet with a higher number has brought.
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
        let mut states = States::default();
        let rate = Frame::RateMax { bytes_per_s: 1 };
        let hint = Frame::PathHint { rtt_us: 1 };
        assert!(states.takes(&rate, 7));
        assert!(!states.takes(&rate, 6));
        assert!(states.takes(&hint, 6), "another kind");
        assert!(states.takes(&rate, 8));
        assert!(states.takes(&Frame::Ping, 0));
    }
}
