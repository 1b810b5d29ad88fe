//! TLS towards clients: the gateway's certificate, and sessions that data connections resume.
//!
//! A client offers the ticket of its control connection on each data connection. Some clients take
//! a full handshake there for an attack (FileZilla). The tickets are therefore stateless, and a
//! ticket can be used any number of times. The gateway sends no tickets on data connections: a
//! client that only writes never reads them, and a socket that is closed with unread bytes destroys
//! what it wrote before.

use std::{io, sync::Arc, time::Duration};

use rustls::{
    AlertDescription, Error, ServerConfig,
    crypto::aws_lc_rs::Ticketer,
    server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions},
    version::{TLS12, TLS13},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::LazyConfigAcceptor;
use tracing::debug;

use super::{
    HANDSHAKE_PATIENCE, Kind,
    certificate::{CertError, CertSource},
    current::Current,
    fingerprint::Fingerprint,
    leg::Leg,
    provider,
    tcp::Tcp,
    too_slow,
};

/// Takes TLS handshakes from clients, for one front door.
#[derive(Debug)]
pub struct Acceptor {
    current: Arc<Current>,
    control: Configs,
    data: Configs,
}

/// For one kind of connection: clients that offer `ftp` get it, others must not be refused for what
/// they offer.
#[derive(Debug)]
struct Configs {
    ftp: Arc<ServerConfig>,
    no_alpn: Arc<ServerConfig>,
}

impl Acceptor {
    /// Reads the certificate, or makes it, if it is self-signed and missing.
    ///
    /// # Errors
    /// [`CertError`] if there is no usable certificate.
    pub fn new(source: CertSource) -> Result<Self, CertError> {
        let current = Arc::new(Current::new(source)?);
        let ticketer = Ticketer::new().expect("the system's randomness works");
        let sessions = ServerSessionMemoryCache::new(SESSIONS_MAX);
        let configs = |kind| Configs::new(kind, &current, &ticketer, &sessions);
        Ok(Self {
            control: configs(Kind::Control),
            data: configs(Kind::Data),
            current,
        })
    }

    /// Takes the handshake of a client from which nothing has been read yet. On a data connection
    /// the client may take its time to begin: it often waits for the server's first reply.
    ///
    /// # Errors
    /// Those of the connection; `TimedOut` if the client is too slow; `InvalidData` if what it sends
    /// is no TLS, or it does not want the certificate.
    pub async fn accept(&self, tcp: TcpStream, kind: Kind) -> io::Result<Leg> {
        let configs = match kind {
            Kind::Control => {
                self.current.refresh();
                &self.control
            }
            Kind::Data => {
                let first = timeout(BEGIN_PATIENCE, tcp.peek(&mut [0])).await;
                first.map_err(|_| too_slow())??;
                &self.data
            }
        };
        let leg = timeout(HANDSHAKE_PATIENCE, configs.handshake(Tcp::new(tcp)))
            .await
            .map_err(|_| too_slow())?
            .map_err(explained)?;
        debug!(?kind, resumed = leg.is_resumed(), "TLS with the client");
        Ok(leg)
    }

    /// Reads the certificate again, whether or not its files seem to have changed; each control
    /// connection looks for that by itself. A broken one is warned of, and the old one stays.
    pub fn reload(&self) {
        self.current.reload();
    }

    /// The fingerprint of the certificate in use.
    pub fn fingerprint(&self) -> Fingerprint {
        self.current.fingerprint()
    }
}

impl Configs {
    fn new(
        kind: Kind,
        current: &Arc<Current>,
        ticketer: &Arc<dyn ProducesTickets>,
        sessions: &Arc<impl StoresServerSessions + 'static>,
    ) -> Self {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("the provider has suites for both versions")
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.ticketer = ticketer.clone();
        // For TLS 1.2 clients that know no tickets; sessions stay in it when they are resumed.
        config.session_storage = sessions.clone();
        config.send_tls13_tickets = match kind {
            Kind::Control => CONTROL_TICKETS,
            Kind::Data => 0,
        };
        let no_alpn = Arc::new(config.clone());
        config.alpn_protocols = vec![ALPN_FTP.to_vec()];
        Self {
            ftp: Arc::new(config),
            no_alpn,
        }
    }

    async fn handshake(&self, tcp: Tcp) -> io::Result<Leg> {
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), tcp).await?;
        let offers_ftp = start
            .client_hello()
            .alpn()
            .is_some_and(|mut offered| offered.any(|name| name == ALPN_FTP));
        let config = if offers_ftp { &self.ftp } else { &self.no_alpn };
        Ok(Leg::tls(start.into_stream(config.clone()).await?))
    }
}

/// Translates an error of the TLS library into one about the client.
fn explained(error: io::Error) -> io::Error {
    let message = match error.get_ref().and_then(|e| e.downcast_ref::<Error>()) {
        Some(Error::InvalidMessage(_)) => "what the client sends is no TLS",
        Some(Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA,
        )) => "the client does not trust the gateway's certificate",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{message}: {error}"))
}

/// Tickets after a full handshake: one, and one more for clients that use each only once.
const CONTROL_TICKETS: usize = 2;

/// Sessions of TLS 1.2 clients that know no tickets, the newest of which are kept.
const SESSIONS_MAX: usize = 1024;

/// Time for a client to begin TLS on a data connection: that of a server to fetch a file from tape.
/// Whoever waits for the session ends it earlier.
const BEGIN_PATIENCE: Duration = Duration::from_secs(600);

/// ALPN of FTP (RFC 7301 registry). `x-filezilla-ftp` would promise FileZilla's own rules.
const ALPN_FTP: &[u8] = b"ftp";
