//! Connections and listeners of sessions: TCP, or pipes within this process.
//!
//! A [`Connection`] is an enum, so that reads and writes over TCP need no dynamic dispatch.
//! [`socket`](crate::socket) has the options of TCP sockets, and functions that close TCP sockets.

use std::{
    io::{self, IoSlice},
    net::{Shutdown, SocketAddr},
    sync::Arc,
    task::{Context, Poll, ready},
};

use socket2::SockRef;
use tokio::{
    io::ReadBuf,
    net::{TcpListener, TcpStream},
};

use crate::pipe::{Pipe, PipeListener, PipeNetwork};

/// A connection of a session.
#[derive(Debug)]
pub enum Connection {
    /// TCP connection to another program.
    Tcp(TcpStream),
    /// Pipe within this process.
    Pipe(Pipe),
}

/// A listener of a session.
#[derive(Debug)]
pub enum Listener {
    /// TCP listener for other programs.
    Tcp(Arc<TcpListener>),
    /// Pipe listener for connections from this process.
    Pipe(PipeListener),
}

impl Connection {
    /// Returns the local address.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp.local_addr(),
            Self::Pipe(pipe) => Ok(pipe.local_addr()),
        }
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp.peer_addr(),
            Self::Pipe(pipe) => Ok(pipe.peer_addr()),
        }
    }

    /// Returns the network of a pipe, or `None` for TCP. Further connections of the same session
    /// use the same network.
    pub fn network(&self) -> Option<&PipeNetwork> {
        match self {
            Self::Tcp(_) => None,
            Self::Pipe(pipe) => pipe.network(),
        }
    }

    /// Returns the TCP connection, or `None` for a pipe.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Pipe(_) => None,
        }
    }

    /// Returns the TCP connection, or `None` for a pipe.
    pub fn into_tcp(self) -> Option<TcpStream> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Pipe(_) => None,
        }
    }

    /// Waits for bytes and copies them without consuming them. Returns 0 at the end of the data.
    ///
    /// # Errors
    /// The error of the connection.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.peek(bytes).await,
            Self::Pipe(pipe) => pipe.peek(bytes).await,
        }
    }

    /// Reads available bytes. Urgent data may end a system call early, so a short read does not
    /// mean that the kernel has no more bytes. The socket stays readable until a call would block.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let tcp = match self {
            Self::Tcp(tcp) => tcp,
            Self::Pipe(pipe) => return pipe.poll_read(cx, buf),
        };
        loop {
            ready!(tcp.poll_read_ready(cx))?;
            match tcp.try_read_buf(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result.map(drop)),
            }
        }
    }

    /// Writes as many bytes as fit the send buffer.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let tcp = match self {
            Self::Tcp(tcp) => tcp,
            Self::Pipe(pipe) => return pipe.poll_write(cx, parts),
        };
        loop {
            ready!(tcp.poll_write_ready(cx))?;
            match tcp.try_write_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Sends the FIN, which ends the outbound direction.
    pub(crate) fn finish(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => SockRef::from(tcp).shutdown(Shutdown::Write),
            Self::Pipe(pipe) => pipe.finish(),
        }
    }
}

impl Listener {
    /// Accepts the next connection. Cancel safe.
    ///
    /// # Errors
    /// The error of the system call.
    pub async fn accept(&self) -> io::Result<(Connection, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (tcp, from) = listener.accept().await?;
                Ok((tcp.into(), from))
            }
            Self::Pipe(listener) => {
                let pipe = listener.accept().await;
                let from = pipe.peer_addr();
                Ok((pipe.into(), from))
            }
        }
    }

    /// Returns the address of the listener.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Pipe(listener) => Ok(listener.local_addr()),
        }
    }
}

impl From<TcpStream> for Connection {
    fn from(tcp: TcpStream) -> Self {
        Self::Tcp(tcp)
    }
}

impl From<Pipe> for Connection {
    fn from(pipe: Pipe) -> Self {
        Self::Pipe(pipe)
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(Arc::new(listener))
    }
}

impl From<Arc<TcpListener>> for Listener {
    fn from(listener: Arc<TcpListener>) -> Self {
        Self::Tcp(listener)
    }
}

impl From<PipeListener> for Listener {
    fn from(listener: PipeListener) -> Self {
        Self::Pipe(listener)
    }
}
