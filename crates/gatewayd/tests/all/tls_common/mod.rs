//! Certificates and loopback connections for tests of TLS. The peer of the gateway uses the TLS
//! library directly. The system chooses every port.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its part"
)]

use std::{
    future::Future,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use net::tls::{
    Acceptor, AcceptorError, CertSource, CertificateCheck, ConnectionKind, Fingerprint, Leg,
    ServerTls, TlsRules, TlsStart,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType,
    date_time_ymd,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
    client::Resumption,
    crypto::aws_lc_rs::{self, Ticketer},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// Maximum time to wait for an expected event.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Host name in every certificate.
pub const NAME: &str = "ftp.example.com";

/// Returns the result of `what`. Panics if `what` takes longer than [`TIMEOUT`].
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(TIMEOUT, what).await.expect("in time")
}

/// A temporary folder. Each test has its own folder.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("longhaul-tls-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A certificate authority for tests.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key.
pub struct Issued {
    pub cert: CertificateDer<'static>,
    pub key: KeyPair,
    pub pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        // Roots with the same name would differ only in their signatures, so each root has its own
        // name.
        let name = Fingerprint::of(&key.public_key_raw().to_vec().into()).to_string();
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, key).expect("a root"))
    }

    pub fn root(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for the host [`NAME`] and the address 127.0.0.1.
    pub fn issue(&self) -> Issued {
        self.issue_until(2100)
    }

    pub fn issue_until(&self, year: i32) -> Issued {
        let mut params = CertificateParams::new([NAME.to_owned()]).expect("a name");
        let loopback = std::net::Ipv4Addr::LOCALHOST.into();
        params.subject_alt_names.push(SanType::IpAddress(loopback));
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.0).expect("a certificate");
        Issued {
            cert: cert.der().clone(),
            pem: cert.pem(),
            key,
        }
    }
}

impl Issued {
    pub fn write(&self, cert_file: &Path, key_file: &Path) -> CertSource {
        std::fs::write(cert_file, &self.pem).expect("a certificate file");
        std::fs::write(key_file, self.key.serialize_pem()).expect("a key file");
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(key_file, owner_only).expect("chmod");
        CertSource {
            cert_file: cert_file.to_owned(),
            key_file: key_file.to_owned(),
            self_signed: false,
        }
    }

    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

/// Returns the two sockets of a new TCP connection.
pub async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.expect("connected"), far.expect("accepted").0)
}

pub type Versions<'a> = &'a [&'static SupportedProtocolVersion];

/// A server that sends TLS tickets like OpenSSL: two on a control connection, and one on a data
/// connection.
pub struct TlsServer {
    control: Arc<ServerConfig>,
    data: Arc<ServerConfig>,
}

impl TlsServer {
    pub fn new(issued: &Issued, versions: Versions<'_>) -> Self {
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_protocol_versions(versions)
                .expect("versions")
                .with_no_client_auth()
                .with_single_cert(vec![issued.cert.clone()], issued.key())
                .expect("a certificate");
        config.ticketer = Ticketer::new().expect("a ticketer");
        config.send_tls13_tickets = 2;
        let mut data = config.clone();
        data.send_tls13_tickets = 1;
        Self {
            control: Arc::new(config),
            data: Arc::new(data),
        }
    }

    /// Makes the server send no tickets on data connections, like ProFTPD.
    pub fn without_data_tickets(mut self) -> Self {
        Arc::make_mut(&mut self.data).send_tls13_tickets = 0;
        self
    }

    pub async fn accept(
        &self,
        tcp: TcpStream,
        kind: ConnectionKind,
    ) -> std::io::Result<server::TlsStream<TcpStream>> {
        let config = match kind {
            ConnectionKind::Control => &self.control,
            ConnectionKind::Data => &self.data,
        };
        TlsAcceptor::from(config.clone()).accept(tcp).await
    }
}

/// Creates a client's configuration that trusts `authority`.
pub fn client(authority: &Authority, versions: Versions<'_>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority.root()).expect("a root");
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(8);
    config
}

/// Creates an acceptor whose clients need not resume TLS sessions on data connections.
pub fn acceptor(source: CertSource) -> Result<Acceptor, AcceptorError> {
    let rules = TlsRules {
        must_resume: false,
        ..TlsRules::default()
    };
    Acceptor::new(source, &rules)
}

/// Runs a handshake between a client and the gateway.
pub async fn handshake(
    config: &Arc<ClientConfig>,
    acceptor: &Acceptor,
    kind: ConnectionKind,
) -> (
    std::io::Result<client::TlsStream<TcpStream>>,
    std::io::Result<Leg>,
) {
    let (near, far) = tcp_pair().await;
    let name = ServerName::try_from(NAME).expect("a name");
    let connector = TlsConnector::from(config.clone());
    let both = async { tokio::join!(connector.connect(name, near), acceptor.accept(far, kind)) };
    soon(both).await
}

pub fn server_tls(verify: CertificateCheck) -> ServerTls {
    ServerTls {
        mode: TlsStart::Explicit,
        verify,
    }
}

/// Writes `bytes`, and ends the sending half of the connection.
pub async fn send<W: tokio::io::AsyncWrite + Unpin>(writer: &mut W, bytes: &[u8]) {
    soon(async {
        writer.write_all(bytes).await.expect("written");
        writer.shutdown().await.expect("ended");
    })
    .await;
}

/// Reads until the end of the connection, and returns all bytes.
pub async fn receive<R: tokio::io::AsyncRead + Unpin>(reader: &mut R) -> Vec<u8> {
    let mut bytes = Vec::new();
    soon(reader.read_to_end(&mut bytes)).await.expect("an end");
    bytes
}

/// Sends a line, and reads it at the receiver. The receiver thereby also processes the tickets that
/// were sent before the line.
pub async fn say<W, R>(writer: &mut W, reader: &mut R)
where
    W: tokio::io::AsyncWrite + Unpin,
    R: tokio::io::AsyncRead + Unpin,
{
    let line = b"220 ready\r\n";
    let mut read = [0; 11];
    soon(async {
        writer.write_all(line).await.expect("written");
        writer.flush().await.expect("flushed");
        reader.read_exact(&mut read).await.expect("read");
    })
    .await;
    assert_eq!(&read, line);
}
