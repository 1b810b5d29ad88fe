//! A control connection: reads and writes lines, under TLS from the start or from a later line on.

use std::io;

use ftp::line::{LineSplitter, SplitLine};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use net::{Connection, socket, tls::Leg};

/// A control connection, and the unfinished line in its input.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    /// `None` once closed, and after a failed start of TLS.
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

    /// Returns the next complete line of the input.
    pub(crate) fn next_line(&mut self) -> Option<SplitLine> {
        self.lines.next_line()
    }

    /// Reads once. The caller has taken all lines before. Returns `false` at the end of the input.
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

    /// Reads once if `wanted`. Otherwise only a reset is detected, and reported as an error.
    ///
    /// With `or_end` an orderly end is detected, too, even if bytes before it are unread.
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

    /// Writes complete lines with one call.
    ///
    /// # Errors
    /// The errors of the connection.
    pub(crate) async fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let leg = self.leg.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        leg.write_all(lines).await?;
        leg.flush().await
    }

    /// Starts TLS with `handshake`.
    ///
    /// # Errors
    /// The errors of the handshake. `InvalidData` if bytes follow the command or reply that starts
    /// TLS: they would count as received under TLS.
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

    /// Returns the TCP connection, with or without TLS.
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

    /// Returns the connection if it does not use TLS. Unprocessed input is lost.
    pub(crate) fn into_plain(self) -> Option<Connection> {
        self.leg.and_then(Leg::into_plain)
    }

    /// Ends the output.
    pub(crate) async fn shut_down(&mut self) {
        if let Some(leg) = &mut self.leg {
            // The peer may have closed the connection.
            let _ = leg.shutdown().await;
        }
    }

    /// Whether the connection is open. It is closed if TLS was requested and failed.
    pub(crate) fn is_open(&self) -> bool {
        self.leg.is_some()
    }

    /// Closes the connection.
    pub(crate) async fn close(&mut self) {
        self.shut_down().await;
        self.leg = None;
    }

    /// Reads and discards until the peer ends its output, too.
    pub(crate) async fn read_out(&mut self) {
        if let Some(leg) = &mut self.leg {
            while matches!(leg.read(&mut self.buffer).await, Ok(1..)) {}
        }
    }
}

/// Bytes of one read. Most lines are shorter, and each session keeps a buffer of this size.
const READ_BYTES: usize = 4096;
