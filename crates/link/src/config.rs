//! Configuration of a link.

use std::{path::PathBuf, time::Duration};

use units::{BitRate, ByteCount};

use crate::{Identity, PublicKey};

/// Identity, peers and limits of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Our key pair.
    pub identity: Identity,
    /// Gateways that may connect to us. [`PeerId`] is an index into this list.
    pub peers: Vec<PeerConfig>,
    /// Behaviour of the link towards competing flows.
    pub policy: Policy,
    /// Cap on the rate to all peers together.
    pub rate_max: Option<BitRate>,
    /// Limit of all link buffers together, divided evenly among the peers.
    pub memory_max: ByteCount,
    /// Time without packets after which a peer's streams are abandoned. 10 min outlasts a router's
    /// restart.
    pub idle_timeout: Duration,
    /// File that keeps the timestamps of hellos and the measurements of paths over restarts.
    ///
    /// With `None`, a hello recorded before a restart is answered once more, and the first transfer
    /// starts slowly.
    pub memory_file: Option<PathBuf>,
}

/// Gateway that may connect to us.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerConfig {
    /// Name of the peer in messages.
    pub name: String,
    /// Keys that the peer may have: one, or several while they are rotated. An empty list marks a
    /// removed peer.
    pub public_keys: Vec<PublicKey>,
    /// Address as `host:port`, resolved again at each connection attempt. With `None` this side
    /// only waits.
    pub endpoint: Option<String>,
    /// Cap on the rate to the peer, and on its rate to us.
    pub rate_max: Option<BitRate>,
    /// Whether the peer connects only briefly, for one message.
    ///
    /// It gets 4 MiB of memory, and does not reduce the shares of the other peers in
    /// [`LinkConfig::memory_max`].
    pub is_guest: bool,
}

impl PeerConfig {
    /// Whether the peer has been removed, and only keeps its index.
    pub fn is_removed(&self) -> bool {
        self.public_keys.is_empty()
    }
}

/// Behaviour of the link towards other traffic at a bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Takes a fair share, and yields to a full queue.
    Fair,
    /// Uses the capacity that other flows leave unused.
    Background,
    /// Holds a rate that an operator has reserved.
    Reserved(BitRate),
}

/// Index into [`LinkConfig::peers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub usize);
