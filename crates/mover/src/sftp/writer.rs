//! Upload of a file.

use crate::server::{ServerError, Stat};

/// A file that is being written.
#[derive(Debug)]
pub struct SftpWriter {}

impl SftpWriter {
    /// Sends bytes, and waits only while too many bytes are unconfirmed.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses an earlier byte, or if it confirms none within the
    /// timeout.
    pub async fn write(&mut self, _bytes: &[u8]) -> Result<(), ServerError> {
        todo!()
    }

    /// Sets the modification time that the file gets when it is complete.
    pub fn set_modified(&mut self, _unix_s: i64) {
        todo!()
    }

    /// Waits until the server has confirmed all bytes, and closes the file. Returns the attributes
    /// of the file.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses a byte, or if the connection is lost.
    pub async fn finish(self) -> Result<Option<Stat>, ServerError> {
        todo!()
    }
}
