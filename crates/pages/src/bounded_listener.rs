//! A listener of the admin interface, with a limited number of connections. It listens at a TCP
//! address or at the admin socket.
//!
//! Each connection holds a permit, and ends if it stays idle for too long. Each listener has its
//! own permits. Without TLS, all clients run on this machine. In this case, if no permit is free, a
//! new connection replaces the connection that uses its permit least.
//!
//! The deadline of a connection starts when the connection is accepted. Only bytes that the
//! listener writes extend the deadline. A client that sends its request byte by byte therefore
//! gains no time. If a client reads no bytes of a response, its deadline is shorter, since the
//! client may have requested an endless stream. A TLS handshake holds a permit, has its own
//! timeout, and delays no other client.
#![allow(
    clippy::disallowed_methods,
    reason = "drives sockets: bounds how long clients may take"
)]

use std::{
    fmt,
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::JoinSet,
    time::{Instant, Sleep, sleep},
};
use tracing::debug;

use futures_util::future::BoxFuture;
use net::tls::Leg;
use rustls::pki_types::CertificateDer;

use crate::{
    client::PageClient,
    local,
    permits::{ConnectionPermit, ConnectionPermits},
};

/// TLS implementation of a listener.
pub trait TlsHandshaker: fmt::Debug + Send + Sync {
    /// Performs the handshake with a client. Returns the connection, and the client's certificates
    /// if they are valid. The client's own certificate is the first. Returns `None` if the
    /// handshake fails.
    fn handshake(
        self: Arc<Self>,
        tcp: TcpStream,
        client: SocketAddr,
    ) -> BoxFuture<'static, Option<(Leg, Vec<CertificateDer<'static>>)>>;
}

/// A listener that limits the number of its connections.
#[derive(Debug)]
pub struct BoundedListener {
    source: ConnectionSource,
    permits: ConnectionPermits,
    /// Handshakes in progress. Each handshake holds its permit.
    handshakes: JoinSet<Option<BoundedConnection>>,
}

/// Socket from which a listener accepts connections.
#[derive(Debug)]
enum ConnectionSource {
    Tcp {
        listener: TcpListener,
        at: SocketAddr,
        /// TLS implementation. `None` without TLS.
        tls: Option<Arc<dyn TlsHandshaker>>,
    },
    /// Unix socket of the admin interface.
    Socket(UnixListener),
}

/// An accepted connection.
enum AcceptedStream {
    Tcp(TcpStream),
    /// Connection of a process that has permission to give orders.
    Process(UnixStream),
}

/// The bytes of a connection, before limits are applied.
trait ByteStream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> ByteStream for T {}

/// A connection with a deadline and a permit.
#[derive(Debug)]
pub struct BoundedConnection {
    /// The stream after decryption. Bytes that TLS itself writes do not extend the deadline, since
    /// a client can cause such bytes.
    stream: Box<dyn ByteStream>,
    client: PageClient,
    deadline: Pin<Box<Sleep>>,
    /// Whether the last write could not complete because the client does not read.
    is_blocked: bool,
    permit: ConnectionPermit,
}

impl BoundedListener {
    /// Creates a listener from a TCP listener.
    ///
    /// # Errors
    /// The system's error if the socket has no address.
    pub fn at_address(
        listener: TcpListener,
        tls: Option<Arc<dyn TlsHandshaker>>,
    ) -> io::Result<Self> {
        // Without TLS, each client is a program on this machine, or connects through a proxy.
        let per_client_max = match &tls {
            Some(_) => CONNECTIONS_PER_CLIENT_MAX,
            None => CONNECTIONS_MAX,
        };
        let at = listener.local_addr()?;
        Ok(Self {
            source: ConnectionSource::Tcp { listener, at, tls },
            permits: ConnectionPermits::new(CONNECTIONS_MAX, per_client_max),
            handshakes: JoinSet::new(),
        })
    }

    /// Creates a listener from the admin socket, for processes that have permission to give orders.
    pub fn at_socket(listener: UnixListener) -> Self {
        Self {
            source: ConnectionSource::Socket(listener),
            permits: ConnectionPermits::new(CONNECTIONS_MAX, CONNECTIONS_MAX),
            handshakes: JoinSet::new(),
        }
    }
}

impl Listener for BoundedListener {
    type Io = BoundedConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedConnection, SocketAddr) {
        loop {
            let (accepted, mut client, permit) = tokio::select! {
                accepted = self.source.accept(&self.permits) => accepted,
                Some(finished) = self.handshakes.join_next() => match finished {
                    Ok(Some(connection)) => {
                        let address = connection.client.address;
                        return (connection, address);
                    }
                    _ => continue,
                },
            };
            let address = client.address;
            let stream = match accepted {
                AcceptedStream::Process(stream) => {
                    let connection = BoundedConnection::new(stream, client, permit, ORDER_TIMEOUT);
                    return (connection, address);
                }
                AcceptedStream::Tcp(stream) => stream,
            };
            // A client that does not read must not fill much memory.
            let bounded = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_BYTES);
            if let Err(error) = bounded.and_then(|()| stream.set_nodelay(true)) {
                debug!(%error, "socket options");
            }
            let Some(tls) = self.source.tls() else {
                let connection =
                    BoundedConnection::new(Leg::plain(stream), client, permit, REQUEST_TIMEOUT);
                return (connection, address);
            };
            self.handshakes.spawn(async move {
                let (stream, shown) = tls.handshake(stream, address).await?;
                client.certificates = shown.into();
                Some(BoundedConnection::new(
                    stream,
                    client,
                    permit,
                    REQUEST_TIMEOUT,
                ))
            });
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(match &self.source {
            ConnectionSource::Tcp { at, .. } => *at,
            ConnectionSource::Socket(_) => NO_ADDRESS,
        })
    }
}

impl ConnectionSource {
    fn tls(&self) -> Option<Arc<dyn TlsHandshaker>> {
        match self {
            Self::Tcp { tls, .. } => tls.clone(),
            Self::Socket(_) => None,
        }
    }

    /// Returns the next connection with its permit.
    ///
    /// With TLS, the connection is accepted when a permit is free. Without TLS, the connection is
    /// accepted at once. If no permit is free, the new connection replaces another connection.
    async fn accept(
        &mut self,
        permits: &ConnectionPermits,
    ) -> (AcceptedStream, PageClient, ConnectionPermit) {
        let mut free = None;
        loop {
            if self.tls().is_some() && free.is_none() {
                free = Some(permits.wait_for_free().await);
            }
            let (accepted, client) = match self {
                Self::Tcp { listener, at, tls } => {
                    // The listener waits while the process has no free descriptor.
                    let (stream, address) = Listener::accept(listener).await;
                    let client = PageClient::new(address, *at, tls.is_some());
                    (AcceptedStream::Tcp(stream), client)
                }
                Self::Socket(listener) => {
                    let (stream, process) = local::accept(listener).await;
                    let client = PageClient {
                        process: Some(process),
                        ..PageClient::new(NO_ADDRESS, NO_ADDRESS, false)
                    };
                    (AcceptedStream::Process(stream), client)
                }
            };
            let permit = match free.take() {
                Some(free) => free,
                None => permits.acquire().await,
            };
            match permits.assign(permit, client.address.ip()) {
                Some(permit) => return (accepted, client, permit),
                None => debug!(client = %client.address, "too many connections of one client"),
            }
        }
    }
}

impl Connected<IncomingStream<'_, BoundedListener>> for PageClient {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        stream.io().client.clone()
    }
}

impl BoundedConnection {
    /// Creates a connection. The connection ends unless a response is written within `timeout`.
    fn new(
        stream: impl ByteStream + 'static,
        client: PageClient,
        permit: ConnectionPermit,
        timeout: Duration,
    ) -> Self {
        Self {
            stream: Box::new(stream),
            client,
            deadline: Box::pin(sleep(timeout)),
            is_blocked: false,
            permit,
        }
    }

    /// Shortens the deadline while the client does not read the bytes that were written.
    fn limit_write_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() && !self.is_blocked {
            self.is_blocked = true;
            self.deadline.as_mut().reset(Instant::now() + WRITE_TIMEOUT);
        }
        self.fail_if_over(cx, polled)
    }

    /// Extends the deadline because the client has read some bytes.
    fn extend_deadline(&mut self) {
        self.permit.record_response();
        self.is_blocked = false;
        self.deadline.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
    }

    /// Replaces a pending result by an error if the connection has ended.
    fn fail_if_over<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() && self.is_over(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }

    /// Returns whether the deadline has passed, or another connection has replaced this connection.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let is_replaced = Pin::new(&mut self.permit.replaced).poll(cx).is_ready();
        is_replaced || self.deadline.as_mut().poll(cx).is_ready()
    }
}

impl AsyncRead for BoundedConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_over(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut this.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for BoundedConnection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, bytes);
        if matches!(polled, Poll::Ready(Ok(_))) {
            this.extend_deadline();
        }
        this.limit_write_time(cx, polled)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        if this.is_blocked && matches!(polled, Poll::Ready(Ok(()))) {
            this.extend_deadline();
        }
        this.limit_write_time(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.limit_write_time(cx, polled)
    }
}

/// Maximum number of concurrent connections. It suffices for two collectors of metrics, and for
/// several users.
const CONNECTIONS_MAX: usize = 64;

/// Maximum number of TLS connections from one address or one IPv6 network. Strangers can connect
/// over TLS, so each client is limited. A browser opens six connections.
const CONNECTIONS_PER_CLIENT_MAX: usize = 16;

/// Timeout for the first request. It is long enough for a few lost packets.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for an order of a local process, including its execution. The removal of a chunk store
/// may take minutes.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);

/// Placeholder for the address of a process, which has no address.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Timeout for a client that reads no bytes of a response. It is long enough for a few lost
/// packets.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time from the last response to the end of the next request. Collectors of metrics poll
/// every 15 or 30 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Send buffer, which can hold a page with the metrics of many peers. The kernel allocates twice
/// this size.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, pem::PemObject},
    };
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::{TlsConnector, client::TlsStream};

    use super::*;
    use net::tls::{CertSource, HttpsAcceptor};

    /// Writes until the listener disconnects the client. The client reads no bytes.
    async fn expect_cut_off(mut served: BoundedConnection) {
        let begun = Instant::now();
        let mut written = 0;
        let error = loop {
            match served.write(&[0; 4096]).await {
                Ok(count) => written += count,
                Err(error) => break error,
            }
            if let Err(error) = served.flush().await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(written > 0 && begun.elapsed() >= WRITE_TIMEOUT);
        assert!(begun.elapsed() < IDLE_TIMEOUT, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("a bound socket");
        let mut listener = BoundedListener::at_address(listener, None).expect("a bound socket");
        let (client, (served, _)) = tokio::join!(TcpStream::connect(at), listener.accept());
        expect_cut_off(served).await;
        drop(client);
    }

    #[tokio::test]
    async fn a_process_that_says_nothing_keeps_nobody_from_the_admin_socket() {
        let name = format!("longhaul-bounded-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        // An earlier test with the same process ID may have left the socket.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("room");
        let mut listener = BoundedListener::at_socket(listener);
        let mut idle = Vec::new();
        let mut served = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            idle.push(UnixStream::connect(&path).await.expect("it listens"));
            served.push(listener.accept().await.0);
        }
        let process = served[0].client.process.expect("the kernel knows");
        assert_eq!(process.pid as u32, std::process::id());
        let newcomer = UnixStream::connect(&path).await.expect("it listens");
        let ends_when_it_is_replaced = async {
            let mut byte = [0];
            let error = served[0].read(&mut byte).await;
            assert_eq!(error.expect_err("it ends").kind(), io::ErrorKind::TimedOut);
            drop(served.remove(0));
        };
        let both = async { tokio::join!(listener.accept(), ends_when_it_is_replaced) };
        let accepted = tokio::time::timeout(Duration::from_secs(20), both).await;
        accepted.expect("the newcomer is served");
        drop(newcomer);
        std::fs::remove_file(&path).expect("it is there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_takes_nothing_is_cut_off() {
        let (client, served) = UnixStream::pair().expect("sockets");
        let permits = ConnectionPermits::new(1, 1);
        let permit = permits.assign(permits.wait_for_free().await, NO_ADDRESS.ip());
        let client_of = PageClient::new(NO_ADDRESS, NO_ADDRESS, false);
        let served =
            BoundedConnection::new(served, client_of, permit.expect("the first"), ORDER_TIMEOUT);
        expect_cut_off(served).await;
        drop(client);
    }

    #[tokio::test]
    async fn so_is_one_over_tls() {
        let (client, served) = over_tls().await;
        tokio::time::pause();
        expect_cut_off(served).await;
        drop(client);
    }

    /// Returns both ends of a TLS connection.
    async fn over_tls() -> (TlsStream<TcpStream>, BoundedConnection) {
        let path = std::env::temp_dir().join(format!("longhaul-bound-{}", std::process::id()));
        let source = CertSource {
            cert_file: path.with_extension("pem"),
            key_file: path.with_extension("key"),
            self_signed: true,
        };
        let acceptor = HttpsAcceptor::new(source.clone()).expect("a certificate");
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_file(&source.cert_file).expect("it was made");
        roots.add(root).expect("a root");
        for file in [source.cert_file, source.key_file] {
            std::fs::remove_file(file).expect("it was made");
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has suites")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("a bound socket");
        let (client, served) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (client, (served, _)) = (client.expect("it accepts"), served.expect("it connects"));
        let name = "longhaul".try_into().expect("a name");
        let both = tokio::join!(
            connector.connect(name, client),
            acceptor.accept(served, &[])
        );
        let client = PageClient::new(address, address, true);
        let permits = ConnectionPermits::new(1, 1);
        let permit = permits.assign(permits.wait_for_free().await, address.ip());
        let permit = permit.expect("the first");
        let served = BoundedConnection::new(both.1.expect("TLS"), client, permit, REQUEST_TIMEOUT);
        (both.0.expect("TLS"), served)
    }
}
