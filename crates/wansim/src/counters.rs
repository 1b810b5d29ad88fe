//! Counters of the packets in one direction.

use serde::{Deserialize, Serialize};

/// Counts since the creation of the path.
///
/// Every sent packet is delivered, dropped for exactly one of the causes, or still in flight. A
/// duplicate is one more delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets sent over the path.
    pub sent: u64,
    /// IP bytes of the packets sent.
    pub sent_bytes: u64,
    /// Packets delivered, including duplicates.
    pub delivered: u64,
    /// IP bytes of the packets delivered.
    pub delivered_bytes: u64,
    /// Dropped because the bottleneck's queue was full.
    pub queue_drops: u64,
    /// Dropped because they exceeded the policer's rate.
    pub policer_drops: u64,
    /// Dropped because they exceeded the MTU.
    pub mtu_drops: u64,
    /// Lost at random.
    pub random_losses: u64,
    /// Lost by the Gilbert-Elliott chain.
    pub burst_losses: u64,
    /// Lost in an outage.
    pub outage_drops: u64,
    /// Delivered with one bit flipped.
    pub corrupted: u64,
    /// Delivered early or late ([`crate::Reordering`]).
    pub reordered: u64,
    /// Duplicates.
    pub duplicated: u64,
    /// Bytes in the bottleneck's queue now, as counted on the wire.
    pub queue_bytes: u64,
    /// Highest value of `queue_bytes` so far.
    pub queue_bytes_max: u64,
}

impl Counters {
    /// Returns the number of packets that were sent and will never arrive.
    pub fn dropped(&self) -> u64 {
        self.queue_drops
            + self.policer_drops
            + self.mtu_drops
            + self.random_losses
            + self.burst_losses
            + self.outage_drops
    }
}
