//! Congestion control: how fast to send, from what came back.
//!
//! A controller is pure: it gets measurements and the time in seconds since the endpoint's epoch,
//! and answers with a pacing rate and a window. One controller serves one pair of gateways.

mod fixed;
mod knee;

pub use fixed::FixedRate;
pub use knee::{Knee, Share};
use units::BitRate;

use crate::Policy;

pub use crate::recovery::{Arrival, Resolved};

/// What one report of the peer says, digested.
#[derive(Debug, Default)]
pub struct Digest<'a> {
    /// Packets whose fate became known, in the order of their numbers.
    pub resolved: &'a [Resolved],
    /// When those packets were sent that arrived after they were given up, in seconds since the endpoint's
    /// epoch.
    pub late_sent_s: &'a [f64],
    /// Receive times of some packets, oldest first.
    pub arrivals: &'a [Arrival],
    /// Bytes that the peer has received in all, and when it said so, in seconds of its clock.
    pub received: (u64, f64),
    /// A round-trip time measured on the report's front, without the peer's delay, in seconds.
    pub rtt_s: Option<f64>,
    /// Bytes whose fate is unknown.
    pub bytes_in_flight: u64,
    /// How much later than its neighbours a packet may arrive, in seconds.
    pub reorder_window_s: f64,
    /// The application gives less than the controller would let pass.
    pub app_limited: bool,
    /// Packets that the path has newly marked (ECN) instead of dropping them, as the peer tells. None
    /// unless the controller [heeds marks](Controller::heeds_marks) and the path carries them.
    pub ce: u64,
}

/// What is known of a path from before.
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

/// Decides how fast to send.
pub trait Controller: Send {
    /// A packet of `bytes` bytes on the wire was sent.
    fn on_sent(&mut self, number: u64, bytes: usize, now_s: f64);
    /// The peer reported.
    fn on_report(&mut self, digest: &Digest<'_>, now_s: f64);
    /// Time has passed; called at least every 10 ms while packets are in flight.
    fn on_tick(&mut self, now_s: f64);
    /// The rate at which to send, in bytes per second on the wire.
    fn rate_bytes_per_s(&self) -> f64;
    /// How much may be in flight, in bytes on the wire.
    fn window_bytes(&self) -> f64;
    /// Packets to be sent now, back to back and before any other, so that the path spreads them;
    /// none while they do not all fit `room_bytes`, what may be in flight beyond what is.
    fn take_train(&mut self, room_bytes: f64) -> usize {
        let _ = room_bytes;
        0
    }
    /// What to remember of this path; `None` while nothing is known.
    fn memory(&self) -> Option<PathMemory>;
    /// Whether it answers congestion marks as it would answer drops. Only then are packets sent as
    /// capable of being marked (RFC 3168): otherwise others would get the drops.
    fn heeds_marks(&self) -> bool {
        false
    }
    /// Name of the state, for people.
    fn state(&self) -> &'static str;
    /// Queueing delay of the path now, one way, in seconds.
    fn queue_delay_s(&self) -> f64 {
        0.0
    }
}
