//! Looks at the files of one place, and deletes some, without a job.

use std::{io, sync::Arc};

use ftp::listing::Entry;

use super::{blocking::on_disk, delete::delete_file, end::End, failure::TaskError, lane};
use crate::{
    disk::LocalFiles,
    job::Site,
    names::{join, last_name, local, parent, shown},
    server::{Kept, ServerError},
};

/// One place, and a connection to it where that needs one.
pub struct Browser {
    end: End,
    kept: Option<Arc<Kept>>,
}

/// A place cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowseError {
    /// The server refuses, or is lost.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The disk of this machine.
    #[error("{what}")]
    Disk {
        /// What was tried, and with which path.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// What was read cannot be relied on.
    #[error("{0}")]
    Unusable(String),
}

impl Browser {
    /// Connects to a place, or takes a session that was kept.
    ///
    /// # Errors
    /// [`BrowseError::Server`] if the server cannot be reached, or refuses.
    pub async fn open(site: &Site, kept: Option<Arc<Kept>>) -> Result<Self, BrowseError> {
        let end = End::open(site, &LocalFiles::without_roots(), kept.as_deref()).await?;
        Ok(Self { end, kept })
    }

    /// What has this path; `None` for nothing. The entry has no name.
    ///
    /// # Errors
    /// [`BrowseError`] if the disk or the server cannot tell.
    pub async fn look(&mut self, path: &[u8]) -> Result<Option<Entry>, BrowseError> {
        Ok(self.end.look(path).await?)
    }

    /// Lists a directory; entries are handed to `take` as they come, in no order. Returns how many lines of the server were
    /// not understood.
    ///
    /// # Errors
    /// [`BrowseError`] if it cannot be listed, or the listing broke off: what came before may not be all.
    pub async fn list(
        &mut self,
        path: &[u8],
        take: impl FnMut(Vec<Entry>),
    ) -> Result<u64, BrowseError> {
        Ok(lane::list(&mut self.end, path, false, take).await?)
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// [`BrowseError`] if the disk or the server refuses, also where there is no such file.
    pub async fn delete(&mut self, path: &[u8]) -> Result<(), BrowseError> {
        Ok(delete_file(&mut self.end, path).await?)
    }

    /// Where a path is, as the server says it of the nearest directory that is there. On this machine links are resolved.
    ///
    /// # Errors
    /// [`BrowseError`] if the disk or the server cannot tell.
    pub async fn place(&mut self, path: &[u8]) -> Result<Vec<u8>, BrowseError> {
        let mut below = Vec::new();
        let mut at = path;
        loop {
            let place = match &mut self.end {
                End::Remote(session) => session.place_of(at).await?,
                End::Local(_) => local(at)
                    .canonicalize()
                    .ok()
                    .map(|it| it.into_os_string().into_encoded_bytes()),
                End::Web(_) => return Err(TaskError::from(ServerError::SourceAlone).into()),
            };
            if let Some(place) = place {
                let names = below.into_iter().rev();
                return Ok(names.fold(place, |above, name: Vec<u8>| join(&above, &name)));
            }
            let name = last_name(at);
            if name.is_empty() {
                return Ok(path.to_vec());
            }
            below.push(name);
            // A name alone is in the directory of the log-in.
            at = parent(at).unwrap_or_default();
        }
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`BrowseError`] if the disk or the server refuses.
    pub async fn make_directory(&mut self, path: &[u8]) -> Result<(), BrowseError> {
        Ok(self.end.make_directory(path, false).await?)
    }

    /// Removes a directory in which nothing is.
    ///
    /// # Errors
    /// [`BrowseError`] if the disk or the server refuses.
    pub async fn remove_directory(&mut self, path: &[u8]) -> Result<(), BrowseError> {
        match &mut self.end {
            End::Remote(session) => session.remove_directory(path).await?,
            End::Local(end) => {
                let (files, path) = (end.files.clone(), path.to_vec());
                let what = format!("removing the directory {}", shown(&local(&path)));
                on_disk(move || files.remove_folder(&path), what).await?;
            }
            End::Web(_) => return Err(TaskError::from(ServerError::SourceAlone).into()),
        }
        Ok(())
    }

    /// Takes leave of the server, or keeps the session.
    pub async fn close(self) {
        self.end.close(self.kept.as_deref()).await;
    }
}

impl From<TaskError> for BrowseError {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Server(error) => Self::Server(error),
            TaskError::Disk { what, source } => Self::Disk { what, source },
            other => Self::Unusable(other.to_string()),
        }
    }
}
