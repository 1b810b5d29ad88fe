//! A control connection: reads and writes lines, under TLS from the start or from a later line on.

use std::io;

use ftp::line::{Line, LineSplitter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use net::{Connection, socket, tls::Leg};

/// A control connection and what has been read of its next line.
#[derive(Debug)]
pub(crate) struct Control {
    /// `None` once TLS could not be begun, and once closed.
    leg: Option<Leg>,
    lines: LineSplitter,
    buffer: Box<[u8]>,
}

impl Control {
    /// A connection whose lines have at most `line_max` bytes.
    pub(crate) fn new(leg: Leg, line_max: usize) -> Self {
        Self {
            leg: Some(leg),
            lines: LineSplitter::new(line_max),
            buffer: vec![0; READ_BYTES].into(),
        }
    }

    /// The next line of what has been read.
    pub(crate) fn next_line(&mut self) -> Option<Line> {
        self.lines.next_line()
    }

    /// Reads once; all lines have been taken. Whether there was anything: `false` at the end.
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

    /// Reads once if that is `wanted`; else only a reset is noticed, which is an error, and with `or_end` an
    /// orderly end, although what came before it has not been read.
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
            error = socket::until_error(connection) => Err(error),
            ended = socket::ended(connection), if or_end => ended.map(|()| false),
        }
    }

    /// Writes whole lines with one call.
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
    /// Those of the handshake; `InvalidData` if the other side has sent more than TLS may follow:
    /// that would be taken for something said under TLS.
    pub(crate) async fn begin_tls(
        &mut self,
        handshake: impl AsyncFnOnce(Connection) -> io::Result<Leg>,
    ) -> io::Result<()> {
        if !self.lines.is_empty() {
            let text = "more than the command came before TLS";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let connection = self.leg.take().and_then(Leg::into_plain);
        let connection = connection.ok_or(io::ErrorKind::NotConnected)?;
        self.leg = Some(handshake(connection).await?);
        Ok(())
    }

    /// The connection under TLS.
    pub(crate) fn connection(&self) -> Option<&Connection> {
        self.leg.as_ref().map(Leg::connection)
    }

    /// Whether there is TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.leg.as_ref().is_some_and(Leg::is_tls)
    }

    /// Whether there is TLS 1.3.
    pub(crate) fn is_tls13(&self) -> bool {
        self.leg.as_ref().is_some_and(Leg::is_tls13)
    }

    /// The connection, if there is no TLS. What was read of it is lost.
    pub(crate) fn into_plain(self) -> Option<Connection> {
        self.leg.and_then(Leg::into_plain)
    }

    /// Says that nothing more will be written.
    pub(crate) async fn shut_down(&mut self) {
        if let Some(leg) = &mut self.leg {
            // The other side may be gone.
            let _ = leg.shutdown().await;
        }
    }

    /// Whether the connection is neither closed nor without the TLS that it should have.
    pub(crate) fn is_open(&self) -> bool {
        self.leg.is_some()
    }

    /// Closes the connection.
    pub(crate) async fn close(&mut self) {
        self.shut_down().await;
        self.leg = None;
    }

    /// Reads on until the other side has ended too.
    pub(crate) async fn read_out(&mut self) {
        if let Some(leg) = &mut self.leg {
            while matches!(leg.read(&mut self.buffer).await, Ok(1..)) {}
        }
    }
}

/// One read: most lines are shorter, and each session keeps as much.
const READ_BYTES: usize = 4096;
