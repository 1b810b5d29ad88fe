//! Body of a web server's response: the bytes of a file.

use std::{io, time::Duration};

use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::session::IdleConnection;
use crate::server::{ServerError, Stat, TransferResult};

/// Bytes of a file from a web server. If this value is dropped before the end of the file, the
/// connection is closed.
pub(crate) struct Body<'a> {
    host: String,
    incoming: Incoming,
    chunk: Bytes,
    /// A field of the session. After the end of the file, the field receives the idle connection.
    open: &'a mut Option<IdleConnection>,
    has_ended: bool,
    /// Attributes of the whole file, according to the response.
    stated: Stat,
    has_length: bool,
    stall_max: Duration,
}

impl<'a> Body<'a> {
    /// Creates the body of a response. If the response states no length, the file ends when the
    /// connection ends.
    pub(super) fn new(
        incoming: Incoming,
        (host, open): (String, &'a mut Option<IdleConnection>),
        (stated, has_length): (Stat, bool),
        stall_max: Duration,
    ) -> Self {
        Self {
            host,
            incoming,
            chunk: Bytes::new(),
            open,
            has_ended: false,
            stated,
            has_length,
            stall_max,
        }
    }

    /// Returns the attributes of the whole file, according to the response.
    pub(crate) fn stated(&self) -> Stat {
        self.stated
    }

    /// Reads bytes, and returns their number. Returns 0 at the end of the file.
    ///
    /// # Errors
    /// [`ServerError`] if no byte arrives within the timeout, or if the connection ends before the
    /// end of the file.
    pub(crate) async fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ServerError> {
        while self.chunk.is_empty() && !self.has_ended {
            let frame = timeout(self.stall_max, self.incoming.frame()).await;
            let frame = frame.map_err(|_| ServerError::Stalled(self.stall_max))?;
            let Some(frame) = frame else {
                self.has_ended = true;
                break;
            };
            let frame = frame.map_err(|error| ServerError::Exchange {
                host: self.host.clone(),
                source: io::Error::other(error),
            })?;
            // Trailers contain no useful data.
            self.chunk = frame.into_data().unwrap_or_default();
        }
        let count = self.chunk.len().min(bytes.len());
        self.chunk.copy_to_slice(&mut bytes[..count]);
        Ok(count)
    }

    /// Ends the download after the last byte. Returns whether the file counts as complete.
    pub(crate) fn finish(self) -> TransferResult {
        TransferResult {
            is_sure: self.has_length,
            stat: None,
        }
    }
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            *self.open = None;
        }
    }
}
