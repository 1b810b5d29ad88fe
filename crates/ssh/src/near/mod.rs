//! Near gateway: the SSH server for clients.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use futures_util::future::BoxFuture;
use net::{Connection, socket};
use relay::{
    Relay,
    limits::{PermitPurpose, ReachedLimit},
    service::{NearService, ServiceClient},
};
use tracing::{Span, info_span};

use crate::{host_key::HostKey, settings::SshListener};

/// Service for the SSH clients of one listener.
#[derive(Debug)]
pub struct SshNear {
    listener: Arc<SshListener>,
    host_key: HostKey,
}

impl SshNear {
    /// Creates the service for a listener. The gateway presents `host_key` to the clients.
    pub fn new(listener: Arc<SshListener>, host_key: HostKey) -> Self {
        Self { listener, host_key }
    }
}

impl NearService for SshNear {
    fn span(&self, session: u64, client: SocketAddr) -> Span {
        info_span!("ssh", session, %client)
    }

    fn purpose(&self) -> PermitPurpose {
        PermitPurpose::Session
    }

    fn admits(&self, client: IpAddr) -> bool {
        self.listener.admits(client)
    }

    fn turn_away(&self, connection: Connection, _: ReachedLimit) {
        socket::abort(connection);
    }

    fn serve(self: Arc<Self>, client: ServiceClient, _: Relay) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = (&self.host_key.key(), crate::algorithms::preferred());
            socket::abort(client.connection);
        })
    }
}
