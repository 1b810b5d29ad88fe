//! Caps that operators set on the rate of a connection.
//!
//! Each side may cap its own sending, and the peer's sending. The lower cap counts. The pacer
//! applies it.

use units::BitRate;

/// Caps on one connection: our own, our cap for the peer, and the peer's cap for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RateMax {
    ours: Option<BitRate>,
    /// The cap that we set on the peer's sending.
    for_peer: Option<BitRate>,
    /// The cap that the peer set on our sending, in bytes per second; zero means no cap.
    by_peer: u64,
}

impl RateMax {
    /// Sets new caps. Returns whether the peer must receive a new one.
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

    /// Returns the cap for the peer, in bytes per second; zero means no cap.
    pub(super) fn for_peer(&self) -> u64 {
        self.for_peer.map_or(0, |rate| rate.as_bits_per_s() / 8)
    }

    /// Returns the lower of the two caps on our sending.
    pub(super) fn bytes_per_s(&self) -> f64 {
        let ours = self.ours.map_or(f64::INFINITY, BitRate::as_bytes_per_s);
        match self.by_peer {
            0 => ours,
            by_peer => ours.min(by_peer as f64),
        }
    }
}
