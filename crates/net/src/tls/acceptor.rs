//! TLS towards clients: the gateway's certificate, and sessions that data connections resume.
//!
//! A client offers the ticket of its control connection on each data connection. Some clients take
//! a full handshake there for an attack (FileZilla). The tickets are therefore stateless, and a
//! ticket can be used any number of times. Each FTP session has tickets of its own, so a data connection that
//! resumes is known to be that of the session's client, whatever address it comes from: others behind the
//! same address translation cannot take it. The gateway sends no tickets on data connections: a
//! client that only writes never reads them, and a socket that is closed with unread bytes destroys
//! what it wrote before.

use std::{io, sync::Arc, time::Duration};

use rustls::{
    AlertDescription, Error, ServerConfig, SupportedProtocolVersion,
    server::{
        ProducesTickets, ServerSessionMemoryCache, WebPkiClientVerifier, danger::ClientCertVerifier,
    },
    version::{TLS12, TLS13},
};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tracing::debug;

use super::{
    HANDSHAKE_PATIENCE, Kind,
    certificate::{CertError, CertSource},
    current::Current,
    fingerprint::Fingerprint,
    hello,
    leg::Leg,
    provider,
    roots::{self, RootsError},
    rules::{Rules, Version},
    session_tickets::SessionTickets,
    tcp::Tcp,
    too_slow,
};
use crate::Connection;

/// Takes TLS handshakes from clients, for one front door or, made by [`Acceptor::for_session`], for one session.
#[derive(Debug)]
pub struct Acceptor {
    current: Arc<Current>,
    control: Configs,
    data: Configs,
    must_resume: bool,
}

/// A front door whose TLS cannot work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptorError {
    /// There is no usable certificate.
    #[error(transparent)]
    Certificate(#[from] CertError),
    /// The certificates by which clients are verified cannot be used.
    #[error("client_roots_file: {0}")]
    ClientRoots(#[from] RootsError),
}

/// For one kind of connection.
#[derive(Debug)]
struct Configs {
    versions: Alpn,
    /// For clients that can do with TLS 1.2, where data connections must resume: its session can be resumed any
    /// number of times. OpenSSL's clients use a ticket of TLS 1.3 once, and can be given no further ones on data
    /// connections; curl would stop after as many files as it has tickets.
    tls12: Option<Alpn>,
}

/// Clients that offer `ftp` get it, others must not be refused for what they offer.
#[derive(Debug)]
struct Alpn {
    ftp: Arc<ServerConfig>,
    no_alpn: Arc<ServerConfig>,
}

impl Acceptor {
    /// Reads the certificate, or makes it, if it is self-signed and missing.
    ///
    /// # Errors
    /// [`AcceptorError`] if there is no usable certificate, or nothing to verify clients by.
    pub fn new(source: CertSource, rules: &Rules) -> Result<Self, AcceptorError> {
        let current = Arc::new(Current::new(source)?);
        let clients = match &rules.client_roots {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(given) => roots::client_verifier(given)?,
        };
        let configs = |kind| Configs::new(kind, &current, rules, &clients);
        let acceptor = Self {
            control: configs(Kind::Control),
            data: configs(Kind::Data),
            current,
            must_resume: rules.must_resume,
        };
        Ok(acceptor.for_session())
    }

    /// The same with tickets of its own: what it takes resumes nothing of before, and nothing else resumes it.
    #[must_use]
    pub fn for_session(&self) -> Self {
        let tickets: Arc<dyn ProducesTickets> = Arc::new(SessionTickets::new());
        let sessions = ServerSessionMemoryCache::new(SESSIONS_MAX);
        let with_own = |config: &Arc<ServerConfig>| {
            let mut config = ServerConfig::clone(config);
            config.ticketer = tickets.clone();
            // For TLS 1.2 clients that know no tickets; sessions stay in it when they are resumed.
            config.session_storage = sessions.clone();
            Arc::new(config)
        };
        let with_own = |alpn: &Alpn| Alpn {
            ftp: with_own(&alpn.ftp),
            no_alpn: with_own(&alpn.no_alpn),
        };
        let of_kind = |configs: &Configs| Configs {
            versions: with_own(&configs.versions),
            tls12: configs.tls12.as_ref().map(with_own),
        };
        Self {
            current: self.current.clone(),
            control: of_kind(&self.control),
            data: of_kind(&self.data),
            must_resume: self.must_resume,
        }
    }

    /// Takes the handshake of a client from which nothing has been read yet. On a data connection
    /// the client may take its time to begin: it often waits for the server's first reply.
    ///
    /// # Errors
    /// Those of the connection; `TimedOut` if the client is too slow; `InvalidData` if what it sends
    /// is no TLS, or it does not want the certificate; `PermissionDenied` if a data connection does not resume the
    /// session of the control connection, and must.
    pub async fn accept(&self, connection: impl Into<Connection>, kind: Kind) -> io::Result<Leg> {
        let connection = connection.into();
        let configs = match kind {
            Kind::Control => {
                self.current.refresh();
                &self.control
            }
            Kind::Data => {
                let first = timeout(BEGIN_PATIENCE, connection.peek(&mut [0])).await;
                first.map_err(|_| too_slow())??;
                &self.data
            }
        };
        let leg = timeout(HANDSHAKE_PATIENCE, configs.handshake(Tcp::new(connection)))
            .await
            .map_err(|_| too_slow())?
            .map_err(explained)?;
        debug!(?kind, resumed = leg.is_resumed(), "TLS with the client");
        if kind == Kind::Data && self.must_resume && !leg.is_resumed() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the data connection does not resume the TLS session of the control connection, so anybody could \
                 have opened it; for clients that cannot resume set require_reuse = false in tls of the gateway's \
                 front door",
            ));
        }
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
        rules: &Rules,
        clients: &Arc<dyn ClientCertVerifier>,
    ) -> Self {
        let of = |versions: &[&'static SupportedProtocolVersion]| {
            Alpn::new(kind, current, versions, clients)
        };
        match rules.version_min {
            Version::Tls12 => Self {
                versions: of(&[&TLS13, &TLS12]),
                tls12: rules.must_resume.then(|| of(&[&TLS12])),
            },
            Version::Tls13 => Self {
                versions: of(&[&TLS13]),
                tls12: None,
            },
        }
    }

    async fn handshake(&self, tcp: Tcp) -> io::Result<Leg> {
        let alpn = match &self.tls12 {
            Some(tls12) if hello::offers_tls12(tcp.connection()).await? => tls12,
            _ => &self.versions,
        };
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), tcp).await?;
        let hello = start.client_hello();
        let offers_ftp = hello
            .alpn()
            .is_some_and(|mut offered| offered.any(|name| name == ALPN_FTP));
        let config = if offers_ftp { &alpn.ftp } else { &alpn.no_alpn };
        Ok(Leg::tls(start.into_stream(config.clone()).await?))
    }
}

impl Alpn {
    fn new(
        kind: Kind,
        current: &Arc<Current>,
        versions: &[&'static SupportedProtocolVersion],
        clients: &Arc<dyn ClientCertVerifier>,
    ) -> Self {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("the provider has suites for both versions")
            .with_client_cert_verifier(clients.clone())
            .with_cert_resolver(current.clone());
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
}

/// Translates an error of the TLS library into one about the client.
fn explained(error: io::Error) -> io::Error {
    let message = match error.get_ref().and_then(|e| e.downcast_ref::<Error>()) {
        Some(Error::InvalidMessage(_)) => "what the client sends is no TLS",
        Some(Error::NoCertificatesPresented) => {
            "the client has no certificate, which client_roots_file demands"
        }
        Some(Error::InvalidCertificate(_)) => {
            "the client's certificate is not verified by client_roots_file"
        }
        Some(Error::PeerIncompatible(_)) => "the client's TLS is too old or otherwise unusable",
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

/// Sessions of one TLS 1.2 client that knows no tickets: its control connection has one.
const SESSIONS_MAX: usize = 4;

/// Time for a client to begin TLS on a data connection: that of a server to fetch a file from tape.
/// Whoever waits for the session ends it earlier.
const BEGIN_PATIENCE: Duration = Duration::from_secs(600);

/// ALPN of FTP (RFC 7301 registry). `x-filezilla-ftp` would promise FileZilla's own rules.
const ALPN_FTP: &[u8] = b"ftp";
