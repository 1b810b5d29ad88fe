//! Body of a web server's answer: the bytes of a file.

use std::{io, time::Duration};

use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::session::IdleConnection;
use crate::server::{ServerError, Stat, TransferResult};

/// Bytes of a file. If dropped before its end, it closes the connection.
pub(crate) struct Body<'a> {
    host: String,
    incoming: Incoming,
    chunk: Bytes,
    /// Place to which the connection returns for the next file.
    open: &'a mut Option<IdleConnection>,
    has_ended: bool,
    /// Attributes of the whole file, from the answer.
    stated: Stat,
    has_length: bool,
    stall_max: Duration,
}

impl<'a> Body<'a> {
    /// Creates the body of an answer. Without a length, the end of the connection is the end of the
    /// file.
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

    /// Returns the attributes of the whole file, from the answer.
    pub(crate) fn stated(&self) -> Stat {
        self.stated
    }

    /// Reads some bytes. Returns 0 at the end.
    ///
    /// # Errors
    /// [`ServerError`] if none arrive, or if the connection ends before the file does.
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

    /// Ends the reading after the last byte.
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
