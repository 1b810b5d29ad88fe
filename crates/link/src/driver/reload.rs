//! Changes to peers and rates while the driver runs.

use std::time::Instant;

use units::BitRate;

use super::{
    peers::{endpoint_peers, memory_of_one},
    run::Driver,
};
use crate::{PeerConfig, PeerId};

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
