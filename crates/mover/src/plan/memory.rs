//! Memory of a job: files that earlier runs have taken from its source.

use std::{fmt::Debug, time::Instant};

use super::{
    task::{File, RelativePath},
    version::FileVersion,
};

/// Memory of the files that a job's runs have taken, so that no run takes them again.
pub trait RunMemory: Debug + Send + Sync {
    /// Returns the standing of a file of the source, listed at `now`.
    fn standing(&self, file: &File, now: Instant) -> FileStanding;

    /// Returns the version of a file that an earlier run has taken.
    fn taken(&self, path: &RelativePath) -> Option<FileVersion>;

    /// Records files that are about to be moved. When the function returns, the record outlives a
    /// power cut.
    ///
    /// # Errors
    /// [`StateStoreError`] if the record cannot be written. The files must not be moved then.
    fn begin(&self, files: &[File]) -> Result<(), StateStoreError>;

    /// Records files that are complete at the destination. When the function returns, the record
    /// outlives a power cut.
    ///
    /// # Errors
    /// [`StateStoreError`] if the record cannot be written. The sources must not be removed then.
    fn took(&self, taken: &[TakenFile]) -> Result<(), StateStoreError>;

    /// Records removals at the source. A later file of the same name, size and time then counts as
    /// new.
    ///
    /// # Errors
    /// [`StateStoreError`] if the record cannot be written.
    fn removed(&self, paths: &[RelativePath]) -> Result<(), StateStoreError>;
}

/// Standing of a file of the source in a job with a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileStanding {
    /// The file has not been taken yet.
    New,
    /// An earlier run has taken the file in its present version.
    Taken,
    /// The file may still be written.
    Unsettled,
}

/// A file that is complete at the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenFile {
    /// Path below the job's root.
    pub path: RelativePath,
    /// Version of the source.
    pub version: FileVersion,
    /// Whether the job has moved the file now. Otherwise the destination had it.
    pub is_moved: bool,
}

/// An error: the memory cannot record.
#[derive(Debug, thiserror::Error)]
#[error("the job's memory {name} cannot be used")]
pub struct StateStoreError {
    /// Name of the memory.
    pub name: String,
    /// The reason.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}
