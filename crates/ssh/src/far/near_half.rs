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
    /// First request, if it has arrived before the far half has connected to the server.
    pub(super) early: Option<ToFar>,
}

impl NearHalf {
    /// Returns the next message of the near half, or `None` at the end of the session.
    pub(super) async fn next(&mut self) -> Result<Option<ToFar>, WireError> {
        match self.early.take() {
            Some(message) => Ok(Some(message)),
            None => self.receive().await,
        }
    }

    /// Waits until the near half leaves. Keeps its first request, which may arrive together with
    /// the opening. A second request shows that its client has left.
    ///
    /// # Errors
    /// [`WireError`] if the stream broke or contains an invalid message.
    pub(super) async fn wait_until_left(&mut self) -> Result<(), WireError> {
        loop {
            match self.receive().await? {
                Some(request) if self.early.is_none() => self.early = Some(request),
                _ => return Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Result<Option<ToFar>, WireError> {
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
