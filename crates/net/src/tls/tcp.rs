//! A TCP connection whose state can be read while TLS owns it.
//!
//! A read continues until the kernel has no more bytes, even after a short read: urgent data ends a
//! read early.

use std::{
    io::{self, IoSlice},
    net::Shutdown,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A shared TCP connection. Dropping the last one closes it; nothing else but a shutdown sends a FIN.
#[derive(Debug, Clone)]
pub(super) struct Tcp {
    stream: Arc<TcpStream>,
    has_read: Arc<AtomicBool>,
}

impl Tcp {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream: Arc::new(stream),
            has_read: Arc::default(),
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether anything has come from the peer.
    pub(super) fn has_read(&self) -> bool {
        self.has_read.load(Ordering::Relaxed)
    }

    /// The connection, if nobody else has it.
    pub(super) fn into_stream(self) -> Option<TcpStream> {
        Arc::into_inner(self.stream)
    }

    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read_buf(buf) {
                Ok(count) => {
                    if count > 0 {
                        self.has_read.store(true, Ordering::Relaxed);
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Sends the FIN.
    pub(super) fn finish(&self) -> io::Result<()> {
        SockRef::from(self.stream()).shutdown(Shutdown::Write)
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
