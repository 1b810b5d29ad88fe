//! Peers and their rates, as they are set while the driver runs.

use std::time::Instant;

use units::{BitRate, ByteCount};

use super::run::Driver;
use crate::{EndpointPeer, LinkConfig, PeerConfig, PeerId};

impl Driver {
    pub(super) fn set_peers(
        &mut self,
        peers: Vec<PeerConfig>,
        rate_max: Option<BitRate>,
        now: Instant,
    ) {
        self.config.peers = peers;
        self.config.rate_max = rate_max;
        self.reporter.set_peers(self.config.peers.len());
        let peers = endpoint_peers(&self.config.peers);
        let memory_max = memory_of_one(&self.config);
        let set = self.endpoint.set_peers(peers, rate_max, memory_max, now);
        if let Err(error) = set {
            tracing::error!(%error, "a public key is refused, and its peer unknown");
        }
    }

    pub(super) fn set_rate_max(&mut self, peer: Option<PeerId>, rate_max: Option<BitRate>) {
        match peer {
            None => self.config.rate_max = rate_max,
            Some(PeerId(number)) => {
                let Some(peer) = self.config.peers.get_mut(number) else {
                    return;
                };
                peer.rate_max = rate_max;
            }
        }
        let of_peers: Vec<_> = self.config.peers.iter().map(|it| it.rate_max).collect();
        self.endpoint.set_rate_max(self.config.rate_max, &of_peers);
    }
}

pub(super) fn endpoint_peers(peers: &[PeerConfig]) -> Vec<EndpointPeer> {
    let peers = peers.iter().map(|peer| EndpointPeer {
        public_keys: peer.public_keys.clone(),
        has_endpoint: peer.endpoint.is_some(),
        rate_max: peer.rate_max,
        is_guest: peer.is_guest,
    });
    peers.collect()
}

/// Each peer's share of the memory.
pub(super) fn memory_of_one(config: &LinkConfig) -> ByteCount {
    let peers = config.peers.iter();
    let peers = peers.filter(|peer| !peer.is_removed() && !peer.is_guest);
    let shares = peers.count().max(1) as u64;
    ByteCount::new(config.memory_max.bytes() / shares)
}
