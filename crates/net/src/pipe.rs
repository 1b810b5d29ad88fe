//! Connections within this process, with the semantics of TCP that sessions rely on.
//!
//! A [`Pipe`] is one end of a connection. Bytes written at one end are read at the opposite end,
//! complete and in order. Each direction holds at most [`CAPACITY_BYTES`]. Like a TCP connection, a
//! direction ends with a FIN or with a reset. A [`PipeNetwork`] assigns addresses to pipes. Pipes
//! use no socket, so no other process can connect to them.

mod direction;
mod network;
#[cfg(test)]
mod tests;

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::coop::poll_proceed,
};

use self::direction::PipeDirection;
pub use self::{
    direction::CAPACITY_BYTES,
    network::{PipeListener, PipeNetwork},
};

/// One end of a connection within this process.
///
/// Dropping the pipe is an orderly end of the connection. After [`mark_abort`](Self::mark_abort),
/// dropping the pipe resets the connection.
#[derive(Debug)]
pub struct Pipe {
    /// The direction that this end reads.
    inbound: Arc<PipeDirection>,
    /// The direction that this end writes.
    outbound: Arc<PipeDirection>,
    local: SocketAddr,
    peer: SocketAddr,
    network: Option<PipeNetwork>,
    /// Whether dropping this end resets the connection.
    is_abort: AtomicBool,
}

impl Pipe {
    /// Returns both ends of a new connection outside any [`PipeNetwork`]. Both ends have an address
    /// with port 0.
    pub fn pair() -> (Self, Self) {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self::joined(nowhere, nowhere, None)
    }

    /// Returns the two ends of a new connection, with the addresses `here` and `there`.
    fn joined(here: SocketAddr, there: SocketAddr, network: Option<PipeNetwork>) -> (Self, Self) {
        let (one, other) = (
            Arc::<PipeDirection>::default(),
            Arc::<PipeDirection>::default(),
        );
        let near = Self {
            inbound: one.clone(),
            outbound: other.clone(),
            local: here,
            peer: there,
            network: network.clone(),
            is_abort: AtomicBool::new(false),
        };
        let far = Self {
            inbound: other,
            outbound: one,
            local: there,
            peer: here,
            network,
            is_abort: AtomicBool::new(false),
        };
        (near, far)
    }

    /// Returns the address of this end.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the address of the opposite end.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the network to which the addresses belong. Returns `None` for the ends of
    /// [`Pipe::pair`].
    pub fn network(&self) -> Option<&PipeNetwork> {
        self.network.as_ref()
    }

    /// Marks this end, so that a later drop resets the connection. Without this call, the drop is
    /// an orderly end of the connection.
    ///
    /// After the reset, reads and writes at the opposite end fail with
    /// [`io::ErrorKind::ConnectionReset`], and unread bytes are lost.
    pub fn mark_abort(&self) {
        self.is_abort.store(true, Ordering::Relaxed);
    }

    /// Cancels [`mark_abort`](Self::mark_abort), so that a later drop of this end is an orderly
    /// end.
    pub fn mark_orderly(&self) {
        self.is_abort.store(false, Ordering::Relaxed);
    }

    /// Ends the outbound direction. The opposite end first reads the remaining bytes, and then the
    /// end of the data.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionReset`] after a reset.
    pub fn finish(&self) -> io::Result<()> {
        self.outbound.finish()
    }

    /// Waits for bytes and copies them without consuming them. Returns 0 at the end of the data.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionReset`] after a reset.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.inbound.poll_peek(cx, bytes)).await
    }

    /// Returns whether a read would return at once, with bytes or with the end of the data.
    pub fn has_unread(&self) -> bool {
        self.inbound.has_unread()
    }

    /// Waits until the opposite end has called [`finish`](Self::finish) or was dropped. Does not
    /// wait until the bytes before the end are read.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionReset`] after a reset.
    pub async fn wait_for_end(&self) -> io::Result<()> {
        self.inbound.wait_for_end().await
    }

    /// Waits until the connection is reset. Keeps waiting after an orderly end.
    pub async fn wait_for_error(&self) -> io::Error {
        self.inbound.wait_for_reset().await
    }

    /// Waits until the opposite end has read all bytes written at this end. If this end has called
    /// [`finish`](Self::finish), also waits until the end of the data is read.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionReset`] after a reset. [`io::ErrorKind::BrokenPipe`] if the
    /// opposite end was closed with unread bytes.
    pub async fn wait_for_acknowledgement(&self) -> io::Result<()> {
        self.outbound.wait_for_acknowledgement().await
    }

    /// Returns the number of bytes that this end has written and the opposite end has not read.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.outbound.unread_bytes()
    }

    /// Reads the available bytes, like [`AsyncRead::poll_read`]. Only the task of the last poll is
    /// woken.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionReset`] after a reset.
    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let budget = ready!(poll_proceed(cx));
        let read = ready!(self.inbound.poll_read(cx, buf));
        budget.made_progress();
        Poll::Ready(read)
    }

    /// Writes as many bytes as fit, like [`AsyncWrite::poll_write_vectored`]. Only the task of the
    /// last poll is woken.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionReset`] after a reset. [`io::ErrorKind::BrokenPipe`] after
    /// [`finish`](Self::finish), and after the drop of the opposite end.
    pub fn poll_write(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let budget = ready!(poll_proceed(cx));
        let written = ready!(self.outbound.poll_write(cx, parts));
        budget.made_progress();
        Poll::Ready(written)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if *self.is_abort.get_mut() {
            self.outbound.abort();
            self.inbound.abort();
        } else {
            // A connection that was reset has no direction to end.
            let _ = self.outbound.finish();
            self.inbound.close_reader();
        }
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Self::poll_read(&self, cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write(&self, cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write(&self, cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.finish())
    }
}
