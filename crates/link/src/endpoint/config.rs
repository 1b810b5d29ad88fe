//! Configuration of an endpoint.

use std::{sync::Arc, time::Duration};

use units::{BitRate, ByteCount};

use super::RestartState;
use crate::{
    congestion::ControllerFactory,
    identity::{Identity, PublicKey},
};

/// Configuration of an endpoint.
pub struct EndpointConfig {
    /// This endpoint's own keys.
    pub identity: Identity,
    /// The peers that this endpoint accepts and connects to.
    pub peers: Vec<EndpointPeer>,
    /// Cap on the sending rate to all peers together.
    pub rate_max: Option<BitRate>,
    /// Bound of all buffers of one connection together.
    pub memory_max: ByteCount,
    /// Time without packets after which a connection is abandoned.
    pub idle_timeout: Duration,
    /// Seed for connection IDs.
    pub seed: u64,
    /// Number drawn at each start of the program. A process that takes another one's place keeps
    /// it.
    pub instance: u64,
    /// First byte of this endpoint's connection IDs, different for each process behind one socket.
    /// With `None` there will be no other process, and the byte is as good as random.
    pub generation: Option<u8>,
    /// Nanoseconds since the Unix epoch at the time the endpoint is made.
    pub unix_ns: u64,
    /// The last run's [`Endpoint::remembered`](super::Endpoint::remembered).
    pub remembered: RestartState,
    /// Factory of the congestion controller of a new connection.
    pub controller: Arc<ControllerFactory>,
}

/// Configured peer.
#[derive(Debug, Clone)]
pub struct EndpointPeer {
    /// Keys that the peer may have.
    pub public_keys: Vec<PublicKey>,
    /// Whether this endpoint connects by itself.
    pub has_endpoint: bool,
    /// Cap on the rate in each direction between this endpoint and the peer.
    pub rate_max: Option<BitRate>,
    /// Whether the peer connects only briefly, for one message.
    pub is_guest: bool,
}
