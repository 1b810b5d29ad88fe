//! What a congestion control law is told, and what it answers.

use std::time::Duration;

/// A law: what came back goes in, a window comes out, and a pacing rate from those that pace.
pub trait Law: Send + std::fmt::Debug {
    /// Segments were delivered.
    fn on_delivery(&mut self, delivery: &Delivery);
    /// Loss was found, for the first time since the last recovery ended.
    fn on_loss(&mut self, in_flight: u64, now: Duration);
    /// Everything sent before the loss was found has been delivered.
    fn on_recovered(&mut self) {}
    /// Nothing came back for a retransmission timeout.
    fn on_timeout(&mut self, in_flight: u64, now: Duration);
    /// What may be in flight, in segments.
    fn window(&self) -> f64;
    /// The rate to send at, in segments per second; `None`: as acknowledgements arrive.
    fn pacing_rate(&self) -> Option<f64> {
        None
    }
    /// Name of the state, for people.
    fn state(&self) -> &'static str;
}

/// What one acknowledgement says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delivery {
    /// When it came.
    pub now: Duration,
    /// Segments that it tells of for the first time.
    pub segments: u64,
    /// Segments delivered so far, these included.
    pub delivered: u64,
    /// As much when the newest of them was sent.
    pub delivered_before: u64,
    /// Round-trip time of the newest of them, unless it was sent twice.
    pub rtt: Option<Duration>,
    /// Rate of delivery over that round trip, in segments per second.
    pub rate: Option<f64>,
    /// Segments whose fate is unknown.
    pub in_flight: u64,
    /// A loss has been found and is not repaired yet.
    pub is_recovering: bool,
    /// The window, not the application nor the receiver, holds the sender back.
    pub is_window_limited: bool,
}
