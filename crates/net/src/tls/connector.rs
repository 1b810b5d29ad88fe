//! TLS with a server. The connector verifies the server's certificate. It offers the same TLS
//! session on all connections of an FTP session.

use std::{io, net::Ipv4Addr, sync::Arc};

use rustls::{
    AlertDescription, ClientConfig, Error, SupportedProtocolVersion,
    client::Resumption,
    pki_types::ServerName,
    version::{TLS12, TLS13},
};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tracing::{debug, info};

use super::{
    ConnectionKind, HANDSHAKE_TIMEOUT,
    certificate_rejection::CertificateRejection,
    leg::Leg,
    provider,
    roots::RootsError,
    server_tls::{CertificateCheck, ServerTls},
    sessions::TlsSessions,
    tcp::Tcp,
    timeout_error,
    verifier::Verifier,
};
use crate::Connection;

/// Performs TLS handshakes with one server, for one FTP session. Data connections offer to resume
/// the TLS session of the control connection.
#[derive(Debug, Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    sessions: Arc<TlsSessions>,
    verifier: Arc<Verifier>,
    by_roots: bool,
    is_tls12_only: bool,
}

impl Connector {
    /// Creates a connector for TLS 1.3 and 1.2. The first connector that uses the system's roots
    /// reads them from files.
    ///
    /// # Errors
    /// [`RootsError`] if no roots are available to verify the server, or a given root is unusable.
    pub fn new(tls: &ServerTls) -> Result<Self, RootsError> {
        Self::for_versions(tls, BOTH)
    }

    /// Creates a connector for TLS 1.2 only. The client can offer a TLS 1.2 session any number of
    /// times.
    ///
    /// A client can offer a TLS 1.3 ticket only once. ProFTPD requires resumption, but sends only
    /// two tickets.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn new_tls12(tls: &ServerTls) -> Result<Self, RootsError> {
        Self::for_versions(tls, ONLY_TLS12)
    }

    fn for_versions(tls: &ServerTls, versions: Versions) -> Result<Self, RootsError> {
        let verifier = Arc::new(Verifier::new(&tls.verify, provider())?);
        let by_roots = matches!(tls.verify, CertificateCheck::Roots(_));
        Ok(Self::with_versions(verifier, by_roots, versions))
    }

    /// Returns a connector that also offers TLS 1.3, if the offer of only TLS 1.2 may have caused
    /// `error`. Otherwise returns `None`.
    ///
    /// The server may lack TLS 1.2 or its cipher suites, or may close the connection without an
    /// answer.
    pub fn fallback_for_tls12(&self, error: &io::Error) -> Option<Self> {
        let tls = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
        let lacks_version = matches!(
            tls,
            Some(Error::AlertReceived(
                AlertDescription::ProtocolVersion
                    | AlertDescription::HandshakeFailure
                    | AlertDescription::InsufficientSecurity
            ))
        );
        let is_unanswered = error.get_ref().is_some_and(|e| e.is::<NoServerHello>());
        (self.is_tls12_only && (lacks_version || is_unanswered))
            .then(|| Self::with_versions(self.verifier.clone(), self.by_roots, BOTH))
    }

    fn with_versions(verifier: Arc<Verifier>, by_roots: bool, versions: Versions) -> Self {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("the provider has suites for both versions")
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_no_client_auth();
        let sessions = Arc::new(TlsSessions::default());
        config.resumption = Resumption::store(sessions.clone());
        Self {
            config: Arc::new(config),
            sessions,
            verifier,
            by_roots,
            is_tls12_only: !versions.contains(&&TLS13),
        }
    }

    /// Performs the handshake with the server. `server_name` is the server's name in the target, or
    /// its IP address with or without brackets.
    ///
    /// All connections of a session must use the same name. On a data connection, servers answer
    /// only after they have sent the reply that announces the transfer.
    ///
    /// # Errors
    /// The error of the connection, or one of these:
    ///
    /// - `TimedOut` if the server is too slow,
    /// - `InvalidData` with a [`CertificateRejection`] if the server's certificate is not accepted,
    /// - `InvalidInput` if a certificate cannot contain such a name.
    pub async fn connect(
        &self,
        connection: impl Into<Connection>,
        server_name: &str,
        kind: ConnectionKind,
    ) -> io::Result<Leg> {
        let name = self.name(server_name)?;
        let offered = self.sessions.any();
        let connector = TlsConnector::from(self.config.clone());
        let tcp = Tcp::new(connection.into());
        let stream = timeout(HANDSHAKE_TIMEOUT, connector.connect(name, tcp.clone()))
            .await
            .map_err(|_| timeout_error())?
            .map_err(|error| explain_error(error, tcp.has_read()))?;
        drop(tcp);
        let leg = Leg::tls(stream);
        let resumed = leg.is_resumed();
        debug!(?kind, offered, resumed, "TLS with the server");
        if kind == ConnectionKind::Data && !resumed {
            info!(
                offered,
                "the TLS session was not resumed: some servers refuse such data"
            );
        }
        Ok(leg)
    }

    /// Converts a server name. Verification without roots ignores the name, so an invalid name is
    /// then replaced.
    fn name(&self, text: &str) -> io::Result<ServerName<'static>> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        match ServerName::try_from(bare.unwrap_or(text)) {
            Ok(name) => Ok(name.to_owned()),
            // The handshake does not send an IP address to the server.
            Err(_) if !self.by_roots => Ok(Ipv4Addr::UNSPECIFIED.into()),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("no certificate can be for a server named {text:?}"),
            )),
        }
    }
}

/// Error for a server that closes the connection instead of sending its first TLS message.
#[derive(Debug, thiserror::Error)]
#[error("the server closes the connection instead of answering: {0}")]
struct NoServerHello(io::Error);

/// Extracts a [`CertificateRejection`] from an error of the TLS library. Also detects a connection
/// that ended before the server answered.
fn explain_error(error: io::Error, has_answered: bool) -> io::Error {
    let is_end = matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    );
    if is_end && !has_answered {
        return io::Error::new(error.kind(), NoServerHello(error));
    }
    let tls = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
    match tls {
        Some(Error::InvalidMessage(_)) => {
            let message = format!("the server does not send TLS: {error}");
            io::Error::new(error.kind(), message)
        }
        Some(tls) => match CertificateRejection::from_tls_error(tls) {
            Some(rejection) => io::Error::new(error.kind(), rejection.clone()),
            None => error,
        },
        None => error,
    }
}

type Versions = &'static [&'static SupportedProtocolVersion];

const BOTH: Versions = &[&TLS13, &TLS12];

const ONLY_TLS12: Versions = &[&TLS12];
