//! TLS with clients: the gateway's certificate, and the tickets that data connections use to resume
//! the session.
//!
//! A client presents the ticket of its control connection on each data connection. Some clients,
//! such as FileZilla, treat a full handshake on a data connection as an attack. The tickets are
//! therefore stateless, and a client can use them any number of times.
//!
//! Each FTP session has its own ticket key. A data connection that resumes the TLS session
//! therefore belongs to the session's client, even at another address. Other clients behind the
//! same address translation cannot use the data connection.
//!
//! The gateway sends no tickets on data connections. A client that only writes would never read the
//! tickets. When the client closes its socket with unread bytes, bytes that the client has written
//! can be lost.

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
    ConnectionKind, HANDSHAKE_TIMEOUT,
    certificate::{CertError, CertSource},
    current_certificate::CurrentCertificate,
    fingerprint::Fingerprint,
    hello,
    leg::Leg,
    provider,
    roots::{self, RootsError},
    session_tickets::SessionTickets,
    tcp::Tcp,
    timeout_error,
    tls_rules::{TlsRules, TlsVersion},
};
use crate::Connection;

/// Acceptor of TLS handshakes from the clients of one listener. [`Acceptor::for_session`] returns
/// an acceptor for one FTP session.
#[derive(Debug)]
pub struct Acceptor {
    current: Arc<CurrentCertificate>,
    control: Configs,
    data: Configs,
    must_resume: bool,
}

/// Reason why a listener cannot use TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptorError {
    /// The gateway's certificate is unusable.
    #[error(transparent)]
    Certificate(#[from] CertError),
    /// The root certificates that verify clients are unusable.
    #[error("client_roots_file: {0}")]
    ClientRoots(#[from] RootsError),
}

/// TLS configurations for one kind of connection (control or data).
#[derive(Debug)]
struct Configs {
    versions: Alpn,
    /// Configuration with only TLS 1.2, for clients that support TLS 1.2. The configuration exists
    /// only if data connections must resume the TLS session. A TLS 1.2 session can be resumed any
    /// number of times.
    ///
    /// In TLS 1.3, OpenSSL's clients use each ticket only once, and data connections cannot deliver
    /// new tickets. With TLS 1.3, the number of tickets would therefore limit the number of files
    /// that curl can fetch.
    tls12: Option<Alpn>,
}

/// Configurations with and without ALPN. The configuration with ALPN is for clients that offer
/// `ftp`. Clients with different offers get the configuration without ALPN, since the TLS library
/// would otherwise refuse them.
#[derive(Debug)]
struct Alpn {
    ftp: Arc<ServerConfig>,
    no_alpn: Arc<ServerConfig>,
}

impl Acceptor {
    /// Loads the certificate. If the source is self-signed, creates a missing certificate.
    ///
    /// # Errors
    /// [`AcceptorError`] if the certificate or the roots for clients are unusable.
    pub fn new(source: CertSource, rules: &TlsRules) -> Result<Self, AcceptorError> {
        let current = Arc::new(CurrentCertificate::new(source)?);
        let clients = match &rules.client_roots {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(given) => roots::client_verifier(given)?,
        };
        let configs = |kind| Configs::new(kind, &current, rules, &clients);
        let acceptor = Self {
            control: configs(ConnectionKind::Control),
            data: configs(ConnectionKind::Data),
            current,
            must_resume: rules.must_resume,
        };
        Ok(acceptor.for_session())
    }

    /// Returns an acceptor with its own ticket key. No acceptor can resume the sessions of another
    /// acceptor.
    #[must_use]
    pub fn for_session(&self) -> Self {
        let tickets: Arc<dyn ProducesTickets> = Arc::new(SessionTickets::new());
        let sessions = ServerSessionMemoryCache::new(SESSIONS_MAX);
        let with_own = |config: &Arc<ServerConfig>| {
            let mut config = ServerConfig::clone(config);
            config.ticketer = tickets.clone();
            // TLS 1.2 clients without tickets use this cache. Sessions stay in it when they are
            // resumed.
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

    /// Performs the handshake with a client. The caller must not have read any byte from the
    /// connection.
    ///
    /// The timeout for a data connection is long, since clients often start TLS only after the
    /// server's first reply.
    ///
    /// # Errors
    /// The error of the connection, or one of these:
    ///
    /// - `TimedOut` if the client is too slow,
    /// - `InvalidData` if the client sends other bytes than TLS, or rejects the certificate,
    /// - `PermissionDenied` if a data connection must resume the control connection's TLS session,
    ///   but starts a new session.
    pub async fn accept(
        &self,
        connection: impl Into<Connection>,
        kind: ConnectionKind,
    ) -> io::Result<Leg> {
        let connection = connection.into();
        let configs = match kind {
            ConnectionKind::Control => {
                self.current.refresh();
                &self.control
            }
            ConnectionKind::Data => {
                let first = timeout(BEGIN_TIMEOUT, connection.peek(&mut [0])).await;
                first.map_err(|_| timeout_error())??;
                &self.data
            }
        };
        let leg = timeout(HANDSHAKE_TIMEOUT, configs.handshake(Tcp::new(connection)))
            .await
            .map_err(|_| timeout_error())?
            .map_err(explain_error)?;
        debug!(?kind, resumed = leg.is_resumed(), "TLS with the client");
        if kind == ConnectionKind::Data && self.must_resume && !leg.is_resumed() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the data connection does not resume the TLS session of the control connection, so another program may \
                 have opened it; for clients that cannot resume, set require_reuse = false in tls of the gateway's \
                 listener",
            ));
        }
        Ok(leg)
    }

    /// Loads the certificate again, even if its files seem unchanged. If the new certificate is
    /// unusable, the old certificate stays in use, and the error is logged.
    ///
    /// Each new control connection also checks for changed files.
    pub fn reload(&self) {
        self.current.reload();
    }

    /// Returns the fingerprint of the certificate in use.
    pub fn fingerprint(&self) -> Fingerprint {
        self.current.fingerprint()
    }
}

impl Configs {
    fn new(
        kind: ConnectionKind,
        current: &Arc<CurrentCertificate>,
        rules: &TlsRules,
        clients: &Arc<dyn ClientCertVerifier>,
    ) -> Self {
        let of = |versions: &[&'static SupportedProtocolVersion]| {
            Alpn::new(kind, current, versions, clients)
        };
        match rules.version_min {
            TlsVersion::Tls12 => Self {
                versions: of(&[&TLS13, &TLS12]),
                tls12: rules.must_resume.then(|| of(&[&TLS12])),
            },
            TlsVersion::Tls13 => Self {
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
        kind: ConnectionKind,
        current: &Arc<CurrentCertificate>,
        versions: &[&'static SupportedProtocolVersion],
        clients: &Arc<dyn ClientCertVerifier>,
    ) -> Self {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("the provider has suites for both versions")
            .with_client_cert_verifier(clients.clone())
            .with_cert_resolver(current.clone());
        config.send_tls13_tickets = match kind {
            ConnectionKind::Control => CONTROL_TICKETS,
            ConnectionKind::Data => 0,
        };
        let no_alpn = Arc::new(config.clone());
        config.alpn_protocols = vec![ALPN_FTP.to_vec()];
        Self {
            ftp: Arc::new(config),
            no_alpn,
        }
    }
}

/// Converts an error of the TLS library into an error that describes the client's mistake.
fn explain_error(error: io::Error) -> io::Error {
    let message = match error.get_ref().and_then(|e| e.downcast_ref::<Error>()) {
        Some(Error::InvalidMessage(_)) => "the client does not send TLS",
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

/// Number of tickets sent after a full handshake. The second ticket is for clients that use each
/// ticket only once.
const CONTROL_TICKETS: usize = 2;

/// Maximum number of stored sessions for a TLS 1.2 client without tickets. The control connection
/// needs one session.
const SESSIONS_MAX: usize = 4;

/// Timeout for a client to start TLS on a data connection. A server may need this long to fetch a
/// file from tape. The FTP session may close the connection earlier.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(600);

/// ALPN identifier of FTP (RFC 7301 registry). The identifier `x-filezilla-ftp` would imply
/// FileZilla's own rules.
const ALPN_FTP: &[u8] = b"ftp";
