//! Memory of a job: a record of the source files that earlier runs have already moved.

use std::{fmt::Debug, time::Instant};

use super::{
    task::{File, RelativePath},
    version::FileVersion,
};

/// Stored record of the files that a job's runs have moved. With this record, no run moves a file
/// again.
pub trait RunMemory: Debug + Send + Sync {
    /// Returns whether a source file is new, already moved or still being written. `now` is the
    /// time of the listing.
    fn standing(&self, file: &File, now: Instant) -> FileStanding;

    /// Returns the version of a file that an earlier run has moved.
    fn taken(&self, path: &RelativePath) -> Option<FileVersion>;

    /// Records files that are about to be moved. When the function returns, the record survives a
    /// power cut.
    ///
    /// # Errors
    /// [`StateStoreError`] if the record cannot be written. In this case, the caller must not move
    /// the files.
    fn begin(&self, files: &[File]) -> Result<(), StateStoreError>;

    /// Records files that are complete at the destination. When the function returns, the record
    /// survives a power cut.
    ///
    /// # Errors
    /// [`StateStoreError`] if the record cannot be written. In this case, the caller must not
    /// remove the source files.
    fn took(&self, taken: &[TakenFile]) -> Result<(), StateStoreError>;

    /// Records files that were removed at the source. Afterwards, a file of the same name, size and
    /// time counts as new.
    ///
    /// # Errors
    /// [`StateStoreError`] if the record cannot be written.
    fn removed(&self, paths: &[RelativePath]) -> Result<(), StateStoreError>;
}

/// State of a source file, according to the job's memory of moved files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileStanding {
    /// No run has moved the file yet.
    New,
    /// An earlier run has moved this version of the file, or has found it at the destination.
    Taken,
    /// A program may still be writing the file.
    Unsettled,
}

/// A file that is complete at the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenFile {
    /// Path of the file below the job's root.
    pub path: RelativePath,
    /// Version of the source file.
    pub version: FileVersion,
    /// Whether the present run has moved the file. If false, the destination already had the file.
    pub is_moved: bool,
}

/// An error: the job's memory of moved files cannot store a record.
#[derive(Debug, thiserror::Error)]
#[error("the job's memory {name} cannot be used")]
pub struct StateStoreError {
    /// Name of the memory file.
    pub name: String,
    /// The underlying error.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}
