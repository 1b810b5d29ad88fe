//! The near half of an SFTP session: the end at the client.
//!
//! Inputs are bytes of the client and messages of the far half. Outputs are bytes for the client,
//! messages for the far half, and events of transfers. After each input, the caller takes outputs
//! as its channels have room for them.
//!
//! The caller must pass client bytes only while [`NearSession::wants_client_bytes`] is true, and
//! messages only while [`NearSession::wants_far_messages`] is true.

use bytes::Bytes;

use crate::{EarlyReplies, SftpError, ToFar, ToNear, TransferEvent};

/// Settings of a near half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NearSettings {
    /// Rule by which WRITEs are answered before the server has confirmed them.
    pub early: EarlyReplies,
    /// Maximum number of bytes that are read ahead for all handles together. Zero disables
    /// read-ahead.
    pub read_ahead_max: u64,
    /// Maximum number of bytes that are read ahead for one handle.
    pub read_ahead_handle_max: u64,
    /// Maximum number of bytes in WRITEs that the server has not confirmed yet.
    pub write_ahead_max: u64,
}

impl Default for NearSettings {
    fn default() -> Self {
        Self {
            early: EarlyReplies::default(),
            read_ahead_max: 64 << 20,
            read_ahead_handle_max: 32 << 20,
            write_ahead_max: 64 << 20,
        }
    }
}

/// Output of a near half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NearOutput {
    /// Bytes for the client. A packet may consist of several outputs.
    ToClient(Bytes),
    /// Message for the far half.
    ToFar(ToFar),
    /// Event of a transfer.
    Transfer(TransferEvent),
}

/// The near half of an SFTP session.
#[derive(Debug)]
pub struct NearSession {
    settings: NearSettings,
}

impl NearSession {
    /// Creates the half for a client that has just started the subsystem.
    pub fn new(settings: NearSettings) -> Self {
        Self { settings }
    }

    /// Accepts bytes of the client. The cuts between calls do not matter.
    ///
    /// # Errors
    /// [`SftpError`] if the client violates the protocol. The session must end then.
    pub fn receive_from_client(&mut self, bytes: Bytes) -> Result<(), SftpError> {
        let _ = bytes;
        Ok(())
    }

    /// Accepts a message of the far half.
    ///
    /// # Errors
    /// [`SftpError`] if the far half or the server violates the protocol. The session must end
    /// then.
    pub fn receive_from_far(&mut self, message: ToNear) -> Result<(), SftpError> {
        let _ = message;
        Ok(())
    }

    /// Returns the next output of any kind.
    pub fn next_output(&mut self) -> Option<NearOutput> {
        None
    }

    /// Returns the next bytes for the client.
    pub fn next_client_bytes(&mut self) -> Option<Bytes> {
        None
    }

    /// Returns the next message for the far half.
    pub fn next_far_message(&mut self) -> Option<ToFar> {
        None
    }

    /// Returns the next event of a transfer.
    pub fn next_event(&mut self) -> Option<TransferEvent> {
        None
    }

    /// Returns whether the caller may pass client bytes. The result is false while a queue is full.
    pub fn wants_client_bytes(&self) -> bool {
        true
    }

    /// Returns whether the caller may pass messages of the far half. The result is false while the
    /// client does not take its bytes.
    pub fn wants_far_messages(&self) -> bool {
        true
    }

    /// Changes the maximum number of bytes in WRITEs that the server has not confirmed yet. The
    /// caller may follow the rate of the server by it.
    pub fn set_write_ahead_max(&mut self, bytes: u64) {
        self.settings.write_ahead_max = bytes;
    }

    /// Ends the session, and reports the end of all open transfers.
    pub fn end(&mut self, reason: &str) {
        let _ = reason;
    }
}
