//! Counters of the packets in one direction.

use serde::{Deserialize, Serialize};

/// Counts since the creation of the path.
///
/// Every sent packet is delivered, dropped for exactly one reason, or still in flight. A duplicate
/// counts as one more delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets sent over the path.
    pub sent: u64,
    /// IP bytes of the sent packets.
    pub sent_bytes: u64,
    /// Packets delivered, including duplicates.
    pub delivered: u64,
    /// IP bytes of the delivered packets, including duplicates.
    pub delivered_bytes: u64,
    /// Packets dropped because the bottleneck's queue was full.
    pub queue_drops: u64,
    /// Packets dropped because they exceeded the policer's rate.
    pub policer_drops: u64,
    /// Packets dropped because they exceeded the MTU.
    pub mtu_drops: u64,
    /// Packets lost at random, independently of each other.
    pub random_losses: u64,
    /// Packets lost in bursts by the Gilbert-Elliott chain.
    pub burst_losses: u64,
    /// Packets lost in an outage.
    pub outage_drops: u64,
    /// Packets delivered with one flipped bit.
    pub corrupted: u64,
    /// Packets delivered early or late because of [`crate::Reordering`].
    pub reordered: u64,
    /// Number of duplicates that were made.
    pub duplicated: u64,
    /// Present number of bytes in the bottleneck's queue, including Ethernet overhead.
    pub queue_bytes: u64,
    /// Highest value of `queue_bytes` so far.
    pub queue_bytes_max: u64,
}

impl Counters {
    /// Returns the number of sent packets that were dropped or lost.
    pub fn dropped(&self) -> u64 {
        self.queue_drops
            + self.policer_drops
            + self.mtu_drops
            + self.random_losses
            + self.burst_losses
            + self.outage_drops
    }
}
