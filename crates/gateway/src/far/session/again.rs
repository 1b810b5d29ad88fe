//! Other connections to the same server: for another version of TLS, and at a question asked ahead that ends a session or
//! has no answer in time.

use std::sync::Arc;

use ftp::{line::REPLY_MAX, session::far::Input};
use tokio::time::Instant;
use tracing::info;

use super::{Session, SessionError};
use crate::{control::Control, far::connect, known_servers::Trait};
use net::tls::Connector;

impl Session<'_> {
    /// Goes on with another connection to the same server, as far as the first had come.
    pub(super) async fn begin_again(&mut self, tls: Connector) -> Result<(), (u16, String)> {
        info!(server = %self.server, "connecting again: the server does not take TLS 1.2");
        let name = self.target.host.to_string();
        self.control = connect::again(self.server, &tls, &name).await?;
        if let Some(Ok(local)) = self.control.tcp().map(|tcp| tcp.local_addr()) {
            self.local = local;
        }
        if self.control.is_tls13() {
            let known = &self.shared.known_servers;
            known.learn(&self.target, Trait::LacksTls12, Instant::now());
        }
        self.tls = Some(Arc::new(tls));
        Ok(())
    }

    /// Connects again to the server that the session has left.
    pub(super) async fn reconnect(&mut self) -> Result<(), SessionError> {
        info!(server = %self.server, "connecting again, to ask nothing ahead");
        let tls = self.tls.as_deref().filter(|_| self.is_tls_implicit);
        let name = self.target.host.to_string();
        let input = match connect::reconnect(self.server, tls, &name).await {
            Ok(leg) => {
                self.local = leg.tcp().local_addr()?;
                self.control = Control::new(leg, REPLY_MAX);
                Input::Reconnected
            }
            Err(error) => {
                info!(%error, "not connected again");
                Input::ServerClosed
            }
        };
        Ok(self.far.handle(input)?)
    }
}
