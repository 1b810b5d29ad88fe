//! A running gateway with its present configuration, as the daemon sees it. A reload creates
//! another value.

use std::sync::Arc;

use crate::{config::Config, upgrade::OlderProcesses};
use relay::{
    Relay,
    status::{GatewaySnapshot, StoreStatus},
};

/// A running gateway with its present configuration.
#[derive(Debug)]
pub(crate) struct RunningGateway {
    pub(crate) config: Arc<Config>,
    /// The part that sessions use.
    pub(crate) relay: Relay,
    /// Number of reloads by operators. A limit that was set by hand holds until the next one.
    pub(crate) reloads_ordered: u64,
    /// Processes that this one has replaced.
    pub(crate) older: Arc<OlderProcesses>,
}

impl RunningGateway {
    /// Returns the state of the gateway, for all views.
    pub(crate) fn snapshot(&self) -> GatewaySnapshot {
        let link = self.relay.link().snapshot();
        GatewaySnapshot {
            public_key: self.config.relay.link.identity.public_key().to_string(),
            older_processes: self.older.reports(),
            admin_listen: self.config.admin_listen.to_string(),
            admin_socket: self.config.admin_socket.display().to_string(),
            stores: {
                let stores = self.relay.stores();
                stores.map_or(Vec::new(), |it| StoreStatus::all(it))
            },
            ..self
                .relay
                .registry()
                .snapshot(&link, self.relay.link().local_addr().to_string())
        }
    }
}
