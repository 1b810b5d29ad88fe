//! Open file or folder of a server.

use bytes::Bytes;
use sftp::packet::Request;

use super::{
    exchange::{Exchange, PendingAnswer},
    replies::{Answer, Expected},
};
use crate::server::ServerError;

/// Open file or folder of a server. Dropping the value closes the handle at the server, and does
/// not wait for the answer.
#[derive(Debug)]
pub(super) struct FileHandle {
    exchange: Exchange,
    /// `None` once the handle is closed.
    handle: Option<Bytes>,
}

impl FileHandle {
    /// Waits for the answer to OPEN or OPENDIR.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, or if the connection is lost.
    pub(super) async fn opened(
        exchange: &Exchange,
        pending: PendingAnswer,
    ) -> Result<Self, ServerError> {
        match exchange.answer(pending).await? {
            Answer::Handle(handle) => Ok(Self {
                exchange: exchange.clone(),
                handle: Some(handle),
            }),
            other => Err(other.into_error()),
        }
    }

    pub(super) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Returns the handle of the server.
    pub(super) fn bytes(&self) -> Bytes {
        self.handle.clone().unwrap_or_default()
    }

    /// Sends CLOSE. The caller awaits the answer.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub(super) async fn close(&mut self) -> Result<PendingAnswer, ServerError> {
        let request = Request::Close {
            handle: self.bytes(),
        };
        let sent = self.exchange.send(&request, Expected::Status).await?;
        self.handle = None;
        Ok(sent)
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.exchange.close_unawaited(handle);
        }
    }
}
