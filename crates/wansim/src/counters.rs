//! What became of the packets of one direction.

use serde::{Deserialize, Serialize};

/// Counts since the path was made. Every packet sent is delivered, dropped under exactly one of the
/// causes, or still on its way; a duplicate is one more delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets handed to the path.
    pub sent: u64,
    /// Their IP bytes.
    pub sent_bytes: u64,
    /// Packets that came out of the path, duplicates included.
    pub delivered: u64,
    /// Their IP bytes.
    pub delivered_bytes: u64,
    /// Dropped because the bottleneck's queue was full.
    pub queue_drops: u64,
    /// Dropped because they exceeded the policer's rate.
    pub policer_drops: u64,
    /// Dropped because longer than the MTU.
    pub mtu_drops: u64,
    /// Lost at random.
    pub random_losses: u64,
    /// Lost by the Gilbert-Elliott chain.
    pub burst_losses: u64,
    /// Lost in an outage.
    pub outage_drops: u64,
    /// Sent on with one bit flipped.
    pub corrupted: u64,
    /// Sent on early or late ([`crate::Reordering`]).
    pub reordered: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Bytes in the bottleneck's queue now, as they count on the wire.
    pub queue_bytes: u64,
    /// Highest value of `queue_bytes` so far.
    pub queue_bytes_max: u64,
}

impl Counters {
    /// Packets that were sent and will never arrive.
    pub fn dropped(&self) -> u64 {
        self.queue_drops
            + self.policer_drops
            + self.mtu_drops
            + self.random_losses
            + self.burst_losses
            + self.outage_drops
    }
}
