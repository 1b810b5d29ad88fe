//! The present state of a running gateway: its configuration, its relay and its older processes.
//! Each reload creates a new value.

use std::sync::Arc;

use crate::{config::Config, upgrade::OlderProcesses};
use relay::{
    Relay,
    status::{GatewaySnapshot, SshListenerStatus, StoreStatus},
};

/// A running gateway with its present configuration.
#[derive(Debug)]
pub(crate) struct RunningGateway {
    pub(crate) config: Arc<Config>,
    /// State that all sessions share.
    pub(crate) relay: Relay,
    /// SSH listeners with the fingerprints of their host keys.
    pub(crate) ssh: Vec<SshListenerStatus>,
    /// Number of reloads that operators have ordered. Each such reload removes the rate limits that
    /// users have set in the dashboard.
    pub(crate) reloads_ordered: u64,
    /// Older processes of this gateway, which still serve their last sessions.
    pub(crate) older: Arc<OlderProcesses>,
}

impl RunningGateway {
    /// Returns a snapshot of the gateway. All views use this snapshot.
    pub(crate) fn snapshot(&self) -> GatewaySnapshot {
        let link = self.relay.link().snapshot();
        GatewaySnapshot {
            build: crate::build().to_owned(),
            public_key: self.config.relay.link.identity.public_key().to_string(),
            older_processes: self.older.reports(),
            admin_listen: self.config.admin_listen.to_string(),
            admin_socket: self.config.admin_socket.display().to_string(),
            ssh: self.ssh.clone(),
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
