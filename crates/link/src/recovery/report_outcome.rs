//! Outcome of a report: packets that arrived or were lost, and measurements.

use std::time::Duration;

use super::packet_contents::Item;

/// Packet that was acknowledged or declared lost, as congestion control sees it.
#[derive(Debug, Clone, Copy)]
pub struct ResolvedPacket {
    /// Packet number.
    pub number: u64,
    /// Size on the wire in bytes, including IP and UDP headers.
    pub bytes: usize,
    /// Sending time, in seconds since the endpoint's epoch.
    pub sent_s: f64,
    /// Whether the packet was declared lost.
    pub lost: bool,
    /// Whether the packet was sent before the end of an outage.
    ///
    /// Such a packet has arrived, because packets lost in an outage are excluded. It is therefore
    /// no evidence about the loss of the path.
    pub in_outage: bool,
}

/// Arrival of one packet at the receiver.
#[derive(Debug, Clone, Copy)]
pub struct PacketArrival {
    /// Packet number.
    pub number: u64,
    /// Sending time, in seconds since the endpoint's epoch.
    pub sent_s: f64,
    /// Arrival time, in seconds of the receiver's clock.
    pub received_s: f64,
    /// Total bytes sent on the connection before the packet.
    pub sent_bytes_before: u64,
    /// Whether the packet belonged to a packet train, which is sent back to back.
    pub in_train: bool,
}

/// Changes and measurements that one report causes.
#[derive(Debug, Default)]
pub(crate) struct ReportOutcome {
    /// Items that arrived, in any order.
    pub(crate) arrived: Vec<Item>,
    /// Items of lost packets, oldest first.
    pub(crate) lost: Vec<Item>,
    /// Packets that were resolved (acknowledged or declared lost), in the order of their numbers.
    pub(crate) resolved: Vec<ResolvedPacket>,
    /// Sending times of spuriously lost packets, in seconds since the endpoint's epoch.
    pub(crate) late_sent_s: Vec<f64>,
    /// Arrivals of some packets, oldest first.
    pub(crate) arrivals: Vec<PacketArrival>,
    /// Round-trip time measured with the report's front packet. `None` if the report gives no
    /// round-trip time.
    pub(crate) rtt: Option<Duration>,
    /// Whether reports about some packets were lost, and no later report covers these packets. The
    /// sender must then request another report from the peer.
    pub(crate) ask: bool,
}

/// Times measured with the front packet of a report. No earlier report has covered that packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrontTiming {
    pub(crate) rtt: Duration,
    /// Arrival time by the peer's clock minus sending time by this gateway's clock, in seconds. The
    /// value is the one-way delay plus the difference of the clocks.
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
