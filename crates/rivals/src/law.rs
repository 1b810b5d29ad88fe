//! The interface of a congestion control. A congestion control receives events, and returns a
//! window and a pacing rate.

use std::time::Duration;

/// A congestion control. The sender reports acknowledgements and losses to the congestion control.
/// The congestion control returns a window, and a pacing rate if it uses pacing.
pub trait Law: Send + std::fmt::Debug {
    /// Called when an acknowledgement has arrived.
    fn on_delivery(&mut self, delivery: &Delivery);
    /// Called when the sender detects the first loss since the last recovery ended.
    fn on_loss(&mut self, in_flight: u64, now: Duration);
    /// Called when the recovery ends. At this time, all segments that were sent before the
    /// detection of the loss have been delivered.
    fn on_recovered(&mut self) {}
    /// Called when no acknowledgement has arrived for the duration of the retransmission timeout.
    fn on_timeout(&mut self, in_flight: u64, now: Duration);
    /// Returns the maximum number of segments in flight.
    fn window(&self) -> f64;
    /// Returns the pacing rate in segments per second. Returns `None` if the congestion control
    /// does not use pacing.
    fn pacing_rate(&self) -> Option<f64> {
        None
    }
    /// Returns the name of the present state, for display.
    fn state(&self) -> &'static str;
}

/// Information from one acknowledgement, as the sender computed it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delivery {
    /// Time at which the acknowledgement arrived.
    pub now: Duration,
    /// Number of segments that are acknowledged for the first time.
    pub segments: u64,
    /// Number of segments delivered so far, including `segments`.
    pub delivered: u64,
    /// Number of segments that had been delivered when the newest of `segments` was sent.
    pub delivered_before: u64,
    /// Round-trip time of the newest of `segments`. `None` if that segment was retransmitted.
    pub rtt: Option<Duration>,
    /// Delivery rate during the round trip of the newest segment, in segments per second.
    pub rate: Option<f64>,
    /// Number of segments that are neither acknowledged nor lost.
    pub in_flight: u64,
    /// Whether a loss recovery is in progress.
    pub is_recovering: bool,
    /// Whether the sender is limited by the congestion window, and not by the application or the
    /// receiver.
    pub is_window_limited: bool,
}
