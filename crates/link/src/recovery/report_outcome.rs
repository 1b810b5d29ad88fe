//! Outcome of a report: changes and measurements.

use std::time::Duration;

use super::packet_contents::Item;

/// Packet with a known fate, as congestion control sees it.
#[derive(Debug, Clone, Copy)]
pub struct ResolvedPacket {
    /// Packet number.
    pub number: u64,
    /// Bytes on the wire, IP and UDP headers included.
    pub bytes: usize,
    /// Sending time, in seconds since the endpoint's epoch.
    pub sent_s: f64,
    /// Whether the packet was declared lost.
    pub lost: bool,
    /// Whether the packet was sent before the end of an outage.
    ///
    /// It arrived, then, and is no evidence about the path's loss: packets lost in the outage are
    /// left out.
    pub in_outage: bool,
}

/// Receive time of one packet.
#[derive(Debug, Clone, Copy)]
pub struct PacketArrival {
    /// Packet number.
    pub number: u64,
    /// Sending time, in seconds since the endpoint's epoch.
    pub sent_s: f64,
    /// Arrival, in seconds of the receiver's clock.
    pub received_s: f64,
    /// Bytes sent before the packet.
    pub sent_bytes_before: u64,
    /// Whether the packet belonged to a train of packets sent back to back.
    pub in_train: bool,
}

/// Changes by one report.
#[derive(Debug, Default)]
pub(crate) struct ReportOutcome {
    /// Items that arrived, in no order.
    pub(crate) arrived: Vec<Item>,
    /// Items of lost packets, oldest first.
    pub(crate) lost: Vec<Item>,
    /// Packets resolved, in the order of their numbers.
    pub(crate) resolved: Vec<ResolvedPacket>,
    /// Sending times of spuriously lost packets, in seconds since the endpoint's epoch.
    pub(crate) late_sent_s: Vec<f64>,
    /// Receive times, oldest first.
    pub(crate) arrivals: Vec<PacketArrival>,
    /// Round-trip time measured on the report's front.
    pub(crate) rtt: Option<Duration>,
    /// Whether reports were lost that no later report replaces, so that the peer must be asked to
    /// repeat them.
    pub(crate) ask: bool,
}

/// Times measured on the front of a report, which no report has covered before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrontTiming {
    pub(crate) rtt: Duration,
    /// Arrival by the peer's clock less sending by our clock, in seconds: the one-way delay plus
    /// the difference of the clocks.
    pub(crate) forward_s: f64,
}

impl ReportOutcome {
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
