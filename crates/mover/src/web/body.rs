//! The bytes of a file as they come from a web server.

use std::{io, time::Duration};

use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::session::Open;
use crate::server::{Ended, Facts, ServerError};

/// The bytes of a file. Dropped before its end, it ends the connection.
pub(crate) struct Body<'a> {
    host: String,
    incoming: Incoming,
    chunk: Bytes,
    /// The connection, for the next file.
    open: &'a mut Option<Open>,
    has_ended: bool,
    /// What the answer says of the whole file.
    stated: Facts,
    has_length: bool,
    stall_max: Duration,
}

impl<'a> Body<'a> {
    /// The body of an answer. Without a length the end of the connection is that of the file.
    pub(super) fn new(
        incoming: Incoming,
        (host, open): (String, &'a mut Option<Open>),
        (stated, has_length): (Facts, bool),
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

    /// What the answer says of the whole file.
    pub(crate) fn stated(&self) -> Facts {
        self.stated
    }

    /// Reads some bytes; none at the end.
    ///
    /// # Errors
    /// [`ServerError`] if none come, or if the connection ends before the file does.
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
            // Trailers say nothing of use.
            self.chunk = frame.into_data().unwrap_or_default();
        }
        let count = self.chunk.len().min(bytes.len());
        self.chunk.copy_to_slice(&mut bytes[..count]);
        Ok(count)
    }

    /// Ends the reading, behind the last byte.
    pub(crate) fn finish(self) -> Ended {
        Ended {
            is_sure: self.has_length,
            facts: None,
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
