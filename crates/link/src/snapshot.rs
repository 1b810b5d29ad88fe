//! What a running link is doing, for status pages and metrics.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use units::{BitRate, ByteCount};

use crate::DropCounters;

/// What the link is doing now. One entry in `peers` per configured peer, in order.
#[derive(Debug, Clone, Default)]
pub struct LinkSnapshot {
    /// What is known of each peer.
    pub peers: Vec<PeerSnapshot>,
    /// Socket buffers asked for and granted.
    pub socket_buffers: SocketBuffers,
    /// Datagrams dropped unanswered.
    pub dropped: DropCounters,
}

/// Bytes of socket buffer asked for, in each direction, and granted by the kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketBuffers {
    /// Asked for.
    pub asked: ByteCount,
    /// Granted for receiving.
    pub receive_granted: ByteCount,
    /// Granted for sending.
    pub send_granted: ByteCount,
}

/// What is known of one peer.
#[derive(Debug, Clone)]
pub struct PeerSnapshot {
    /// Its configured name.
    pub name: String,
    /// It has been removed from the configuration, and only keeps its place among the others.
    pub is_removed: bool,
    /// It comes for a moment, to say one thing.
    pub is_guest: bool,
    /// Whether it can be reached.
    pub state: PeerState,
    /// Where its packets come from, or where we look for it.
    pub endpoint: Option<SocketAddr>,
    /// When anything authentic came last.
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
    /// What congestion control allows now.
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
    /// Bytes of applications, first sendings only.
    pub payload: ByteCount,
}

/// Whether a peer can be reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PeerState {
    /// It has not answered since we started.
    NeverAnswered {
        /// Handshakes that we began.
        attempts: u64,
    },
    /// The network says that nobody listens at its endpoint, or that it cannot be reached.
    Refused,
    /// It has closed the connection because this side is none of its peers any more.
    Dismissed,
    /// It has answered before; no connection stands now.
    Connecting,
    /// A connection stands.
    Up {
        /// Since when.
        since: SystemTime,
    },
    /// A connection stands, and nothing comes.
    Silent {
        /// Since when.
        since: SystemTime,
    },
}
