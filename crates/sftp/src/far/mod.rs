//! The far half of an SFTP session: the end at the server.
//!
//! Inputs are messages of the near half and bytes of the server. Outputs are bytes for the server
//! and messages for the near half. After each input, the caller takes outputs as its channels have
//! room for them.
//!
//! The caller must pass messages only while [`FarSession::wants_near_messages`] is true, and bytes
//! of the server only while [`FarSession::wants_server_bytes`] is true.

use bytes::Bytes;

use crate::{SftpError, ToFar, ToNear};

/// Settings of a far half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarSettings {
    /// Maximum number of bytes in READs that the server has not answered, and in answers that the
    /// caller has not taken yet. The number must fill the path to the server.
    pub reads_max: u64,
}

impl Default for FarSettings {
    fn default() -> Self {
        Self { reads_max: 8 << 20 }
    }
}

/// Output of a far half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FarOutput {
    /// Bytes for the server. A packet may consist of several outputs.
    ToServer(Bytes),
    /// Message for the near half.
    ToNear(ToNear),
}

/// The far half of an SFTP session.
#[derive(Debug)]
pub struct FarSession {
    settings: FarSettings,
}

impl FarSession {
    /// Creates the half for a server whose subsystem has just started.
    pub fn new(settings: FarSettings) -> Self {
        Self { settings }
    }

    /// Accepts a message of the near half.
    ///
    /// # Errors
    /// [`SftpError`] if the near half violates the protocol. The session must end then.
    pub fn receive_from_near(&mut self, message: ToFar) -> Result<(), SftpError> {
        let _ = message;
        Ok(())
    }

    /// Accepts bytes of the server. The cuts between calls do not matter.
    ///
    /// # Errors
    /// [`SftpError`] if the server violates the protocol. The session must end then.
    pub fn receive_from_server(&mut self, bytes: Bytes) -> Result<(), SftpError> {
        let _ = (bytes, self.settings.reads_max);
        Ok(())
    }

    /// Returns the next output of any kind.
    pub fn next_output(&mut self) -> Option<FarOutput> {
        None
    }

    /// Returns the next bytes for the server.
    pub fn next_server_bytes(&mut self) -> Option<Bytes> {
        None
    }

    /// Returns the next message for the near half.
    pub fn next_near_message(&mut self) -> Option<ToNear> {
        None
    }

    /// Returns whether the caller may pass messages of the near half. The result is false while the
    /// server does not take its bytes, or while requests wait for the server.
    pub fn wants_near_messages(&self) -> bool {
        true
    }

    /// Returns whether the caller may pass bytes of the server. The result is false while the near
    /// half does not take its messages.
    pub fn wants_server_bytes(&self) -> bool {
        true
    }
}
