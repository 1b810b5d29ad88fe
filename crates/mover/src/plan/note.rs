//! What was done, for the record.

use super::{event::Proof, task::RelativePath, version::Version};

/// What was done with a file or a directory, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Which of the job's roots.
    pub root: usize,
    /// What it is about.
    pub path: RelativePath,
    /// What was done.
    pub result: Result,
}

/// What was done with a file or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Result {
    /// It was moved.
    Moved(Version, Proof),
    /// The destination had it.
    Same(Version),
    /// An earlier run has taken it, whatever has become of it at the destination.
    TakenBefore,
    /// It is left out on purpose.
    LeftOut(&'static str),
    /// It will be tried again.
    Retried(String),
    /// It could not be moved.
    Failed(String),
    /// No connection has come about yet.
    Waiting(String),
    /// No connection came about; another attempt follows.
    NoConnection(String),
    /// What the destination has there cannot be known; the source's files are moved whether it has them or not.
    Unknown(String),
    /// Something that a person should know, for people.
    Warning(String),
    /// It would be done, were this no dry run.
    Planned(Step),
    /// The destination has it otherwise: in what.
    Differs(&'static str),
    /// The destination does not have it.
    Missing,
    /// Only the destination has it.
    Surplus,
    /// It was deleted at the destination.
    Deleted,
    /// It was removed at the source, since the destination has it.
    Removed,
}

/// What a dry run tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A file would be moved.
    Move(Version),
    /// A directory would be made.
    Make,
    /// A file or a directory would be deleted.
    Delete,
}

/// Counts of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files found at the source.
    pub found: u64,
    /// Bytes of the files to be moved, as far as they are known.
    pub bytes_wanted: u64,
    /// Files to be moved.
    pub wanted: u64,
    /// Files moved.
    pub moved: u64,
    /// Files that the destination had, or that an earlier run has taken.
    pub same: u64,
    /// Entries left out on purpose.
    pub left_out: u64,
    /// Files and directories that failed.
    pub failed: u64,
    /// What a check has found to differ.
    pub differing: u64,
    /// What a check has found to be missing at the destination.
    pub missing: u64,
    /// What only the destination has, and keeps. What is below such a directory is not counted.
    pub surplus: u64,
    /// What is, or would be, deleted.
    pub doomed: u64,
    /// Files and directories deleted.
    pub deleted: u64,
    /// Files left for a later run, since they may still be written.
    pub unsettled: u64,
    /// Files removed at the source.
    pub removed: u64,
}
