//! What a report changed, and what it measured.

use std::time::Duration;

use super::contents::Item;

/// A packet whose fate is known, as congestion control sees it.
#[derive(Debug, Clone, Copy)]
pub struct Resolved {
    /// Its number.
    pub number: u64,
    /// Bytes on the wire, IP and UDP headers included.
    pub bytes: usize,
    /// When it was sent, in seconds since the endpoint's epoch.
    pub sent_s: f64,
    /// Whether it was given up as lost.
    pub lost: bool,
    /// It was sent before the end of an outage. It arrived, then, and says nothing of what the path loses: those that
    /// were lost in the outage are left out.
    pub in_outage: bool,
}

/// The receive time of one packet.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Its number.
    pub number: u64,
    /// When it was sent, in seconds since the endpoint's epoch.
    pub sent_s: f64,
    /// When it arrived, in seconds of the receiver's clock.
    pub received_s: f64,
    /// Bytes sent before it.
    pub sent_bytes_before: u64,
    /// Whether it belonged to a train of packets sent back to back.
    pub in_train: bool,
}

/// What one report changed.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Items that arrived, in no order.
    pub(crate) arrived: Vec<Item>,
    /// Items of packets given up, oldest first.
    pub(crate) lost: Vec<Item>,
    /// Packets resolved, in the order of their numbers.
    pub(crate) resolved: Vec<Resolved>,
    /// Send times of packets that arrived after they had been given up, in seconds since the endpoint's
    /// epoch.
    pub(crate) late_sent_s: Vec<f64>,
    /// Receive times, oldest first.
    pub(crate) arrivals: Vec<Arrival>,
    /// A round-trip time measured on the report's front.
    pub(crate) rtt: Option<Duration>,
    /// Reports were lost that no later report replaces: the peer must be asked to repeat them.
    pub(crate) ask: bool,
}

/// Times measured on the front of a report, which no report has covered before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) rtt: Duration,
    /// Arrival by the peer's clock less sending by our clock, in seconds: the one-way delay plus the difference
    /// of the clocks.
    pub(crate) forward_s: f64,
}

impl Outcome {
    pub(crate) fn clear(&mut self) {
        self.arrived.clear();
        self.lost.clear();
        self.resolved.clear();
        self.late_sent_s.clear();
        self.arrivals.clear();
        self.rtt = None;
        self.ask = false;
    }
}
