//! The dashboard's TLS listener, and the TLS handshakes with its clients.

use std::{fmt, net::SocketAddr, sync::Arc};

use futures_util::future::BoxFuture;
use pages::TlsHandshaker;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

use super::CurrentGateway;
use crate::config::AdminHttps;
use net::tls::{self, CertError, HttpsAcceptor, Leg};
use relay::limits::RefusalKind;

/// A TLS listener with the acceptor that holds its certificate.
#[derive(Debug)]
pub(crate) struct HttpsListener {
    pub(super) listener: TcpListener,
    acceptor: HttpsAcceptor,
}

impl HttpsListener {
    /// Creates the listener with the certificate of `config`.
    ///
    /// # Errors
    /// [`CertError`] if the certificate is unusable.
    pub(crate) fn new(listener: TcpListener, config: &AdminHttps) -> Result<Self, CertError> {
        let acceptor = HttpsAcceptor::new(config.certificate.clone())?;
        Ok(Self { listener, acceptor })
    }

    /// Splits the listener into its TCP socket and its TLS handshaker. Each handshake uses the
    /// gateway's settings at that moment.
    pub(super) fn split(self, current: CurrentGateway) -> (TcpListener, Arc<dyn TlsHandshaker>) {
        let Self { listener, acceptor } = self;
        (
            listener,
            Arc::new(ConfiguredHandshaker { acceptor, current }),
        )
    }
}

/// TLS handshaker that uses the gateway's settings at the moment of each handshake.
struct ConfiguredHandshaker {
    acceptor: HttpsAcceptor,
    current: CurrentGateway,
}

impl TlsHandshaker for ConfiguredHandshaker {
    fn handshake(
        self: Arc<Self>,
        tcp: TcpStream,
        client: SocketAddr,
    ) -> BoxFuture<'static, Option<(Leg, Vec<CertificateDer<'static>>)>> {
        Box::pin(async move {
            let running = self.current.borrow().clone();
            let roots = running.config.client_ca();
            let leg = self.acceptor.accept(tcp, roots).await;
            let leg = leg.inspect_err(|error| debug!(%client, %error, "no TLS"));
            let leg = leg.ok()?;
            let mut shown = leg.peer_certificates();
            if !shown.is_empty()
                && let Err(error) = tls::judge(&shown, roots)
            {
                running.relay.registry().count_refusal();
                if running
                    .relay
                    .usage()
                    .should_log(client.ip(), RefusalKind::AdminCertificate)
                {
                    warn!(%client, %error, "a certificate at the dashboard that is not good");
                }
                shown.clear();
            }
            Some((leg, shown))
        })
    }
}

impl fmt::Debug for ConfiguredHandshaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.acceptor.fmt(f)
    }
}
