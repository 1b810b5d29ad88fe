//! Events of an endpoint for its user.

use std::time::Duration;

use super::StreamKey;
use crate::stream::Class;

/// An event for the user of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointEvent {
    /// The address of the peer is needed. Answer with
    /// [`Endpoint::set_address`](super::Endpoint::set_address).
    Resolve {
        /// Index of the peer.
        peer: usize,
    },
    /// A connection to this peer can carry streams.
    Connected {
        /// Index of the peer.
        peer: usize,
    },
    /// The state for the next start has changed: store
    /// [`Endpoint::remembered`](super::Endpoint::remembered).
    Remember,
    /// The peer opened a stream.
    Incoming {
        /// The new stream.
        key: StreamKey,
        /// Index of the peer.
        peer: usize,
        /// The priority class of the stream.
        class: Class,
    },
    /// A stream can be read: bytes, its end, or its failure.
    Readable {
        /// The stream.
        key: StreamKey,
    },
    /// The peer's application has read a stream of ours to its end.
    SendDone {
        /// The stream.
        key: StreamKey,
    },
    /// The peer wants no more of a stream of ours.
    Stopped {
        /// The stream.
        key: StreamKey,
        /// The peer's reason.
        code: u32,
    },
    /// A stream is over because its connection is.
    Lost {
        /// The stream.
        key: StreamKey,
        /// Reason why the stream was lost.
        reason: LostReason,
    },
}

/// Reason why a connection, and all streams on it, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostReason {
    /// The peer runs as a new instance without the old streams.
    PeerRestarted,
    /// No packet came from the peer for too long.
    Silence(Duration),
    /// One side closed the connection.
    Closed,
}
