//! Rate limits that were set by hand. They hold until an operator orders a reload, which resets all
//! of them. A reload because of a new peer resets them, too, and they are then set again.

use std::{collections::BTreeMap, sync::Arc};

use link::PeerId;
use units::BitRate;

use crate::{config::Config, running::RunningGateway};

/// Limits that were set by hand since the last reload by an operator.
#[derive(Debug, Default)]
pub(super) struct Rates {
    reloads_ordered: u64,
    config: Option<Arc<Config>>,
    by_hand: ByHand,
}

/// Limits by hand. An inner `None` removes the configured limit.
#[derive(Debug, Default)]
pub(super) struct ByHand {
    /// Limit on the sum of the rates to all peers.
    pub(super) all: Option<Option<BitRate>>,
    pub(super) peers: BTreeMap<usize, Option<BitRate>>,
}

impl ByHand {
    /// Sets the limits again, after a reload has set the configured ones.
    fn set_again(&self, running: &RunningGateway) {
        if let Some(rate) = self.all {
            running.relay.link().set_rate_max(None, rate);
        }
        for (number, rate) in &self.peers {
            running
                .relay
                .link()
                .set_rate_max(Some(PeerId(*number)), *rate);
        }
    }
}

impl Rates {
    /// Returns the limits by hand that apply to the present configuration.
    pub(super) fn of(&mut self, running: &RunningGateway) -> &mut ByHand {
        let is_same = |config| Arc::ptr_eq(config, &running.config);
        if !self.config.as_ref().is_some_and(is_same) {
            self.config = Some(running.config.clone());
            match self.reloads_ordered == running.reloads_ordered {
                true => self.by_hand.set_again(running),
                false => self.by_hand = ByHand::default(),
            }
            self.reloads_ordered = running.reloads_ordered;
        }
        &mut self.by_hand
    }

    /// Sets a limit, of a peer or of all peers together.
    pub(super) fn set(
        &mut self,
        running: &RunningGateway,
        peer: Option<PeerId>,
        rate: Option<BitRate>,
    ) {
        let by_hand = self.of(running);
        match peer {
            None => by_hand.all = Some(rate),
            Some(PeerId(number)) => {
                by_hand.peers.insert(number, rate);
            }
        }
        running.relay.link().set_rate_max(peer, rate);
    }
}
