//! Listing of a directory.

use ftp::listing::ListingEntry;

use crate::server::ServerError;

/// A listing in progress.
#[derive(Debug)]
pub struct SftpListing {}

impl SftpListing {
    /// Returns the next entries. The result is empty at the end of the listing. Links are not
    /// followed.
    ///
    /// # Errors
    /// [`ServerError`] if the listing was interrupted.
    pub async fn next(&mut self) -> Result<Vec<ListingEntry>, ServerError> {
        todo!()
    }
}
