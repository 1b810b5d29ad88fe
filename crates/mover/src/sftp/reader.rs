//! Download of a file.

use crate::server::{ServerError, TransferResult};

/// A file that is being read.
#[derive(Debug)]
pub struct SftpReader {}

impl SftpReader {
    /// Reads bytes, and returns their number. Returns 0 at the end of the file.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, or if no byte arrives within the timeout.
    pub async fn read(&mut self, _bytes: &mut [u8]) -> Result<usize, ServerError> {
        todo!()
    }

    /// Ends the read before the end of the file. The session stays usable.
    pub async fn abandon(self) {
        todo!()
    }

    /// Ends the read after the last byte.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn finish(self) -> Result<TransferResult, ServerError> {
        todo!()
    }
}
