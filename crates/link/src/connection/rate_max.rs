//! Caps that operators set on the rate of a connection.

use units::BitRate;

/// The caps on one connection: ours, and what each side tells the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RateMax {
    ours: Option<BitRate>,
    /// What the peer may send us.
    for_peer: Option<BitRate>,
    /// What the peer lets us send, in bytes per second; zero means no bound.
    by_peer: u64,
}

impl RateMax {
    /// Takes on new caps. Returns whether the peer must be told.
    pub(super) fn set(&mut self, ours: Option<BitRate>, for_peer: Option<BitRate>) -> bool {
        let is_news = self.for_peer != for_peer;
        self.ours = ours;
        self.for_peer = for_peer;
        is_news
    }

    pub(super) fn set_by_peer(&mut self, bytes_per_s: u64) {
        self.by_peer = bytes_per_s;
    }

    /// What to tell the peer, in bytes per second; zero means no bound.
    pub(super) fn for_peer(&self) -> u64 {
        self.for_peer.map_or(0, |rate| rate.as_bits_per_s() / 8)
    }

    /// The lower of what both sides let us send.
    pub(super) fn bytes_per_s(&self) -> f64 {
        let ours = self.ours.map_or(f64::INFINITY, BitRate::as_bytes_per_s);
        match self.by_peer {
            0 => ours,
            by_peer => ours.min(by_peer as f64),
        }
    }
}
