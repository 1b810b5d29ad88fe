//! State of a running link, for status pages and metrics.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use units::{BitRate, ByteCount};

use crate::DropCounters;

/// State of the link. `peers` has one entry per configured peer, in order.
#[derive(Debug, Clone, Default)]
pub struct LinkSnapshot {
    /// State of each peer.
    pub peers: Vec<PeerSnapshot>,
    /// Socket buffers requested and granted.
    pub socket_buffers: SocketBuffers,
    /// Datagrams dropped without an answer.
    pub dropped: DropCounters,
}

/// Bytes of socket buffer requested in each direction, and granted by the kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketBuffers {
    /// Requested.
    pub asked: ByteCount,
    /// Granted for receiving.
    pub receive_granted: ByteCount,
    /// Granted for sending.
    pub send_granted: ByteCount,
}

/// State of one peer.
#[derive(Debug, Clone)]
pub struct PeerSnapshot {
    /// Configured name of the peer.
    pub name: String,
    /// Whether the peer has been removed from the configuration, and only keeps its index.
    pub is_removed: bool,
    /// Whether the peer connects only briefly, for one message.
    pub is_guest: bool,
    /// Whether the peer can be reached.
    pub state: PeerState,
    /// Address from which the peer's packets arrive, or to which the endpoint sends hellos.
    pub endpoint: Option<SocketAddr>,
    /// Arrival of the last authentic packet.
    pub last_answer: Option<SystemTime>,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Least round-trip time of the recent past.
    pub base_rtt: Option<Duration>,
    /// Queueing delay of the path from us, one way.
    pub queue_delay: Option<Duration>,
    /// Fraction of our packets lost, moving average.
    pub loss: f64,
    /// Rate on the wire over the last second, from us.
    pub send_rate: BitRate,
    /// Rate on the wire over the last second, to us.
    pub receive_rate: BitRate,
    /// Rate that congestion control allows now.
    pub allowed_rate: BitRate,
    /// Totals from us.
    pub sent: TrafficCounters,
    /// Totals to us.
    pub received: TrafficCounters,
    /// Our packets that were lost.
    pub packets_lost: u64,
    /// Payload that was sent more than once.
    pub payload_retransmitted: ByteCount,
    /// Streams that are open.
    pub streams_open: usize,
    /// Name of the congestion controller's state.
    pub controller_state: &'static str,
}

/// Totals in one direction, since the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct TrafficCounters {
    /// UDP datagrams.
    pub datagrams: u64,
    /// Bytes on the wire, IP and UDP headers included.
    pub bytes: ByteCount,
    /// Bytes of applications, without retransmissions.
    pub payload: ByteCount,
}

/// Whether a peer can be reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PeerState {
    /// The peer has not answered since we started.
    NeverAnswered {
        /// Handshakes that we began.
        attempts: u64,
    },
    /// The network reported that no program listens at the endpoint, or that it cannot be reached.
    Refused,
    /// The peer closed the connection because this gateway is no longer one of its peers.
    Dismissed,
    /// The peer has answered before; no connection stands now.
    Connecting,
    /// A connection stands.
    Up {
        /// Since when.
        since: SystemTime,
    },
    /// A connection stands, and no packets arrive.
    Silent {
        /// Since when.
        since: SystemTime,
    },
}
