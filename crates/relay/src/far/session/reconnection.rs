//! Further connections to the same server.
//!
//! They serve to try another version of TLS. They also replace a session that ended, or got no
//! reply in time, after a command sent ahead.

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
    /// Continues with another connection to the same server, in the state that the first had
    /// reached.
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

    /// Starts to connect again to the server that the session has left.
    pub(super) fn reconnect(&mut self) {
        info!(server = %self.server, "connecting again, to ask nothing ahead");
        let tls = self.tls.clone().filter(|_| self.is_tls_implicit);
        let (server, name) = (self.server, self.target.host.to_string());
        let connection = async move { connect::reconnect(server, tls.as_deref(), &name).await };
        self.reconnection = Some(Box::pin(connection));
    }

    /// Takes the connection that [`Self::reconnect`] has started.
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

/// Resolves with the connection that was started, and never without one.
pub(super) async fn wait_for_reconnection(
    reconnection: &mut Option<BoxedFuture<io::Result<Leg>>>,
) -> io::Result<Leg> {
    match reconnection {
        Some(reconnection) => reconnection.await,
        None => std::future::pending().await,
    }
}
