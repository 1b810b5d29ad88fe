//! Limit on the bytes that a gateway has received on one SSH connection and not passed on yet.
//!
//! The SSH library reopens the window of a channel when data arrives, so windows do not limit the
//! sender. The gateway therefore stops reading from the connection, which stops all its channels.
//! In two cases, the gateway continues to read, up to a higher limit. In the first case, one of its
//! channels waits for a window of the peer. If the peer had stopped reading, too, each side would
//! wait for the other forever. In the second case, one channel holds bytes and another channel
//! holds none. The reader of the first channel may have stopped, and the other channel must
//! continue.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::{FutureExt as _, task::AtomicWaker};
use net::tls::Leg;
use relay::session_memory::SessionMemory;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    sync::watch,
    time::{Sleep, sleep},
};

/// State that decides whether the gateway reads from one SSH connection.
#[derive(Debug)]
pub(crate) struct Backpressure {
    /// Memory of all sessions of the gateway.
    memory: Arc<SessionMemory>,
    /// Number of bytes received and not passed on yet, in all channels.
    held_bytes: AtomicI64,
    /// Number of channels that wait for the window of the peer.
    window_waits: AtomicUsize,
    /// Number of open channels.
    channels: AtomicUsize,
    /// Number of channels that hold bytes.
    holders: AtomicUsize,
    is_aborted: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

/// Bytes that one channel has received and not passed on yet.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    connection: Arc<Backpressure>,
    /// Number of bytes. `None` once the channel discards its bytes.
    bytes: Mutex<Option<i64>>,
    /// Whether the peer has closed the channel, or the connection has ended.
    is_closed: watch::Sender<bool>,
    /// Memory of all requests on the channel, in bytes. The SSH library keeps each request.
    request_bytes: AtomicUsize,
}

/// Error: the peer has sent too many requests on one channel.
#[derive(Debug)]
pub(crate) struct TooManyRequests;

/// Guard of a channel that waits for the window of the peer.
#[derive(Debug)]
pub(crate) struct WindowWait<'a>(&'a Backpressure);

/// Guard that aborts the connection when it is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(pub(crate) Arc<Backpressure>);

/// A connection from which the gateway reads only while the limits permit it.
#[derive(Debug)]
pub(crate) struct PausableStream<S> {
    stream: S,
    backpressure: Arc<Backpressure>,
    /// Time of the next check while reading is paused.
    check: Option<Pin<Box<Sleep>>>,
}

/// Stream that can detect the end of its peer while earlier bytes are still unread.
pub(crate) trait PeerEnd {
    /// Returns true if the peer is gone and its unread bytes do not matter.
    fn has_peer_ended(&self) -> bool;
}

/// Connection to a server. After a server has closed the connection, its last bytes still matter.
impl PeerEnd for Leg {
    fn has_peer_ended(&self) -> bool {
        false
    }
}

/// Returns whether the peer of a connection has ended its data, or the connection has failed.
pub(crate) fn is_read_closed(leg: &Leg) -> bool {
    let tcp = leg.connection().tcp();
    let ready = tcp.and_then(|tcp| tcp.ready(Interest::READABLE).now_or_never());
    matches!(ready, Some(Ok(ready)) if ready.is_read_closed())
}

impl Backpressure {
    /// Creates the state of a connection without channels. `memory` is the memory of all sessions
    /// of the gateway.
    pub(crate) fn new(memory: Arc<SessionMemory>) -> Self {
        Self {
            memory,
            held_bytes: AtomicI64::new(0),
            window_waits: AtomicUsize::new(0),
            channels: AtomicUsize::new(0),
            holders: AtomicUsize::new(0),
            is_aborted: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
        }
    }

    /// Returns the memory of all sessions of the gateway.
    pub(crate) fn memory(&self) -> &Arc<SessionMemory> {
        &self.memory
    }

    /// Counts a channel as waiting for the window of the peer until the guard is dropped.
    pub(crate) fn wait_for_window(&self) -> WindowWait<'_> {
        if self.window_waits.fetch_add(1, Ordering::AcqRel) == 0 {
            self.reader.wake();
        }
        WindowWait(self)
    }

    /// Makes all further reads and writes fail. The tasks of the connection then end.
    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, Ordering::Release);
        self.reader.wake();
        self.writer.wake();
    }

    fn change(&self, bytes: i64) {
        self.held_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.memory.change_held(bytes);
        if bytes < 0 {
            self.reader.wake();
        }
    }

    /// Returns whether the gateway reads nothing from the connection at present.
    pub(crate) fn is_paused(&self) -> bool {
        self.held_bytes.load(Ordering::Acquire) > self.limit()
    }

    /// Returns the limit for held bytes. Above this limit, the gateway stops reading.
    fn limit(&self) -> i64 {
        // Because of this share, a few connections with stopped readers leave memory for other
        // connections.
        let share = i64::try_from(self.memory.free_bytes() / 8).unwrap_or(i64::MAX);
        let has_wait = self.window_waits.load(Ordering::Acquire) > 0;
        let holders = self.holders.load(Ordering::Acquire);
        let is_uneven = holders < self.channels.load(Ordering::Acquire);
        match (has_wait, is_uneven) {
            (true, _) => share.clamp(WAIT_LIMIT_MIN, HARD_LIMIT),
            (false, true) => share.clamp(SOFT_LIMIT_MIN, HARD_LIMIT),
            (false, false) => share.clamp(SOFT_LIMIT_MIN, SOFT_LIMIT),
        }
    }
}

impl HeldBytes {
    pub(crate) fn new(connection: Arc<Backpressure>) -> Arc<Self> {
        connection.channels.fetch_add(1, Ordering::AcqRel);
        connection.reader.wake();
        Arc::new(Self {
            connection,
            bytes: Mutex::new(Some(0)),
            is_closed: watch::Sender::new(false),
            request_bytes: AtomicUsize::new(0),
        })
    }

    /// Counts a received message with this number of data bytes.
    pub(crate) fn add(&self, data_bytes: usize) {
        self.change(cost(data_bytes));
    }

    /// Counts a message as passed on. The message has this number of data bytes.
    pub(crate) fn remove(&self, data_bytes: usize) {
        self.change(-cost(data_bytes));
    }

    /// Discards the bytes of the channel, now and in the future.
    pub(crate) fn discard(&self) {
        if let Some(bytes) = self.lock().take() {
            self.connection.channels.fetch_sub(1, Ordering::AcqRel);
            if bytes > 0 {
                self.connection.holders.fetch_sub(1, Ordering::AcqRel);
            }
            self.connection.change(-bytes);
        }
    }

    /// Counts a request with this number of bytes in its fields. The queue of a channel keeps
    /// requests until the channel ends or a task reads them.
    ///
    /// # Errors
    /// [`TooManyRequests`] if the connection must end.
    pub(crate) fn count_request(&self, field_bytes: usize) -> Result<(), TooManyRequests> {
        let bytes = field_bytes.saturating_add(MESSAGE_BYTES);
        let before = self.request_bytes.fetch_add(bytes, Ordering::AcqRel);
        match before.saturating_add(bytes) <= REQUESTS_MAX {
            true => Ok(()),
            false => Err(TooManyRequests),
        }
    }

    /// Records that the peer has closed the channel, or that the connection has ended. The queue of
    /// the channel may still have messages.
    pub(crate) fn close(&self) {
        self.is_closed.send_replace(true);
    }

    /// Waits until the peer has closed the channel. The window of the peer never opens after that.
    pub(crate) async fn closed(&self) {
        let mut is_closed = self.is_closed.subscribe();
        // The sender is part of this value, so the wait cannot fail.
        let _ = is_closed.wait_for(|it| *it).await;
    }

    /// Waits until the peer has closed the channel, and then until no byte has been passed on for
    /// `limit`.
    pub(crate) async fn stalled_after_close(&self, limit: Duration) {
        self.closed().await;
        loop {
            let before = *self.lock();
            sleep(limit).await;
            if *self.lock() == before {
                return;
            }
        }
    }

    fn change(&self, bytes: i64) {
        if let Some(held) = &mut *self.lock() {
            let was_holder = *held > 0;
            *held += bytes;
            match (was_holder, *held > 0) {
                (false, true) => self.connection.holders.fetch_add(1, Ordering::AcqRel),
                (true, false) => self.connection.holders.fetch_sub(1, Ordering::AcqRel),
                _ => 0,
            };
            self.connection.change(bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<i64>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.discard();
    }
}

impl Drop for WindowWait<'_> {
    fn drop(&mut self) {
        self.0.window_waits.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl From<TooManyRequests> for russh::Error {
    fn from(_: TooManyRequests) -> Self {
        Self::RequestDenied
    }
}

impl<S> PausableStream<S> {
    pub(crate) fn new(stream: S, backpressure: Arc<Backpressure>) -> Self {
        Self {
            stream,
            backpressure,
            check: None,
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.backpressure.is_aborted.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

impl<S: AsyncRead + PeerEnd + Unpin> AsyncRead for PausableStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The waker is registered before the state is read, so that no change is missed.
        self.backpressure.reader.register(context.waker());
        self.check()?;
        while self.backpressure.is_paused() {
            if self.stream.has_peer_ended() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            // The socket stays readable, so only a check at intervals detects the end of the peer.
            // The free memory of all sessions may also have grown meanwhile.
            let check = self
                .check
                .get_or_insert_with(|| Box::pin(sleep(CHECK_INTERVAL)));
            ready!(check.as_mut().poll(context));
            self.check = None;
        }
        self.check = None;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PausableStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.backpressure.writer.register(context.waker());
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.backpressure.writer.register(context.waker());
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Returns the memory of a message in a queue, in bytes.
fn cost(data_bytes: usize) -> i64 {
    (data_bytes + MESSAGE_BYTES) as i64
}

/// Memory of a message without data, in bytes.
const MESSAGE_BYTES: usize = 256;

/// Interval at which the gateway checks whether the peer of a paused connection is gone, and
/// whether there is memory again.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Memory of all requests on one channel, in bytes. An environment of 256 variables fits.
const REQUESTS_MAX: usize = 1024 * 1024;

/// Soft limit for the held bytes of a connection. Above this limit, the gateway usually stops
/// reading. The link has further buffers, so these bytes need to bridge only the time between two
/// wake-ups.
const SOFT_LIMIT: i64 = 4 * 1024 * 1024;

/// Hard limit for the held bytes of a connection. Above this limit, the gateway always stops
/// reading.
const HARD_LIMIT: i64 = 64 * 1024 * 1024;

/// Lower bound of the soft limit when the memory of all sessions is short. Each connection can
/// then still pass on bytes.
const SOFT_LIMIT_MIN: i64 = 256 * 1024;

/// Lower bound of the limit while a channel waits for a window of the peer. The bytes ahead of a
/// window update always fit into the socket buffers of both sides.
const WAIT_LIMIT_MIN: i64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use units::ByteCount;

    use super::*;

    impl PeerEnd for tokio::io::Repeat {
        fn has_peer_ended(&self) -> bool {
            false
        }
    }

    /// Returns whether the stream has a byte to read at present.
    async fn reads(stream: &mut PausableStream<tokio::io::Repeat>) -> bool {
        let read = stream.read_u8();
        tokio::select! {
            biased;
            read = read => read.is_ok(),
            () = std::future::ready(()) => false,
        }
    }

    fn backpressure() -> Arc<Backpressure> {
        let memory = SessionMemory::new(ByteCount::gibibytes(1));
        Arc::new(Backpressure::new(Arc::new(memory)))
    }

    fn stream() -> (PausableStream<tokio::io::Repeat>, Arc<Backpressure>) {
        let state = backpressure();
        let stream = PausableStream::new(tokio::io::repeat(0), state.clone());
        (stream, state)
    }

    #[tokio::test]
    async fn reading_pauses_above_the_soft_limit_unless_a_window_is_awaited() {
        let (mut stream, state) = stream();
        let held = HeldBytes::new(state.clone());
        held.add(SOFT_LIMIT as usize - MESSAGE_BYTES);
        assert!(reads(&mut stream).await);
        held.add(0);
        assert!(!reads(&mut stream).await);
        let wait = state.wait_for_window();
        assert!(reads(&mut stream).await);
        held.add(HARD_LIMIT as usize);
        assert!(!reads(&mut stream).await);
        drop(wait);
        held.remove(HARD_LIMIT as usize);
        held.remove(0);
        assert!(reads(&mut stream).await);
    }

    #[tokio::test]
    async fn a_channel_that_holds_bytes_leaves_room_for_another() {
        let (mut stream, state) = stream();
        let held = HeldBytes::new(state.clone());
        let other = HeldBytes::new(state);
        held.add(HARD_LIMIT as usize - MESSAGE_BYTES);
        assert!(reads(&mut stream).await);
        other.add(1);
        assert!(!reads(&mut stream).await);
        other.remove(1);
        assert!(reads(&mut stream).await);
        held.add(0);
        assert!(!reads(&mut stream).await);
        held.remove(0);
        assert!(reads(&mut stream).await);
        drop(other);
        assert!(!reads(&mut stream).await);
    }

    #[tokio::test]
    async fn a_channel_that_ends_returns_its_bytes() {
        let (mut stream, state) = stream();
        let held = HeldBytes::new(state);
        held.add(HARD_LIMIT as usize);
        held.discard();
        held.add(HARD_LIMIT as usize);
        assert!(reads(&mut stream).await);
    }

    #[tokio::test]
    async fn a_connection_holds_less_while_the_memory_of_all_sessions_is_short() {
        let memory = Arc::new(SessionMemory::new(ByteCount::mebibytes(64)));
        let state = Arc::new(Backpressure::new(memory.clone()));
        let mut stream = PausableStream::new(tokio::io::repeat(0), state.clone());
        let held = HeldBytes::new(state.clone());
        held.add(SOFT_LIMIT_MIN as usize);
        assert!(reads(&mut stream).await);
        let shares: Vec<_> = (0..100).map(|_| memory.reserve(u64::MAX)).collect();
        memory.change_held(20 << 20);
        assert!(!reads(&mut stream).await);
        let wait = state.wait_for_window();
        assert!(reads(&mut stream).await);
        held.add(WAIT_LIMIT_MIN as usize);
        assert!(!reads(&mut stream).await);
        held.remove(WAIT_LIMIT_MIN as usize);
        drop(wait);
        assert!(!reads(&mut stream).await);
        drop(shares);
        memory.change_held(-(20 << 20));
        assert!(reads(&mut stream).await);
        drop(held);
        assert_eq!(memory.free_bytes(), 64 << 20);
    }

    #[test]
    fn the_requests_of_a_channel_have_a_limit() {
        let held = HeldBytes::new(backpressure());
        let variable = 250_000;
        assert!((0..4).all(|_| held.count_request(variable).is_ok()));
        assert!(held.count_request(variable).is_err());
        let held = HeldBytes::new(backpressure());
        let count = (0..).take_while(|_| held.count_request(0).is_ok()).count();
        assert!((1024..8192).contains(&count), "{count}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_channel_stalls_once_it_passes_on_no_bytes() {
        let (_, state) = stream();
        let held = HeldBytes::new(state);
        held.add(1);
        held.add(1);
        let limit = Duration::from_secs(10);
        let stalled = held.stalled_after_close(limit);
        tokio::pin!(stalled);
        let open = tokio::time::timeout(10 * limit, &mut stalled).await;
        assert!(open.is_err());
        held.close();
        let draining = tokio::time::timeout(limit / 2, &mut stalled).await;
        assert!(draining.is_err());
        held.remove(1);
        let start = tokio::time::Instant::now();
        stalled.await;
        assert!(start.elapsed() > limit, "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn an_aborted_connection_fails_while_its_peer_does_not_read() {
        let (near, _far) = tokio::io::duplex(1);
        let state = backpressure();
        let mut stream = PausableStream::new(near, state.clone());
        let write = tokio::spawn(async move { stream.write_all(&[0; 2]).await });
        tokio::task::yield_now().await;
        state.abort();
        let error = write.await.expect("no panic").expect_err("aborted");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }

    /// Stream whose peer has sent bytes and has left.
    struct ClosedPeer;

    impl AsyncRead for ClosedPeer {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            buffer.put_slice(&[0]);
            Poll::Ready(Ok(()))
        }
    }

    impl PeerEnd for ClosedPeer {
        fn has_peer_ended(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn a_paused_connection_ends_when_its_peer_is_gone() {
        let state = backpressure();
        let mut stream = PausableStream::new(ClosedPeer, state.clone());
        let held = HeldBytes::new(state);
        assert!(stream.read_u8().await.is_ok());
        held.add(HARD_LIMIT as usize);
        let error = stream.read_u8().await.expect_err("the peer is gone");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn an_aborted_connection_fails_even_while_it_is_paused() {
        let (mut stream, state) = stream();
        let held = HeldBytes::new(state.clone());
        held.add(HARD_LIMIT as usize + 1);
        state.abort();
        let error = stream.read_u8().await.expect_err("aborted");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
}
