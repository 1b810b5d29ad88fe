//! Rate limits that were set by hand. They hold until the gateway takes on a configuration, which sets all of them.

use std::{collections::BTreeMap, sync::Arc};

use link::PeerId;
use units::BitRate;

use crate::{config::Config, shared::Shared};

/// What was set by hand since the present configuration was taken on.
#[derive(Debug, Default)]
pub(super) struct Rates {
    config: Option<Arc<Config>>,
    by_hand: ByHand,
}

/// Limits by hand; an inner `None` lifts the limit of the configuration.
#[derive(Debug, Default)]
pub(super) struct ByHand {
    /// On what is sent to all peers together.
    pub(super) all: Option<Option<BitRate>>,
    pub(super) peers: BTreeMap<usize, Option<BitRate>>,
}

impl Rates {
    /// Those in force beside the present configuration.
    pub(super) fn of(&mut self, shared: &Shared) -> &mut ByHand {
        let is_same = |config| Arc::ptr_eq(config, &shared.config);
        if !self.config.as_ref().is_some_and(is_same) {
            self.config = Some(shared.config.clone());
            self.by_hand = ByHand::default();
        }
        &mut self.by_hand
    }

    /// Sets a limit, of a peer or of all together.
    pub(super) fn set(&mut self, shared: &Shared, peer: Option<PeerId>, rate: Option<BitRate>) {
        let by_hand = self.of(shared);
        match peer {
            None => by_hand.all = Some(rate),
            Some(PeerId(number)) => {
                by_hand.peers.insert(number, rate);
            }
        }
        shared.link.set_rate_max(peer, rate);
    }
}
