//! One leg of a relayed connection: TCP or a pipe, with or without TLS.
//!
//! TLS can end in two ways. A close_notify proves that the peer ended the data. A FIN without a
//! close_notify could come from any host on the path. A reader sees the end of the data in both
//! cases, and [`Leg`] records which case occurred. A leg ends its own direction with close_notify,
//! unless it is dropped.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use rustls::{HandshakeKind, ProtocolVersion, pki_types::CertificateDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

use super::tcp::Tcp;
use crate::Connection;

/// A connection with or without TLS.
///
/// Under TLS, only a flush sends written bytes. `shutdown` sends the FIN. Under TLS, `shutdown`
/// sends a close_notify before the FIN. Dropping a leg closes the socket without a close_notify.
#[derive(Debug)]
pub struct Leg(Arc<LegState>);

/// The reading half of a [`Leg`].
#[derive(Debug)]
pub struct LegReader(Leg);

/// The writing half of a [`Leg`].
#[derive(Debug)]
pub struct LegWriter(Leg);

#[derive(Debug)]
struct LegState {
    tcp: Tcp,
    tls: Option<Mutex<TlsStream<Tcp>>>,
    closed_without_notify: AtomicBool,
}

impl Leg {
    /// Creates a leg without TLS.
    pub fn plain(connection: impl Into<Connection>) -> Self {
        Self::new(Tcp::new(connection.into()), None)
    }

    /// Creates a leg with TLS, after the handshake is complete.
    pub(super) fn tls(stream: impl Into<TlsStream<Tcp>>) -> Self {
        let stream = stream.into();
        Self::new(stream.get_ref().0.clone(), Some(stream))
    }

    fn new(tcp: Tcp, tls: Option<TlsStream<Tcp>>) -> Self {
        Self(Arc::new(LegState {
            tcp,
            tls: tls.map(Mutex::new),
            closed_without_notify: AtomicBool::new(false),
        }))
    }

    /// Returns the connection, for its options and addresses. If the leg has TLS, callers must not
    /// read from this connection or write to it.
    pub fn connection(&self) -> &Connection {
        self.0.tcp.connection()
    }

    /// Returns the connection. Returns `None` if the leg has TLS, or was split and its other half
    /// still exists.
    pub fn into_plain(self) -> Option<Connection> {
        Arc::into_inner(self.0)
            .filter(|shared| shared.tls.is_none())
            .and_then(|shared| shared.tcp.into_connection())
    }

    /// Returns whether the leg has TLS.
    pub fn is_tls(&self) -> bool {
        self.0.tls.is_some()
    }

    /// Returns whether the handshake resumed the TLS session of an earlier connection.
    pub fn is_resumed(&self) -> bool {
        let kind = self.lock().and_then(|tls| tls.get_ref().1.handshake_kind());
        kind == Some(HandshakeKind::Resumed)
    }

    /// Returns whether the leg has TLS 1.3.
    pub fn is_tls13(&self) -> bool {
        let version = self
            .lock()
            .and_then(|tls| tls.get_ref().1.protocol_version());
        version == Some(ProtocolVersion::TLSv1_3)
    }

    /// Returns the certificates that the peer has presented. The peer's own certificate is the
    /// first.
    pub fn peer_certificates(&self) -> Vec<CertificateDer<'static>> {
        let tls = self.lock();
        let shown = tls
            .as_ref()
            .and_then(|tls| tls.get_ref().1.peer_certificates());
        shown.unwrap_or_default().to_vec()
    }

    /// Returns whether the data ended with a FIN, but without a close_notify. The last bytes of the
    /// peer may then be missing.
    ///
    /// Always returns false without TLS.
    pub fn closed_without_notify(&self) -> bool {
        self.0.closed_without_notify.load(Ordering::Relaxed)
    }

    /// Splits the leg into a reading half and a writing half, for two tasks. The socket is closed
    /// when both halves are dropped.
    pub fn into_split(self) -> (LegReader, LegWriter) {
        (LegReader(Self(self.0.clone())), LegWriter(self))
    }

    fn lock(&self) -> Option<MutexGuard<'_, TlsStream<Tcp>>> {
        // A panic in another task keeps the TLS state consistent.
        let tls = self.0.tls.as_ref()?;
        Some(tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(mut tls) = self.lock() else {
            return self.0.tcp.poll_read(cx, buf);
        };
        match ready!(Pin::new(&mut *tls).poll_read(cx, buf)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.0.closed_without_notify.store(true, Ordering::Relaxed);
                Poll::Ready(Ok(()))
            }
            result => Poll::Ready(result),
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self.lock() {
            None => self.0.tcp.poll_write(cx, parts),
            Some(mut tls) => Pin::new(&mut *tls).poll_write_vectored(cx, parts),
        }
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.lock() {
            None => Poll::Ready(Ok(())),
            Some(mut tls) => Pin::new(&mut *tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.lock() {
            None => Poll::Ready(self.0.tcp.finish()),
            Some(mut tls) => Pin::new(&mut *tls).poll_shutdown(cx),
        }
    }
}

impl LegReader {
    /// Returns the leg to which this half belongs.
    pub fn leg(&self) -> &Leg {
        &self.0
    }
}

impl LegWriter {
    /// Returns the leg to which this half belongs.
    pub fn leg(&self) -> &Leg {
        &self.0
    }

    /// Returns the leg. The reading half must already have been dropped.
    pub fn into_leg(self) -> Leg {
        self.0
    }
}

impl AsyncRead for Leg {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Self::poll_read(&self, cx, buf)
    }
}

impl AsyncWrite for Leg {
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

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(&self, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_shutdown(&self, cx)
    }
}

impl AsyncRead for LegReader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.poll_read(cx, buf)
    }
}

impl AsyncWrite for LegWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_shutdown(cx)
    }
}
