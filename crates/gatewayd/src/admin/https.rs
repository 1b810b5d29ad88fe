//! The dashboard's address with TLS: its listener, and the handshakes of those who come.

use std::{fmt, net::SocketAddr, sync::Arc};

use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

use super::Current;
use crate::config::AdminHttps;
use net::tls::{self, CertError, HttpsAcceptor, Leg};
use relay::limits::Refusal;

/// A listener with its certificate.
#[derive(Debug)]
pub(crate) struct Https {
    pub(super) listener: TcpListener,
    acceptor: HttpsAcceptor,
}

impl Https {
    /// # Errors
    /// [`CertError`] if there is no usable certificate.
    pub(crate) fn new(listener: TcpListener, config: &AdminHttps) -> Result<Self, CertError> {
        let acceptor = HttpsAcceptor::new(config.certificate.clone())?;
        Ok(Self { listener, acceptor })
    }

    /// Its listener, and what takes the handshakes there, by the settings that are in force then.
    pub(super) fn split(self, current: Current) -> (TcpListener, Arc<Handshakes>) {
        let Self { listener, acceptor } = self;
        (listener, Arc::new(Handshakes { acceptor, current }))
    }
}

/// Takes handshakes.
pub(super) struct Handshakes {
    acceptor: HttpsAcceptor,
    current: Current,
}

impl Handshakes {
    /// Takes that of a client. Returns what it has shown, its own certificate first, if that is good; `None`: there is no TLS with it.
    pub(super) async fn take(
        &self,
        tcp: TcpStream,
        client: SocketAddr,
    ) -> Option<(Leg, Vec<CertificateDer<'static>>)> {
        let running = self.current.borrow().clone();
        let roots = running.config.client_ca();
        let leg = self.acceptor.accept(tcp, roots).await;
        let leg = leg.inspect_err(|error| debug!(%client, %error, "no TLS"));
        let leg = leg.ok()?;
        let mut shown = leg.shown();
        if !shown.is_empty()
            && let Err(error) = tls::judge(&shown, roots)
        {
            running.relay.registry().refused();
            if running
                .relay
                .usage()
                .is_news(client.ip(), Refusal::AdminCertificate)
            {
                warn!(%client, %error, "a certificate at the dashboard that is not good");
            }
            shown.clear();
        }
        Some((leg, shown))
    }
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.acceptor.fmt(f)
    }
}
