//! Caps that operators set on the rate of a connection.
//!
//! Each side may cap its own sending rate and the peer's sending rate. A sending rate may thus have
//! two caps, one from each side. The lower cap applies, and the pacer enforces it.

use units::BitRate;

/// Rate caps of one connection: this side's own cap, its cap for the peer, and the peer's cap for
/// this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RateMax {
    ours: Option<BitRate>,
    /// Cap that this side sets on the peer's sending rate.
    for_peer: Option<BitRate>,
    /// Cap that the peer sets on this side's sending rate, in bytes per second. Zero means no cap.
    by_peer: u64,
}

impl RateMax {
    /// Sets new caps. Returns whether the cap for the peer has changed, so that it must be sent to
    /// the peer.
    pub(super) fn set(&mut self, ours: Option<BitRate>, for_peer: Option<BitRate>) -> bool {
        let is_news = self.for_peer != for_peer;
        self.ours = ours;
        self.for_peer = for_peer;
        is_news
    }

    pub(super) fn ours(&self) -> Option<BitRate> {
        self.ours
    }

    pub(super) fn set_by_peer(&mut self, bytes_per_s: u64) {
        self.by_peer = bytes_per_s;
    }

    /// Returns the cap for the peer in bytes per second. Zero means no cap.
    pub(super) fn for_peer(&self) -> u64 {
        self.for_peer.map_or(0, |rate| rate.as_bits_per_s() / 8)
    }

    /// Returns the lower of the two caps on this side's sending rate, in bytes per second. Returns
    /// infinity if there is no cap.
    pub(super) fn bytes_per_s(&self) -> f64 {
        let ours = self.ours.map_or(f64::INFINITY, BitRate::as_bytes_per_s);
        match self.by_peer {
            0 => ours,
            by_peer => ours.min(by_peer as f64),
        }
    }
}
