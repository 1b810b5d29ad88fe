//! Session with an SFTP server.

use ftp::listing::ListingEntry;

use super::{SftpDial, SftpListing, SftpReader, SftpWriter};
use crate::server::ServerError;

/// Session with an SFTP server. Clones share the connection, and may send requests at the same
/// time.
#[derive(Debug, Clone)]
pub struct SftpSession {}

impl SftpSession {
    /// Connects to the server, logs in, and starts SFTP.
    ///
    /// # Errors
    /// [`ServerError`] if the server cannot be reached, if its host key is not trusted, or if it
    /// refuses the log-in.
    pub async fn open(_dial: &SftpDial) -> Result<Self, ServerError> {
        todo!()
    }

    /// Returns the entry of each path, or `None` for each path that does not exist. All queries
    /// together take one round trip. Links are followed.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses a query, or if the connection is lost.
    pub async fn look(&self, _paths: &[&[u8]]) -> Result<Vec<Option<ListingEntry>>, ServerError> {
        todo!()
    }

    /// Starts the listing of a directory.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the listing.
    pub async fn list(&self, _path: &[u8]) -> Result<SftpListing, ServerError> {
        todo!()
    }

    /// Replaces the entry of a link by the attributes of its target. The entry stays unchanged if
    /// the target does not exist, or if it is a directory that contains the link.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn follow(
        &self,
        _directory: &[u8],
        _link: &mut ListingEntry,
    ) -> Result<(), ServerError> {
        todo!()
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, for example because the directory exists.
    pub async fn make_directory(&self, _path: &[u8]) -> Result<(), ServerError> {
        todo!()
    }

    /// Deletes an empty directory.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, for example because the directory is not empty.
    pub async fn remove_directory(&self, _path: &[u8]) -> Result<(), ServerError> {
        todo!()
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the deletion.
    pub async fn delete(&self, _path: &[u8]) -> Result<(), ServerError> {
        todo!()
    }

    /// Renames a part file to its final name, and replaces a file of that name. Also sets the
    /// modification time. Returns whether the file has that time.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the name, or if the connection is lost.
    pub async fn name(
        &self,
        _part: &[u8],
        _path: &[u8],
        _modified_unix_s: Option<i64>,
    ) -> Result<bool, ServerError> {
        todo!()
    }

    /// Returns the absolute path of a directory or file, as the server resolves it. Returns `None`
    /// if the path does not exist.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn place_of(&self, _path: &[u8]) -> Result<Option<Vec<u8>>, ServerError> {
        todo!()
    }

    /// Opens a file for reading at `offset_bytes`.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, or if the connection is lost.
    pub async fn read(&self, _path: &[u8], _offset_bytes: u64) -> Result<SftpReader, ServerError> {
        todo!()
    }

    /// Opens the part of a file (its incomplete copy) for writing at `offset_bytes`.
    ///
    /// If `offset_bytes` is zero and `is_kept` is false, an existing file is truncated. If `is_kept`
    /// is true, an existing file is removed first. With any other offset, the bytes of an existing
    /// file stay.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, or if the connection is lost.
    pub async fn write(
        &self,
        _part: &[u8],
        _offset_bytes: u64,
        _is_kept: bool,
    ) -> Result<SftpWriter, ServerError> {
        todo!()
    }

    /// Returns whether further requests can be sent.
    pub fn is_usable(&self) -> bool {
        todo!()
    }

    /// Returns whether the server answers a request.
    pub async fn is_alive(&self) -> bool {
        todo!()
    }

    /// Waits until the connection is lost. This method is cancel safe.
    pub async fn until_lost(&self) {
        todo!()
    }

    /// Closes the connection, and waits until the server has closed its side, or until a timeout
    /// has passed. The session is unusable afterwards.
    pub async fn hang_up(&self) {
        todo!()
    }

    /// Closes the connection without waiting for the server.
    pub async fn close(self) {
        todo!()
    }
}
