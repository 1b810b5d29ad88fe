//! The interface of a congestion control law: the events that it receives, and the window and rate
//! that it returns.

use std::time::Duration;

/// A congestion control law. Acknowledgements and losses go in; a window comes out, and a pacing
/// rate from the laws that pace.
pub trait Law: Send + std::fmt::Debug {
    /// An acknowledgement has arrived.
    fn on_delivery(&mut self, delivery: &Delivery);
    /// A loss was found, the first one since the last recovery ended.
    fn on_loss(&mut self, in_flight: u64, now: Duration);
    /// All segments sent before the loss was found have been delivered.
    fn on_recovered(&mut self) {}
    /// No acknowledgement arrived for a retransmission timeout.
    fn on_timeout(&mut self, in_flight: u64, now: Duration);
    /// Largest number of segments in flight.
    fn window(&self) -> f64;
    /// Pacing rate in segments per second; `None` for a law that sends as acknowledgements arrive.
    fn pacing_rate(&self) -> Option<f64> {
        None
    }
    /// Name of the state, for display.
    fn state(&self) -> &'static str;
}

/// The content of one acknowledgement, as the sender evaluates it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delivery {
    /// Arrival of the acknowledgement.
    pub now: Duration,
    /// Segments that are acknowledged for the first time.
    pub segments: u64,
    /// Segments delivered so far, including these.
    pub delivered: u64,
    /// Segments that had been delivered when the newest of these was sent.
    pub delivered_before: u64,
    /// Round-trip time of the newest of these, unless it was retransmitted.
    pub rtt: Option<Duration>,
    /// Delivery rate over that round trip, in segments per second.
    pub rate: Option<f64>,
    /// Segments that are neither acknowledged nor lost.
    pub in_flight: u64,
    /// Whether a loss has been found and not yet repaired.
    pub is_recovering: bool,
    /// Whether the window limits the sender, rather than the application or the receiver.
    pub is_window_limited: bool,
}
