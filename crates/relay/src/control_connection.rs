//! Control connections of clients and servers: reading and writing of lines, with TLS from the
//! start or from a later line.

use std::io;

use ftp::line::{LineSplitter, SplitLine};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use net::{Connection, socket, tls::Leg};

/// A control connection, and the bytes read from it that do not form a complete line yet.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    /// The TCP or TLS connection. `None` after the connection was closed, or after the start of TLS
    /// has failed.
    leg: Option<Leg>,
    lines: LineSplitter,
    buffer: Box<[u8]>,
}

impl ControlConnection {
    /// Creates a control connection whose lines have at most `line_max` bytes.
    pub(crate) fn new(leg: Leg, line_max: usize) -> Self {
        Self {
            leg: Some(leg),
            lines: LineSplitter::new(line_max),
            buffer: vec![0; READ_BYTES].into(),
        }
    }

    /// Returns the next complete line that was read. Returns `None` if no complete line is
    /// available.
    pub(crate) fn next_line(&mut self) -> Option<SplitLine> {
        self.lines.next_line()
    }

    /// Reads once from the connection. Before this call, the caller must take all lines with
    /// [`next_line`](Self::next_line). Returns `false` at the end of the input.
    ///
    /// # Errors
    /// The errors of the connection.
    pub(crate) async fn read(&mut self) -> io::Result<bool> {
        let Some(leg) = &mut self.leg else {
            return Ok(false);
        };
        let count = leg.read(&mut self.buffer).await?;
        self.lines.push(&self.buffer[..count]);
        Ok(count > 0)
    }

    /// Reads once if `wanted` is set. Otherwise reads nothing and waits until the connection is
    /// reset. The reset is returned as an error.
    ///
    /// If `or_end` is set, the wait also ends when the peer closes its sending direction, even if
    /// unread bytes precede the close.
    ///
    /// # Errors
    /// The errors of the connection.
    pub(crate) async fn read_if(&mut self, wanted: bool, or_end: bool) -> io::Result<bool> {
        if wanted {
            return self.read().await;
        }
        let Some(connection) = self.connection() else {
            return std::future::pending().await;
        };
        tokio::select! {
            error = socket::wait_for_error(connection) => Err(error),
            ended = socket::wait_for_end(connection), if or_end => ended.map(|()| false),
        }
    }

    /// Writes complete lines in a single write.
    ///
    /// # Errors
    /// The errors of the connection.
    pub(crate) async fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let leg = self.leg.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        leg.write_all(lines).await?;
        leg.flush().await
    }

    /// Starts TLS by calling `handshake`.
    ///
    /// # Errors
    /// The errors of the handshake. `InvalidData` if unprocessed bytes have arrived after the
    /// command or reply that starts TLS. These bytes would otherwise count as received under TLS.
    pub(crate) async fn begin_tls(
        &mut self,
        handshake: impl AsyncFnOnce(Connection) -> io::Result<Leg>,
    ) -> io::Result<()> {
        if !self.lines.is_empty() {
            let text = "more than the command arrived before TLS";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let connection = self.leg.take().and_then(Leg::into_plain);
        let connection = connection.ok_or(io::ErrorKind::NotConnected)?;
        self.leg = Some(handshake(connection).await?);
        Ok(())
    }

    /// Returns the underlying TCP connection, with or without TLS. Returns `None` if it is closed.
    pub(crate) fn connection(&self) -> Option<&Connection> {
        self.leg.as_ref().map(Leg::connection)
    }

    /// Whether the connection uses TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.leg.as_ref().is_some_and(Leg::is_tls)
    }

    /// Whether the connection uses TLS 1.3.
    pub(crate) fn is_tls13(&self) -> bool {
        self.leg.as_ref().is_some_and(Leg::is_tls13)
    }

    /// Returns the underlying connection if it does not use TLS. Bytes that were read but not
    /// processed are lost.
    pub(crate) fn into_plain(self) -> Option<Connection> {
        self.leg.and_then(Leg::into_plain)
    }

    /// Closes the sending direction of the connection.
    pub(crate) async fn shut_down(&mut self) {
        if let Some(leg) = &mut self.leg {
            // The peer may have closed the connection.
            let _ = leg.shutdown().await;
        }
    }

    /// Whether the connection is open. A failed start of TLS closes the connection.
    pub(crate) fn is_open(&self) -> bool {
        self.leg.is_some()
    }

    /// Closes the connection.
    pub(crate) async fn close(&mut self) {
        self.shut_down().await;
        self.leg = None;
    }

    /// Reads and discards bytes until the peer closes its sending direction.
    pub(crate) async fn read_out(&mut self) {
        if let Some(leg) = &mut self.leg {
            while matches!(leg.read(&mut self.buffer).await, Ok(1..)) {}
        }
    }
}

/// Maximum number of bytes of one read. Most lines are shorter. Each session has a buffer of this
/// size.
const READ_BYTES: usize = 4096;
