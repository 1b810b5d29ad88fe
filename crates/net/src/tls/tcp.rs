//! A connection whose state remains accessible while the TLS library owns it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Connection;

/// A shared connection. Dropping the last clone closes the connection. While a clone exists, only a
/// shutdown sends a FIN.
#[derive(Debug, Clone)]
pub(super) struct Tcp {
    connection: Arc<Connection>,
    has_read: Arc<AtomicBool>,
}

impl Tcp {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection: Arc::new(connection),
            has_read: Arc::default(),
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns whether any bytes have been received from the peer.
    pub(super) fn has_read(&self) -> bool {
        self.has_read.load(Ordering::Relaxed)
    }

    /// Returns the connection, or `None` if another clone exists.
    pub(super) fn into_connection(self) -> Option<Connection> {
        Arc::into_inner(self.connection)
    }

    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(self.connection.poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.has_read.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.connection.poll_write(cx, parts)
    }

    /// Sends the FIN, which ends the outbound direction.
    pub(super) fn finish(&self) -> io::Result<()> {
        self.connection.finish()
    }
}

impl AsyncRead for Tcp {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Self::poll_read(&self, cx, buf)
    }
}

impl AsyncWrite for Tcp {
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
