//! What a link is started with.

use std::{path::PathBuf, time::Duration};

use units::{BitRate, ByteCount};

use crate::{Identity, PublicKey};

/// Who we are, whom we know, and the bounds of what the link may use.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Our key pair.
    pub identity: Identity,
    /// The gateways that may speak to us. [`PeerId`] is an index into this list.
    pub peers: Vec<PeerConfig>,
    /// How the link shares a bottleneck with others.
    pub policy: Policy,
    /// Cap on what is sent to all peers together.
    pub rate_max: Option<BitRate>,
    /// Bound of all link buffers together, divided evenly among the peers.
    pub memory_max: ByteCount,
    /// Silence after which a peer's streams are given up. 10 min outlasts a router's restart.
    pub idle_timeout: Duration,
    /// Where the timestamps of first flights, and what was measured of the paths, are kept over restarts. `None`: a
    /// first flight recorded before a restart is answered once more, and the first transfer begins slowly.
    pub memory_file: Option<PathBuf>,
}

/// One gateway that may speak to us.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerConfig {
    /// Its name in messages.
    pub name: String,
    /// The keys it may have: one, or several while they are rotated. None: it has been removed.
    pub public_keys: Vec<PublicKey>,
    /// `host:port`, resolved anew at each connect. `None`: this side only waits.
    pub endpoint: Option<String>,
    /// Cap on what we send it, and on what it sends us.
    pub rate_max: Option<BitRate>,
    /// It comes for a moment, to say one thing: the shares of the others in [`LinkConfig::memory_max`] do not become smaller by
    /// it, and beside them it has 4 MiB.
    pub is_guest: bool,
}

impl PeerConfig {
    /// Whether it has been removed, and only keeps its place among the others.
    pub fn is_removed(&self) -> bool {
        self.public_keys.is_empty()
    }
}

/// How the link shares a bottleneck with other traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Takes a fair share, and yields to a full queue.
    Fair,
    /// Takes what others leave.
    Background,
    /// Holds a rate that an operator has set aside.
    Reserved(BitRate),
}

/// Index into [`LinkConfig::peers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub usize);
