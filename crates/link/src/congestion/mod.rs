//! Congestion control: the sending rate, and the limit of bytes in flight.
//!
//! The input is sent packets, reports of the peer as [`Digest`]s, and the time in seconds since the
//! endpoint's epoch. The output is a pacing rate and a window.
//!
//! A controller owns no timer and no socket. The connection decides which packets to send. One
//! controller serves one connection between two gateways.

mod fixed;
mod knee;

pub use fixed::FixedRate;
#[cfg(feature = "ablation")]
pub use knee::Mechanism;
pub use knee::{Knee, KneePolicy};
use units::BitRate;

use crate::Policy;

pub use crate::recovery::{PacketArrival, ResolvedPacket};

/// Report of the peer, in the form that a controller reads.
#[derive(Debug, Default)]
pub struct Digest<'a> {
    /// Packets acknowledged or declared lost since the previous report, in the order of their
    /// numbers.
    pub resolved: &'a [ResolvedPacket],
    /// Sending times of spuriously lost packets, in seconds since the endpoint's epoch.
    pub late_sent_s: &'a [f64],
    /// Arrivals of some packets at the peer, oldest first. The peer reports only a sample of its
    /// receive times.
    pub arrivals: &'a [PacketArrival],
    /// Total bytes that the peer has received, and the time of this count in seconds of the peer's
    /// clock.
    pub received: (u64, f64),
    /// Round-trip time in seconds, without the delay of the report at the peer. `None` if the
    /// report gives no round-trip time.
    pub rtt_s: Option<f64>,
    /// Bytes neither acknowledged nor declared lost.
    pub bytes_in_flight: u64,
    /// Total bytes sent on the connection.
    pub bytes_sent: u64,
    /// Reordering window in seconds: the time by which a packet may arrive late before it counts as
    /// lost.
    pub reorder_window_s: f64,
    /// Whether the application or a configured maximum rate kept the sender below the controller's
    /// rate.
    pub app_limited: bool,
}

impl Digest<'_> {
    /// Returns the number of bytes that the report acknowledges or declares lost.
    fn resolved_bytes(&self) -> u64 {
        self.resolved.iter().map(|packet| packet.bytes as u64).sum()
    }
}

/// Measurements of the path from an earlier connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathMemory {
    /// Capacity measured last, in bytes per second.
    pub capacity_bytes_per_s: f64,
    /// Fraction of packets that the path loses at any sending rate.
    pub loss_floor: f64,
}

/// Creates the controller for a policy. `memory` holds measurements from an earlier connection.
/// `rate_max` limits a reserved rate.
pub fn for_policy(
    policy: Policy,
    memory: Option<PathMemory>,
    rate_max: Option<BitRate>,
) -> Box<dyn Controller> {
    match policy {
        Policy::Reserved(rate) => {
            let rate = rate_max.map_or(rate, |max| max.min(rate));
            Box::new(FixedRate::new(rate.as_bytes_per_s()))
        }
        Policy::Fair => Box::new(Knee::new(KneePolicy::Fair, memory)),
        Policy::Background => Box::new(Knee::new(KneePolicy::Background, memory)),
    }
}

/// Function that creates a controller. The arguments are measurements from an earlier connection
/// and a maximum rate.
pub type ControllerFactory =
    dyn Fn(Option<PathMemory>, Option<BitRate>) -> Box<dyn Controller> + Send + Sync;

/// Congestion controller of one connection.
pub trait Controller: Send {
    /// Records a sent packet of `bytes` bytes on the wire.
    fn on_sent(&mut self, number: u64, bytes: usize, now_s: f64);
    /// Handles a report of the peer.
    fn on_report(&mut self, digest: &Digest<'_>, now_s: f64);
    /// Returns the sending rate in bytes per second on the wire.
    fn rate_bytes_per_s(&self) -> f64;
    /// Returns the maximum number of bytes on the wire that may be in flight.
    fn window_bytes(&self) -> f64;
    /// Returns the number of packets in a packet train that the controller requests. Returns zero
    /// if it requests none.
    ///
    /// The connection sends the train once the application has enough data for the train or for 16
    /// of its packets. The connection sends the packets back to back and before any other packet.
    /// The spacing of the arrivals then shows the capacity.
    ///
    /// `room_bytes` is the room in the window. If the whole train does not fit into the room, the
    /// result is zero.
    fn train_wanted(&self, room_bytes: f64) -> usize {
        let _ = room_bytes;
        0
    }
    /// Records that the requested train starts with the next packet and has `packets` packets.
    fn on_train_begun(&mut self, packets: usize, now_s: f64) {
        let _ = (packets, now_s);
    }
    /// Returns the number of bytes that may be in flight without pacing. The connection uses this
    /// permission only if all new bytes that it counts fit. Bulk transfers are therefore paced.
    fn unpaced_bytes(&self) -> f64 {
        0.0
    }
    /// Returns measurements of the path for a later connection. Returns `None` if the controller
    /// has none yet.
    fn memory(&self) -> Option<PathMemory>;
    /// Returns the name of the controller's present state, for logs and traces.
    fn state(&self) -> &'static str;
    /// Returns whether the route has become longer since the last call. If so, earlier round-trip
    /// times do not apply to the new route.
    fn take_longer_route(&mut self) -> bool {
        false
    }
    /// Discards the recent losses. The lost packets were larger than the path's maximum packet
    /// size, so the losses are no evidence about the rate.
    fn forgive_losses(&mut self, now_s: f64) {
        let _ = now_s;
    }
    /// Returns the present one-way queueing delay of the path in seconds.
    fn queue_delay_s(&self) -> f64 {
        0.0
    }
}
