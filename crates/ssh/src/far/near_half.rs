//! Near half of a session, as the far half sees it: messages on the session's stream.

use std::{collections::VecDeque, time::Duration};

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
    /// Requests that have arrived before the far half has connected to the server.
    pub(super) early: VecDeque<ToFar>,
}

impl NearHalf {
    /// Returns the next message of the near half, or `None` at the end of the session.
    pub(super) async fn next(&mut self) -> Result<Option<ToFar>, WireError> {
        match self.early.pop_front() {
            Some(message) => Ok(Some(message)),
            None => self.receive().await,
        }
    }

    /// Waits until the near half leaves. Keeps its first requests, which may arrive together with
    /// the opening. Also returns after too many requests.
    ///
    /// # Errors
    /// [`WireError`] if the stream broke or contains an invalid message.
    pub(super) async fn wait_until_left(&mut self) -> Result<(), WireError> {
        while let Some(request) = self.receive().await? {
            if self.early.len() >= EARLY_MAX {
                break;
            }
            self.early.push_back(request);
        }
        Ok(())
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

/// Maximum number of requests before the far half has connected to the server. A near half that
/// remembers the client's key sends two.
const EARLY_MAX: usize = 4;
