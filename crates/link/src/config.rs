//! Configuration of a link.

use std::{path::PathBuf, time::Duration};

use units::{BitRate, ByteCount};

use crate::{Identity, PublicKey};

/// Identity, peers, limits and policy of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Key pair of this gateway.
    pub identity: Identity,
    /// Gateways that may connect to this gateway. A [`PeerId`] is an index into this list.
    pub peers: Vec<PeerConfig>,
    /// Policy of the link towards competing flows.
    pub policy: Policy,
    /// Maximum sending rate to all peers together.
    pub rate_max: Option<BitRate>,
    /// Memory limit for all buffers of the link together. Each peer has an equal share.
    pub memory_max: ByteCount,
    /// Time after which the link aborts the streams of a peer that sends no packets. With a value
    /// of 10 min, streams survive the restart of a router.
    pub idle_timeout: Duration,
    /// File that stores the timestamps of hellos and the measurements of paths across restarts.
    ///
    /// With `None`, an attacker can record a hello and replay it after a restart. The gateway then
    /// replies once to the recorded hello. The first transfer after a restart also starts slowly.
    pub memory_file: Option<PathBuf>,
}

/// Configuration of a gateway that may connect to this gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerConfig {
    /// Name of the peer in messages.
    pub name: String,
    /// Public keys that the peer may use: one key, or several during a key rotation. An empty list
    /// means that the peer has been removed.
    pub public_keys: Vec<PublicKey>,
    /// Address in the form `host:port`. The name is resolved again at each connection attempt.
    /// `None` means that this gateway waits for the peer to connect.
    pub endpoint: Option<String>,
    /// Maximum rate in each direction between this gateway and the peer.
    pub rate_max: Option<BitRate>,
    /// Whether the peer connects only briefly, to exchange one message.
    ///
    /// Such a peer has 4 MiB of memory, and does not reduce the shares of other peers in
    /// [`LinkConfig::memory_max`].
    pub is_guest: bool,
}

impl PeerConfig {
    /// Whether the peer has been removed. A removed peer keeps its index in the list.
    pub fn is_removed(&self) -> bool {
        self.public_keys.is_empty()
    }
}

/// Behaviour of the link towards competing flows at a bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The link uses a fair share of the capacity, and reduces its rate when the queue is full.
    Fair,
    /// The link uses only capacity that competing flows leave unused.
    Background,
    /// The link sends at a rate that an operator has reserved for it.
    Reserved(BitRate),
}

/// Index into [`LinkConfig::peers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub usize);
