//! Listing of a directory with several READDIRs in flight at the same time.

use std::collections::VecDeque;

use ftp::listing::ListingEntry;
use sftp::packet::Request;

use super::{
    attributes::listed_entry,
    exchange::PendingAnswer,
    file_handle::FileHandle,
    replies::{Answer, Expected},
};
use crate::server::ServerError;

/// A listing in progress. Dropping the value ends the listing.
#[derive(Debug)]
pub struct SftpListing {
    folder: FileHandle,
    on_the_way: VecDeque<PendingAnswer>,
    /// Number of READDIRs that may be in flight. The number grows during the listing.
    ahead: usize,
    has_ended: bool,
}

impl SftpListing {
    pub(super) async fn start(folder: FileHandle) -> Result<Self, ServerError> {
        let mut listing = Self {
            folder,
            on_the_way: VecDeque::new(),
            ahead: AHEAD_FIRST,
            has_ended: false,
        };
        listing.fill().await?;
        Ok(listing)
    }

    /// Returns the next entries. The result is empty at the end of the listing. Links are not
    /// followed.
    ///
    /// # Errors
    /// [`ServerError`] if the listing was interrupted. In this case, further entries may be
    /// missing. If a name in the listing cannot be the name of a file, the session ends.
    pub async fn next(&mut self) -> Result<Vec<ListingEntry>, ServerError> {
        for _ in 0..EMPTY_MAX {
            if self.has_ended {
                return Ok(Vec::new());
            }
            self.fill().await?;
            let Some(mut pending) = self.on_the_way.pop_front() else {
                return Ok(Vec::new());
            };
            self.ahead = (self.ahead * 2).min(AHEAD_MAX);
            match self.folder.exchange().progress(&mut pending).await?.0 {
                Answer::Names(names) => {
                    let mut entries = Vec::with_capacity(names.len());
                    for name in &names {
                        entries.extend(listed_entry(name).map_err(|it| self.violation(it))?);
                    }
                    if !entries.is_empty() {
                        return Ok(entries);
                    }
                }
                Answer::Refused(refusal) if refusal.is_end() => {
                    self.has_ended = true;
                    self.on_the_way.clear();
                }
                other => return Err(other.into_error()),
            }
        }
        Err(self.violation("the listing does not end"))
    }

    /// Completes the listing. Returns the number of invalid names. The number is always zero,
    /// because an invalid name ends the session.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn finish(mut self) -> Result<u64, ServerError> {
        // The answer to the CLOSE of a folder has no meaning, so the method does not wait for it.
        drop(self.folder.close().await?);
        Ok(0)
    }

    async fn fill(&mut self) -> Result<(), ServerError> {
        while self.on_the_way.len() < self.ahead {
            let request = Request::ReadDir {
                handle: self.folder.bytes(),
            };
            let sent = self.folder.exchange().send(&request, Expected::Names);
            self.on_the_way.push_back(sent.await?);
        }
        Ok(())
    }

    fn violation(&self, text: &str) -> ServerError {
        self.folder.exchange().violated(text)
    }
}

/// Number of READDIRs at the start of a listing.
const AHEAD_FIRST: usize = 2;

/// Maximum number of READDIRs in flight.
const AHEAD_MAX: usize = 16;

/// Maximum number of successive answers without an entry.
const EMPTY_MAX: usize = 100;
