//! What earlier runs of a job have taken from its source.

use std::{fmt::Debug, time::Instant};

use super::{
    task::{File, RelativePath},
    version::Version,
};

/// Remembers what the runs of a job have taken, so that none takes it again.
pub trait Memory: Debug + Send + Sync {
    /// What a file of the source, listed `now`, is to the job.
    fn standing(&self, file: &File, now: Instant) -> Standing;

    /// The version of a file that an earlier run has taken.
    fn taken(&self, path: &RelativePath) -> Option<Version>;

    /// Files are about to be moved. On return this outlives a power cut.
    ///
    /// # Errors
    /// [`Forgetful`] if it cannot be written down: then the files must not be moved.
    fn begin(&self, files: &[File]) -> Result<(), Forgetful>;

    /// Files are whole at the destination. On return this outlives a power cut.
    ///
    /// # Errors
    /// [`Forgetful`] if it cannot be written down: then their sources must not be removed.
    fn took(&self, taken: &[Taken]) -> Result<(), Forgetful>;

    /// Files were removed at the source: another one of the same name, size and time is a new one.
    ///
    /// # Errors
    /// [`Forgetful`] if it cannot be written down.
    fn removed(&self, paths: &[RelativePath]) -> Result<(), Forgetful>;
}

/// What a file of the source is to a job that remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has not been taken yet.
    New,
    /// An earlier run has taken it as it is now.
    Taken,
    /// It may still be written.
    Unsettled,
}

/// A file that is whole at the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Below the job's root.
    pub path: RelativePath,
    /// What the source was.
    pub version: Version,
    /// The job has moved it now; else the destination had it.
    pub is_moved: bool,
}

/// What is to be remembered cannot be written down.
#[derive(Debug, thiserror::Error)]
#[error("the job's memory {name} cannot be used")]
pub struct Forgetful {
    /// Which.
    pub name: String,
    /// Why.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}
