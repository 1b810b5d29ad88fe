//! A listener of the admin interface with a bound on its connections, at a TCP address or at the
//! admin socket.
//!
//! Each connection ends if it stays idle for too long. A connection occupies a place, and each
//! listener has its own places. Without TLS all clients run on this machine. When all places are
//! taken, the new connection then replaces the connection that uses its place least.
//!
//! The deadline of a connection starts when the connection is accepted, and only bytes written by
//! this side extend it. A request that arrives byte by byte gains no time. A client that reads no
//! bytes of a response has less time, since it may have opened an endless stream. A TLS handshake
//! occupies a place, has its own timeout, and delays no other client.
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
    client::Client,
    local,
    places::{Place, Places},
};

/// TLS of a listener.
pub trait Handshakes: fmt::Debug + Send + Sync {
    /// Performs the handshake with a client. Returns the client's certificates if they are valid,
    /// its own certificate first. `None` if the handshake fails.
    fn take(
        self: Arc<Self>,
        tcp: TcpStream,
        client: SocketAddr,
    ) -> BoxFuture<'static, Option<(Leg, Vec<CertificateDer<'static>>)>>;
}

/// A listener with a bound on its connections.
#[derive(Debug)]
pub struct BoundedListener {
    source: Source,
    places: Places,
    /// Handshakes in progress, each with its place.
    shaking: JoinSet<Option<Bounded>>,
}

/// Origin of connections.
#[derive(Debug)]
enum Source {
    Tcp {
        listener: TcpListener,
        at: SocketAddr,
        /// `None` without TLS.
        tls: Option<Arc<dyn Handshakes>>,
    },
    /// The admin socket.
    Socket(UnixListener),
}

/// An accepted connection.
enum Accepted {
    Tcp(TcpStream),
    /// Connection of a process that may give orders.
    Process(UnixStream),
}

/// The bytes of a connection, below its bounds.
trait Connection: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Connection for T {}

/// A connection with a deadline and a place.
#[derive(Debug)]
pub struct Bounded {
    /// The stream above TLS. Bytes that TLS writes on its own, at the client's request, do not
    /// extend the deadline.
    stream: Box<dyn Connection>,
    client: Client,
    late: Pin<Box<Sleep>>,
    /// Whether the last write is incomplete because the client does not read.
    is_blocked: bool,
    place: Place,
}

impl BoundedListener {
    /// Creates the listener of a TCP address.
    ///
    /// # Errors
    /// The system's error if the socket has no address.
    pub fn at_address(listener: TcpListener, tls: Option<Arc<dyn Handshakes>>) -> io::Result<Self> {
        // Without TLS all clients are programs of this machine, or pass through a proxy.
        let per_client_max = match &tls {
            Some(_) => CONNECTIONS_PER_CLIENT_MAX,
            None => CONNECTIONS_MAX,
        };
        let at = listener.local_addr()?;
        Ok(Self {
            source: Source::Tcp { listener, at, tls },
            places: Places::new(CONNECTIONS_MAX, per_client_max),
            shaking: JoinSet::new(),
        })
    }

    /// Creates the listener of the admin socket, for processes that may give orders.
    pub fn at_socket(listener: UnixListener) -> Self {
        Self {
            source: Source::Socket(listener),
            places: Places::new(CONNECTIONS_MAX, CONNECTIONS_MAX),
            shaking: JoinSet::new(),
        }
    }
}

impl Listener for BoundedListener {
    type Io = Bounded;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Bounded, SocketAddr) {
        loop {
            let (accepted, mut client, place) = tokio::select! {
                accepted = self.source.accept(&self.places) => accepted,
                Some(shaken) = self.shaking.join_next() => match shaken {
                    Ok(Some(connection)) => {
                        let address = connection.client.address;
                        return (connection, address);
                    }
                    _ => continue,
                },
            };
            let address = client.address;
            let stream = match accepted {
                Accepted::Process(stream) => {
                    let connection = Bounded::new(stream, client, place, ORDER_TIMEOUT);
                    return (connection, address);
                }
                Accepted::Tcp(stream) => stream,
            };
            // A client that does not read must not fill much memory.
            let bounded = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_BYTES);
            if let Err(error) = bounded.and_then(|()| stream.set_nodelay(true)) {
                debug!(%error, "socket options");
            }
            let Some(tls) = self.source.tls() else {
                let connection = Bounded::new(Leg::plain(stream), client, place, REQUEST_PATIENCE);
                return (connection, address);
            };
            self.shaking.spawn(async move {
                let (stream, shown) = tls.take(stream, address).await?;
                client.certificates = shown.into();
                Some(Bounded::new(stream, client, place, REQUEST_PATIENCE))
            });
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(match &self.source {
            Source::Tcp { at, .. } => *at,
            Source::Socket(_) => NOWHERE,
        })
    }
}

impl Source {
    fn tls(&self) -> Option<Arc<dyn Handshakes>> {
        match self {
            Self::Tcp { tls, .. } => tls.clone(),
            Self::Socket(_) => None,
        }
    }

    /// Returns the next connection with its place.
    ///
    /// With TLS the connection is accepted once a place is free. Otherwise it is accepted at once,
    /// and replaces another connection if necessary.
    async fn accept(&mut self, places: &Places) -> (Accepted, Client, Place) {
        let mut free = None;
        loop {
            if self.tls().is_some() && free.is_none() {
                free = Some(places.free().await);
            }
            let (accepted, client) = match self {
                Self::Tcp { listener, at, tls } => {
                    // The listener waits while the process has no free descriptor.
                    let (stream, address) = Listener::accept(listener).await;
                    let client = Client::new(address, *at, tls.is_some());
                    (Accepted::Tcp(stream), client)
                }
                Self::Socket(listener) => {
                    let (stream, process) = local::accept(listener).await;
                    let client = Client {
                        process: Some(process),
                        ..Client::new(NOWHERE, NOWHERE, false)
                    };
                    (Accepted::Process(stream), client)
                }
            };
            let place = match free.take() {
                Some(free) => free,
                None => places.take().await,
            };
            match places.give(place, client.address.ip()) {
                Some(place) => return (accepted, client, place),
                None => debug!(client = %client.address, "too many connections of one client"),
            }
        }
    }
}

impl Connected<IncomingStream<'_, BoundedListener>> for Client {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        stream.io().client.clone()
    }
}

impl Bounded {
    /// Creates a connection that ends unless a response is written within `timeout`.
    fn new(
        stream: impl Connection + 'static,
        client: Client,
        place: Place,
        timeout: Duration,
    ) -> Self {
        Self {
            stream: Box::new(stream),
            client,
            late: Box::pin(sleep(timeout)),
            is_blocked: false,
            place,
        }
    }

    /// Shortens the deadline while the client does not read the written bytes.
    fn taken<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() && !self.is_blocked {
            self.is_blocked = true;
            self.late.as_mut().reset(Instant::now() + WRITE_PATIENCE);
        }
        self.in_time(cx, polled)
    }

    /// Extends the deadline after the client has read some bytes.
    fn goes_on(&mut self) {
        self.place.answered();
        self.is_blocked = false;
        self.late.as_mut().reset(Instant::now() + IDLE_PATIENCE);
    }

    /// Turns a pending result into an error once the connection is over.
    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() && self.is_over(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }

    /// Whether the deadline has passed, or another connection has the place.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let is_given_away = Pin::new(&mut self.place.kept).poll(cx).is_ready();
        is_given_away || self.late.as_mut().poll(cx).is_ready()
    }
}

impl AsyncRead for Bounded {
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

impl AsyncWrite for Bounded {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, bytes);
        if matches!(polled, Poll::Ready(Ok(_))) {
            this.goes_on();
        }
        this.taken(cx, polled)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        if this.is_blocked && matches!(polled, Poll::Ready(Ok(()))) {
            this.goes_on();
        }
        this.taken(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.taken(cx, polled)
    }
}

/// Most connections at once: two collectors of metrics, and people.
const CONNECTIONS_MAX: usize = 64;

/// Most connections over TLS from one address or one IPv6 network. Strangers connect there, too. A
/// browser opens six connections.
const CONNECTIONS_PER_CLIENT_MAX: usize = 16;

/// Timeout of the first request, long enough for a few lost packets.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);

/// Timeout of an order by a process of this machine, its execution included. The removal of a chunk
/// store may take minutes.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);

/// Address of processes, which have none.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Timeout of a client that reads no bytes of a response, long enough for a few lost packets.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// Timeout from the last response to the end of the next request. Collectors of metrics poll every
/// 15 or 30 s.
const IDLE_PATIENCE: Duration = Duration::from_secs(60);

/// Send buffer for a page with metrics of many peers. The kernel allocates twice this size.
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

    /// Writes until the listener disconnects the client, which reads no bytes.
    async fn expect_cut_off(mut served: Bounded) {
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
        assert!(written > 0 && begun.elapsed() >= WRITE_PATIENCE);
        assert!(begun.elapsed() < IDLE_PATIENCE, "{:?}", begun.elapsed());
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
        let ends_when_its_place_goes = async {
            let mut byte = [0];
            let error = served[0].read(&mut byte).await;
            assert_eq!(error.expect_err("it ends").kind(), io::ErrorKind::TimedOut);
            drop(served.remove(0));
        };
        let both = async { tokio::join!(listener.accept(), ends_when_its_place_goes) };
        let accepted = tokio::time::timeout(Duration::from_secs(20), both).await;
        accepted.expect("the newcomer is served");
        drop(newcomer);
        std::fs::remove_file(&path).expect("it is there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_takes_nothing_is_cut_off() {
        let (client, served) = UnixStream::pair().expect("sockets");
        let places = Places::new(1, 1);
        let place = places.give(places.free().await, NOWHERE.ip());
        let client_of = Client::new(NOWHERE, NOWHERE, false);
        let served = Bounded::new(served, client_of, place.expect("the first"), ORDER_TIMEOUT);
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

    /// Returns both ends of a connection with TLS.
    async fn over_tls() -> (TlsStream<TcpStream>, Bounded) {
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
        let client = Client::new(address, address, true);
        let places = Places::new(1, 1);
        let place = places.give(places.free().await, address.ip());
        let place = place.expect("the first");
        let served = Bounded::new(both.1.expect("TLS"), client, place, REQUEST_PATIENCE);
        (both.0.expect("TLS"), served)
    }
}
