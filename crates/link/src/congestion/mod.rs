//! Congestion control: how fast to send, and how much may be in flight.
//!
//! In: packets sent, reports of the peer as [`Digest`]s, and the time in seconds since the endpoint's epoch.
//! Out: a pacing rate and a window. A controller is pure: it owns no timer and no socket, and the connection
//! decides which packets go. One controller serves one pair of gateways.

mod fixed;
mod knee;

pub use fixed::FixedRate;
#[cfg(feature = "ablation")]
pub use knee::Mechanism;
pub use knee::{Knee, Share};
use units::BitRate;

use crate::Policy;

pub use crate::recovery::{Arrival, Resolved};

/// One report of the peer, as a controller reads it.
#[derive(Debug, Default)]
pub struct Digest<'a> {
    /// Packets whose fate became known, in the order of their numbers.
    pub resolved: &'a [Resolved],
    /// Send times of packets that arrived after they had been given up, in seconds since the endpoint's
    /// epoch.
    pub late_sent_s: &'a [f64],
    /// Receive times of some packets, oldest first.
    pub arrivals: &'a [Arrival],
    /// Bytes that the peer has received in all, and the time of that count in seconds of the peer's clock.
    pub received: (u64, f64),
    /// A round-trip time measured on the report's front, without the peer's delay, in seconds.
    pub rtt_s: Option<f64>,
    /// Bytes whose fate is unknown.
    pub bytes_in_flight: u64,
    /// Bytes sent so far.
    pub bytes_sent: u64,
    /// How much later than its neighbours a packet may arrive, in seconds.
    pub reorder_window_s: f64,
    /// The application, or an operator's cap, held the sender back: it sent less than the controller allows.
    pub app_limited: bool,
}

impl Digest<'_> {
    /// Bytes whose fate became known.
    fn resolved_bytes(&self) -> u64 {
        self.resolved.iter().map(|packet| packet.bytes as u64).sum()
    }
}

/// What an earlier connection learned of the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathMemory {
    /// The last capacity measured, in bytes per second.
    pub capacity_bytes_per_s: f64,
    /// The fraction of packets that the path loses by itself.
    pub loss_floor: f64,
}

/// The controller for a policy, given what is known of the path and the cap on its rate.
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
        Policy::Fair => Box::new(Knee::new(Share::Fair, memory)),
        Policy::Background => Box::new(Knee::new(Share::Background, memory)),
    }
}

/// Makes a controller from earlier measurements of the path and the cap on its rate.
pub type ControllerFactory =
    dyn Fn(Option<PathMemory>, Option<BitRate>) -> Box<dyn Controller> + Send + Sync;

/// Decides how fast to send.
pub trait Controller: Send {
    /// A packet of `bytes` bytes on the wire was sent.
    fn on_sent(&mut self, number: u64, bytes: usize, now_s: f64);
    /// The peer reported.
    fn on_report(&mut self, digest: &Digest<'_>, now_s: f64);
    /// The rate at which to send, in bytes per second on the wire.
    fn rate_bytes_per_s(&self) -> f64;
    /// How much may be in flight, in bytes on the wire.
    fn window_bytes(&self) -> f64;
    /// Length of a packet train to send once data fill it, or 16 packets of it: back to back and before any other
    /// packet, so that the spacing on arrival shows the capacity. Zero while the whole train does not fit into
    /// `room_bytes`, the bytes that the window still allows.
    fn train_wanted(&self, room_bytes: f64) -> usize {
        let _ = room_bytes;
        0
    }
    /// So many packets of the train that was wanted begin with the next packet.
    fn on_train_begun(&mut self, packets: usize, now_s: f64) {
        let _ = (packets, now_s);
    }
    /// What a later connection should know of this path; `None` while nothing is known.
    fn memory(&self) -> Option<PathMemory>;
    /// Name of the present state, for logs and traces.
    fn state(&self) -> &'static str;
    /// Whether the route has become longer since the last call: round-trip times measured before are not this
    /// path's.
    fn take_longer_route(&mut self) -> bool {
        false
    }
    /// Losses of late were of packets that the path is too narrow for, and say nothing of its rate.
    fn forgive_losses(&mut self, now_s: f64) {
        let _ = now_s;
    }
    /// Estimate of the path's present queueing delay, one way, in seconds.
    fn queue_delay_s(&self) -> f64 {
        0.0
    }
}
