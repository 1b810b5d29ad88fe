//! Near half of a session, as the far half sees it: messages on the session's stream.

use std::time::Duration;

use link::SendStream;
use tokio::time::timeout;

use crate::wire::{
    FrameReader, WireError,
    session::{EndReason, ToFar, ToNear},
};

/// Messages between both halves of a session.
pub(super) struct NearHalf {
    pub(super) send: SendStream,
    pub(super) frames: FrameReader,
}

impl NearHalf {
    /// Returns the next message of the near half, or `None` at the end of the session.
    pub(super) async fn next(&mut self) -> Result<Option<ToFar>, WireError> {
        match self.frames.next_whole().await? {
            Some((kind, body)) => Ok(Some(ToFar::decode(kind, body)?)),
            None => Ok(None),
        }
    }

    pub(super) async fn send(&mut self, message: &ToNear) -> Result<(), WireError> {
        let sent = self.send.write(message.encode()).await;
        sent.map_err(|error| WireError::Lost(error.to_string()))
    }

    /// Reports the end of the session, and waits until the report has arrived.
    pub(super) async fn end(mut self, reason: EndReason, text: String) {
        let ended = ToNear::Ended { reason, text };
        self.send.finish_with(ended.encode());
        let _ = timeout(END_TIMEOUT, self.send.closed()).await;
    }
}

/// Time limit for the near half to read the last message.
const END_TIMEOUT: Duration = Duration::from_secs(10);
