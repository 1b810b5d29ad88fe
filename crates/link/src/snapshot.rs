//! Snapshot of a running link, for status pages and metrics.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use units::{BitRate, ByteCount};

use crate::DropCounters;

/// Snapshot of the link. `peers` has one entry for each configured peer, in the order of the
/// configuration.
#[derive(Debug, Clone, Default)]
pub struct LinkSnapshot {
    /// State of each peer.
    pub peers: Vec<PeerSnapshot>,
    /// Requested and granted sizes of the socket buffers.
    pub socket_buffers: SocketBuffers,
    /// Counts of datagrams that the endpoint dropped without an answer.
    pub dropped: DropCounters,
}

/// Sizes of the socket buffers: the size that the gateway requested, and the sizes that the kernel
/// granted.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketBuffers {
    /// Requested size in bytes, for each direction.
    pub asked: ByteCount,
    /// Granted size of the receive buffer in bytes.
    pub receive_granted: ByteCount,
    /// Granted size of the send buffer in bytes.
    pub send_granted: ByteCount,
}

/// Snapshot of one peer.
#[derive(Debug, Clone)]
pub struct PeerSnapshot {
    /// Name of the peer in the configuration.
    pub name: String,
    /// Whether the peer was removed from the configuration. The entry stays, so that other peers
    /// keep their indices.
    pub is_removed: bool,
    /// Whether the peer connects only for one short exchange of messages.
    pub is_guest: bool,
    /// State of the connection to the peer.
    pub state: PeerState,
    /// Address from which the peer's packets arrive. Without a connection, the address to which the
    /// endpoint sends hellos.
    pub endpoint: Option<SocketAddr>,
    /// Arrival time of the last authenticated packet from the peer.
    pub last_answer: Option<SystemTime>,
    /// Smoothed round-trip time to the peer.
    pub rtt: Option<Duration>,
    /// Base round-trip time: the least round-trip time of the recent past.
    pub base_rtt: Option<Duration>,
    /// One-way queueing delay of the path to the peer.
    pub queue_delay: Option<Duration>,
    /// Lost fraction of the packets to the peer, as a moving average.
    pub loss: f64,
    /// Rate of bytes sent to the peer on the wire, over the last second.
    pub send_rate: BitRate,
    /// Rate of bytes received from the peer on the wire, over the last second.
    pub receive_rate: BitRate,
    /// Sending rate that congestion control permits now.
    pub allowed_rate: BitRate,
    /// Totals of traffic to the peer.
    pub sent: TrafficCounters,
    /// Totals of traffic from the peer.
    pub received: TrafficCounters,
    /// Number of lost packets to the peer, on the present connection.
    pub packets_lost: u64,
    /// Payload bytes that were retransmitted to the peer.
    pub payload_retransmitted: ByteCount,
    /// Number of open streams.
    pub streams_open: usize,
    /// Name of the present state of the congestion controller.
    pub controller_state: &'static str,
}

/// Totals of the traffic in one direction since the start of the gateway.
#[derive(Debug, Clone, Copy, Default)]
pub struct TrafficCounters {
    /// Number of UDP datagrams.
    pub datagrams: u64,
    /// Bytes on the wire, including IP and UDP headers.
    pub bytes: ByteCount,
    /// Payload bytes of applications, without retransmissions.
    pub payload: ByteCount,
}

/// State of the connection to a peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PeerState {
    /// The peer has not answered since the gateway started.
    NeverAnswered {
        /// Number of handshakes that the gateway has started.
        attempts: u64,
    },
    /// The network reported that no program listens at the peer's address, or that the address is
    /// unreachable.
    Refused,
    /// The peer closed the connection, because its configuration no longer contains this gateway.
    Dismissed,
    /// The peer has answered before, but no connection is established now.
    Connecting,
    /// A connection is established.
    Up {
        /// Time at which the connection was established.
        since: SystemTime,
    },
    /// A connection is established, but no packets arrive.
    Silent {
        /// Time since which no packets have arrived.
        since: SystemTime,
    },
}
