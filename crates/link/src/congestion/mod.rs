//! Congestion control: the sending rate, and the bytes that may be in flight.
//!
//! The input is packets sent, reports of the peer as [`Digest`]s, and the time in seconds since the
//! endpoint's epoch. The output is a pacing rate and a window. A controller is pure: it owns no
//! timer and no socket, and the connection decides which packets go. One controller serves one pair
//! of gateways.

mod fixed;
mod knee;

pub use fixed::FixedRate;
#[cfg(feature = "ablation")]
pub use knee::Mechanism;
pub use knee::{Knee, KneePolicy};
use units::BitRate;

use crate::Policy;

pub use crate::recovery::{PacketArrival, ResolvedPacket};

/// Report of the peer, as a controller reads it.
#[derive(Debug, Default)]
pub struct Digest<'a> {
    /// Packets whose fate became known, in the order of their numbers.
    pub resolved: &'a [ResolvedPacket],
    /// Sending times of spuriously lost packets, in seconds since the endpoint's epoch.
    pub late_sent_s: &'a [f64],
    /// Receive times of some packets, oldest first.
    pub arrivals: &'a [PacketArrival],
    /// Total bytes that the peer has received, and the time of that count in seconds of the peer's
    /// clock.
    pub received: (u64, f64),
    /// Round-trip time measured on the report's front, without the peer's delay, in seconds.
    pub rtt_s: Option<f64>,
    /// Bytes whose fate is unknown.
    pub bytes_in_flight: u64,
    /// Bytes sent so far.
    pub bytes_sent: u64,
    /// Time by which a packet may arrive later than its neighbours, in seconds.
    pub reorder_window_s: f64,
    /// Whether the application, or an operator's cap, limited the sender below the controller's
    /// rate.
    pub app_limited: bool,
}

impl Digest<'_> {
    /// Returns the bytes whose fate became known.
    fn resolved_bytes(&self) -> u64 {
        self.resolved.iter().map(|packet| packet.bytes as u64).sum()
    }
}

/// Measurements of the path by an earlier connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathMemory {
    /// The last capacity measured, in bytes per second.
    pub capacity_bytes_per_s: f64,
    /// Fraction of packets that the path loses at any sending rate.
    pub loss_floor: f64,
}

/// Returns the controller for a policy, with earlier measurements of the path and the cap on its
/// rate.
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

/// Factory of a controller from earlier measurements of the path and the cap on its rate.
pub type ControllerFactory =
    dyn Fn(Option<PathMemory>, Option<BitRate>) -> Box<dyn Controller> + Send + Sync;

/// Controller of the sending rate.
pub trait Controller: Send {
    /// Records a sent packet of `bytes` bytes on the wire.
    fn on_sent(&mut self, number: u64, bytes: usize, now_s: f64);
    /// Handles a report of the peer.
    fn on_report(&mut self, digest: &Digest<'_>, now_s: f64);
    /// Returns the rate at which to send, in bytes per second on the wire.
    fn rate_bytes_per_s(&self) -> f64;
    /// Returns the most bytes on the wire that may be in flight.
    fn window_bytes(&self) -> f64;
    /// Returns the length of a packet train to send once data fill it, or 16 packets of it.
    ///
    /// The train leaves back to back and before any other packet, so that the spacing on arrival
    /// shows the capacity. The length is zero while the whole train does not fit into `room_bytes`,
    /// the bytes that the window still permits.
    fn train_wanted(&self, room_bytes: f64) -> usize {
        let _ = room_bytes;
        0
    }
    /// Records that the wanted train begins with the next packet, and has `packets` packets.
    fn on_train_begun(&mut self, packets: usize, now_s: f64) {
        let _ = (packets, now_s);
    }
    /// Returns the measurements of this path for a later connection. `None` while there are none.
    fn memory(&self) -> Option<PathMemory>;
    /// Returns the name of the present state, for logs and traces.
    fn state(&self) -> &'static str;
    /// Returns whether the route has become longer since the last call. Earlier round-trip times do
    /// not belong to this path.
    fn take_longer_route(&mut self) -> bool {
        false
    }
    /// Forgives the recent losses: the packets were larger than the path's size, which is no
    /// evidence about its rate.
    fn forgive_losses(&mut self, now_s: f64) {
        let _ = now_s;
    }
    /// Returns an estimate of the path's present queueing delay, one way, in seconds.
    fn queue_delay_s(&self) -> f64 {
        0.0
    }
}
