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
    /// Key pair of this endpoint.
    pub identity: Identity,
    /// Peers that this endpoint accepts and connects to.
    pub peers: Vec<EndpointPeer>,
    /// Maximum sending rate to all peers together.
    pub rate_max: Option<BitRate>,
    /// Memory limit for all buffers of one connection together.
    pub memory_max: ByteCount,
    /// Time after which a connection ends if no packet arrives.
    pub idle_timeout: Duration,
    /// Seed of the random connection IDs.
    pub seed: u64,
    /// Random number of this run of the program. After an upgrade, the new process keeps the number
    /// of the old process.
    pub instance: u64,
    /// First byte of this endpoint's connection IDs. Processes that share one socket have different
    /// values. `None` means that no other process will share the socket, and the byte is random.
    pub generation: Option<u8>,
    /// Time of the creation of the endpoint, in nanoseconds since the Unix epoch.
    pub unix_ns: u64,
    /// State that [`Endpoint::remembered`](super::Endpoint::remembered) returned in the previous
    /// run.
    pub remembered: RestartState,
    /// Factory that creates the congestion controller of a new connection.
    pub controller: Arc<ControllerFactory>,
}

/// Configuration of one peer.
#[derive(Debug, Clone)]
pub struct EndpointPeer {
    /// Public keys that the peer may use.
    pub public_keys: Vec<PublicKey>,
    /// Whether this endpoint initiates connections to the peer.
    pub has_endpoint: bool,
    /// Maximum rate in each direction between this endpoint and the peer.
    pub rate_max: Option<BitRate>,
    /// Whether the peer connects only briefly, to exchange one message.
    pub is_guest: bool,
}
