//! Rate limits that a user has set in the dashboard.
//!
//! A limit applies until an operator orders a reload, which removes all limits of the dashboard.
//! The gateway also reloads by itself when a peer is added. After such a reload, the limits of the
//! dashboard are set again.

use std::{collections::BTreeMap, sync::Arc};

use link::PeerId;
use units::BitRate;

use crate::{config::Config, running::RunningGateway};

/// Limits that users have set in the dashboard since an operator's last reload.
#[derive(Debug, Default)]
pub(super) struct RateOverrides {
    reloads_ordered: u64,
    config: Option<Arc<Config>>,
    manual: ManualLimits,
}

/// Limits that users have set. An inner `None` means that the user has removed the configured
/// limit.
#[derive(Debug, Default)]
pub(super) struct ManualLimits {
    /// Limit on the sum of the rates to all peers.
    pub(super) all: Option<Option<BitRate>>,
    pub(super) peers: BTreeMap<usize, Option<BitRate>>,
}

impl ManualLimits {
    /// Sets the users' limits again, after a reload has set the configured limits.
    fn reapply(&self, running: &RunningGateway) {
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

impl RateOverrides {
    /// Returns the users' limits. If an operator has ordered a reload, the function first removes
    /// all limits. After any other reload, the function first sets the limits again.
    pub(super) fn limits(&mut self, running: &RunningGateway) -> &mut ManualLimits {
        let is_same = |config| Arc::ptr_eq(config, &running.config);
        if !self.config.as_ref().is_some_and(is_same) {
            self.config = Some(running.config.clone());
            match self.reloads_ordered == running.reloads_ordered {
                true => self.manual.reapply(running),
                false => self.manual = ManualLimits::default(),
            }
            self.reloads_ordered = running.reloads_ordered;
        }
        &mut self.manual
    }

    /// Sets the limit of one peer. If `peer` is `None`, sets the limit of all peers together.
    pub(super) fn set(
        &mut self,
        running: &RunningGateway,
        peer: Option<PeerId>,
        rate: Option<BitRate>,
    ) {
        let manual = self.limits(running);
        match peer {
            None => manual.all = Some(rate),
            Some(PeerId(number)) => {
                manual.peers.insert(number, rate);
            }
        }
        running.relay.link().set_rate_max(peer, rate);
    }
}
