//! Conversion of the configured peers to settings of the endpoint.

use units::ByteCount;

use crate::{EndpointPeer, LinkConfig, PeerConfig};

pub(super) fn endpoint_peers(peers: &[PeerConfig]) -> Vec<EndpointPeer> {
    let peers = peers.iter().map(|peer| EndpointPeer {
        public_keys: peer.public_keys.clone(),
        has_endpoint: peer.endpoint.is_some(),
        rate_max: peer.rate_max,
        is_guest: peer.is_guest,
    });
    peers.collect()
}

/// Returns the share of the link's memory for one peer. Guests and removed peers have no share.
pub(super) fn memory_of_one(config: &LinkConfig) -> ByteCount {
    let peers = config.peers.iter();
    let peers = peers.filter(|peer| !peer.is_removed() && !peer.is_guest);
    let shares = peers.count().max(1) as u64;
    ByteCount::new(config.memory_max.bytes() / shares)
}
