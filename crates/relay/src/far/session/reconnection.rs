//! Further control connections to the server of a running session.
//!
//! The session opens another connection if the server supports only TLS 1.3. The session also opens
//! another connection if a prefetched command made the server end the session or stay silent. The
//! gateway sends a prefetched command before any client requests it.

use std::{io, sync::Arc};

use ftp::{line::REPLY_MAX, session::far::FarInput};
use tokio::time::Instant;
use tracing::info;

use super::{Session, SessionError};
use crate::{
    control_connection::ControlConnection, far::connect, known_servers::ServerTrait,
    pump::BoxedFuture,
};
use net::{
    Connection,
    tls::{Connector, Leg},
};

impl Session<'_> {
    /// Replaces the control connection by a new connection to the same server. The new connection
    /// has sent `AUTH TLS` and completed the handshake.
    pub(super) async fn restart_with_tls(&mut self, tls: Connector) -> Result<(), (u16, String)> {
        info!(server = %self.server, "connecting again: the server does not accept TLS 1.2");
        let name = self.target.host.to_string();
        self.control = connect::connect_again(self.server, &tls, &name).await?;
        if let Some(Ok(local)) = self.control.connection().map(Connection::local_addr) {
            self.local = local;
        }
        if self.control.is_tls13() {
            let known = &self.shared.known_servers;
            known.learn(&self.target, ServerTrait::LacksTls12, Instant::now());
        }
        self.tls = Some(Arc::new(tls));
        Ok(())
    }

    /// Starts to open another control connection to the server from which the session has
    /// disconnected.
    pub(super) fn reconnect(&mut self) {
        info!(server = %self.server, "connecting again, to ask nothing ahead");
        let tls = self.tls.clone().filter(|_| self.is_tls_implicit);
        let (server, name) = (self.server, self.target.host.to_string());
        let connection = async move { connect::reconnect(server, tls.as_deref(), &name).await };
        self.reconnection = Some(Box::pin(connection));
    }

    /// Handles the result of the connection attempt that [`Self::reconnect`] has started.
    pub(super) fn on_reconnected(&mut self, leg: io::Result<Leg>) -> Result<(), SessionError> {
        self.reconnection = None;
        let input = match leg {
            Ok(leg) => {
                self.local = leg.connection().local_addr()?;
                self.control = ControlConnection::new(leg, REPLY_MAX);
                FarInput::Reconnected
            }
            Err(error) => {
                info!(%error, "not connected again");
                FarInput::ServerClosed
            }
        };
        Ok(self.far.handle(input)?)
    }
}

/// Waits for the connection attempt in `reconnection`. If `reconnection` is `None`, the future
/// never resolves.
pub(super) async fn wait_for_reconnection(
    reconnection: &mut Option<BoxedFuture<io::Result<Leg>>>,
) -> io::Result<Leg> {
    match reconnection {
        Some(reconnection) => reconnection.await,
        None => std::future::pending().await,
    }
}
