//! A listener that hands out so many connections at once, each of which ends when it does nothing for too long.
//!
//! A deadline stands from the beginning, and only what this side writes moves it. So a request that comes byte by byte
//! is as late as one that does not come at all. A client that takes nothing of an answer has less time: it may have opened
//! a stream that never ends.
#![allow(
    clippy::disallowed_methods,
    reason = "drives sockets: bounds how long clients may take"
)]

use std::{
    future::Future,
    io,
    net::SocketAddr,
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
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};
use tracing::debug;

/// A listener with a bound on its connections.
#[derive(Debug)]
pub(super) struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

/// A connection with a deadline, and its place.
#[derive(Debug)]
pub(super) struct Bounded {
    stream: TcpStream,
    late: Pin<Box<Sleep>>,
    /// The client has not taken what was last written.
    is_blocked: bool,
    _place: OwnedSemaphorePermit,
}

impl BoundedListener {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }
}

impl Listener for BoundedListener {
    type Io = Bounded;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Bounded, SocketAddr) {
        let place = self.places.clone().acquire_owned().await;
        let place = place.expect("nobody closes the semaphore");
        // It waits where the process is out of descriptors.
        let (stream, client) = Listener::accept(&mut self.listener).await;
        // What waits for a client that does not read shall not be much.
        let bounded = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_BYTES);
        if let Err(error) = bounded {
            debug!(%error, "socket options");
        }
        let connection = Bounded {
            stream,
            late: Box::pin(sleep(REQUEST_PATIENCE)),
            is_blocked: false,
            _place: place,
        };
        (connection, client)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The client of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client(pub(super) SocketAddr);

impl Connected<IncomingStream<'_, BoundedListener>> for Client {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

impl Bounded {
    /// What is not ready now is an error when it is late.
    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() && self.late.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.late.as_mut().poll(cx).is_ready() {
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
            this.is_blocked = false;
            this.late.as_mut().reset(Instant::now() + IDLE_PATIENCE);
        } else if !this.is_blocked {
            this.is_blocked = true;
            this.late.as_mut().reset(Instant::now() + WRITE_PATIENCE);
        }
        this.in_time(cx, polled)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Connections at once; further ones wait in the kernel. Two collectors of metrics, and people.
const CONNECTIONS_MAX: usize = 64;

/// Time for the first request: that of a few lost packets.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);

/// Time for a client to take some of an answer: that of a few lost packets.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// Time between what was answered last and the end of the next request: collectors of metrics ask every 15 or 30 s.
const IDLE_PATIENCE: Duration = Duration::from_secs(60);

/// A page of metrics of many peers; the kernel takes twice as much.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("a bound socket");
        let mut listener = BoundedListener::new(listener);
        let (client, (mut served, _)) = tokio::join!(TcpStream::connect(at), listener.accept());
        let client = client.expect("the listener accepts");
        let begun = Instant::now();
        let mut written = 0;
        let error = loop {
            match served.write(&[0; 4096]).await {
                Ok(count) => written += count,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(written > 0 && begun.elapsed() >= WRITE_PATIENCE);
        assert!(begun.elapsed() < IDLE_PATIENCE, "{:?}", begun.elapsed());
        drop(client);
    }
}
