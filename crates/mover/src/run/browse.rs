//! Access to the files of one site (this machine or a server) without a job.

use std::{io, sync::Arc};

use ftp::listing::ListingEntry;

use super::{
    backend::Backend, blocking::on_disk, delete::delete_file, failure::TaskError, listing,
};
use crate::{
    disk::LocalFiles,
    job::JobSite,
    names::{join, last_name, local, parent, shown},
    server::{ServerError, SessionPool},
};

/// Access to one site (this machine or a server). For a server, the value contains a connection.
pub struct Browser {
    backend: Backend,
    session_pool: Option<Arc<SessionPool>>,
}

/// An error that prevents reading or changing a site.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowseError {
    /// The server has refused a command, or the connection is lost.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// An operation on the local disk has failed.
    #[error("{what}")]
    Disk {
        /// The attempted operation, with its path.
        what: String,
        /// The file system's error.
        #[source]
        source: io::Error,
    },
    /// The server's answer or the journal's content is incomplete or unusable.
    #[error("{0}")]
    Unusable(String),
}

impl Browser {
    /// Connects to a site, or takes a session from the pool.
    ///
    /// # Errors
    /// [`BrowseError::Server`] if the server cannot be reached or refuses the session.
    pub async fn open(
        site: &JobSite,
        session_pool: Option<Arc<SessionPool>>,
    ) -> Result<Self, BrowseError> {
        let backend =
            Backend::open(site, &LocalFiles::without_roots(), session_pool.as_deref()).await?;
        Ok(Self {
            backend,
            session_pool,
        })
    }

    /// Returns the attributes of a path, or `None` if the path does not exist. The name in the
    /// result is empty.
    ///
    /// # Errors
    /// [`BrowseError`] if the disk or the server returns no answer.
    pub async fn look(&mut self, path: &[u8]) -> Result<Option<ListingEntry>, BrowseError> {
        Ok(self.backend.look(path).await?)
    }

    /// Lists a directory, and passes entries to `take` as they arrive. The entries are not sorted.
    /// Returns the number of lines that could not be parsed.
    ///
    /// # Errors
    /// [`BrowseError`] if the directory cannot be listed, or if the listing was interrupted. After
    /// an interruption, `take` has received only some of the entries.
    pub async fn list(
        &mut self,
        path: &[u8],
        take: impl FnMut(Vec<ListingEntry>),
    ) -> Result<u64, BrowseError> {
        Ok(listing::list(&mut self.backend, path, false, take).await?)
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// [`BrowseError`] if the disk or the server refuses the deletion, or if the file does not
    /// exist.
    pub async fn delete(&mut self, path: &[u8]) -> Result<(), BrowseError> {
        Ok(delete_file(&mut self.backend, path).await?)
    }

    /// Returns the absolute form of a path. A server reports the absolute path of the nearest
    /// existing directory. On this machine, symbolic links are resolved.
    ///
    /// # Errors
    /// [`BrowseError`] if the disk or the server returns no answer.
    pub async fn place(&mut self, path: &[u8]) -> Result<Vec<u8>, BrowseError> {
        let mut below = Vec::new();
        let mut at = path;
        loop {
            let place = match &mut self.backend {
                Backend::Remote(session) => session.place_of(at).await?,
                Backend::Local(_) => local(at)
                    .canonicalize()
                    .ok()
                    .map(|it| it.into_os_string().into_encoded_bytes()),
                Backend::Sftp(session) => session.place_of(at).await?,
                Backend::Web(_) => return Err(TaskError::from(ServerError::SourceAlone).into()),
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
            // A path that is only a name belongs to the login directory.
            at = parent(at).unwrap_or_default();
        }
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// [`BrowseError`] if the disk or the server refuses the directory.
    pub async fn make_directory(&mut self, path: &[u8]) -> Result<(), BrowseError> {
        Ok(self.backend.make_directory(path, false).await?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`BrowseError`] if the disk or the server refuses.
    pub async fn remove_directory(&mut self, path: &[u8]) -> Result<(), BrowseError> {
        match &mut self.backend {
            Backend::Remote(session) => session.remove_directory(path).await?,
            Backend::Sftp(session) => session.remove_directory(path).await?,
            Backend::Local(disk) => {
                let (files, path) = (disk.files.clone(), path.to_vec());
                let what = format!("removing the directory {}", shown(&local(&path)));
                on_disk(move || files.remove_folder(&path), what).await?;
            }
            Backend::Web(_) => return Err(TaskError::from(ServerError::SourceAlone).into()),
        }
        Ok(())
    }

    /// Closes the session with the server, or returns the session to the pool.
    pub async fn close(self) {
        self.backend.close(self.session_pool.as_deref()).await;
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
