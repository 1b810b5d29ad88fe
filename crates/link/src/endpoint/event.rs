//! Events that an endpoint reports to its user.

use std::time::Duration;

use super::StreamKey;
use crate::stream::StreamClass;

/// Event for the user of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointEvent {
    /// The endpoint needs the address of the peer. The user replies with
    /// [`Endpoint::set_address`](super::Endpoint::set_address).
    Resolve {
        /// Index of the peer.
        peer: usize,
    },
    /// A connection to this peer is ready for streams.
    Connected {
        /// Index of the peer.
        peer: usize,
    },
    /// The state for the next start has changed. The user must store the result of
    /// [`Endpoint::remembered`](super::Endpoint::remembered).
    Remember,
    /// The peer opened a stream.
    Incoming {
        /// Key of the new stream.
        key: StreamKey,
        /// Index of the peer.
        peer: usize,
        /// Priority class of the stream.
        class: StreamClass,
    },
    /// A stream has bytes to read, has ended, or has failed.
    Readable {
        /// Key of the stream.
        key: StreamKey,
    },
    /// The peer's application has read all bytes of a stream from this endpoint.
    SendDone {
        /// Key of the stream.
        key: StreamKey,
    },
    /// The peer refuses further bytes of a stream from this endpoint.
    Stopped {
        /// Key of the stream.
        key: StreamKey,
        /// Reason code from the peer.
        code: u32,
    },
    /// A stream is lost because its connection has ended.
    Lost {
        /// Key of the stream.
        key: StreamKey,
        /// Reason why the stream was lost.
        reason: LostReason,
    },
}

/// Reason why a connection and all its streams ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostReason {
    /// The peer has restarted, so the old streams no longer exist at the peer.
    PeerRestarted,
    /// No packet arrived from the peer for this time.
    Silence(Duration),
    /// One side closed the connection.
    Closed,
}
