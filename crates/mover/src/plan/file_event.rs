//! Records of a job's results.

use super::{event::ContentProof, task::RelativePath, version::FileVersion};

/// Record of the result for a file or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEvent {
    /// Number of the root.
    pub root: usize,
    /// Path below the root.
    pub path: RelativePath,
    /// The result.
    pub result: FileOutcome,
}

/// Result for a file or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOutcome {
    /// The file was moved.
    Moved(FileVersion, ContentProof),
    /// The destination had the file.
    Same(FileVersion),
    /// An earlier run has taken the file. Its present state at the destination does not matter.
    TakenBefore,
    /// The entry is left out on purpose.
    LeftOut(&'static str),
    /// The task is repeated.
    Retried(String),
    /// The file or directory could not be moved.
    Failed(String),
    /// No connection has been established yet.
    Waiting(String),
    /// A connection failed; another attempt follows.
    NoConnection(String),
    /// The destination does not list this directory. The source's files are moved, even if the
    /// destination has them.
    Unknown(String),
    /// A warning, for display.
    Warning(String),
    /// The step that a run without dry run would take.
    Planned(DryRunStep),
    /// The destination's file differs. The text names the difference.
    Differs(&'static str),
    /// The destination lacks the file.
    Missing,
    /// Only the destination has the entry.
    Extra,
    /// The entry was deleted at the destination.
    Deleted,
    /// The file was removed at the source, since the destination has it.
    Removed,
}

/// Step that a dry run reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRunStep {
    /// A file would be moved.
    Move(FileVersion),
    /// A directory would be made.
    Make,
    /// A file or a directory would be deleted.
    Delete,
}

/// Counts of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Files found at the source.
    pub found: u64,
    /// Size of the files to be moved, as far as it is known.
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
    /// Files that a check has found to differ.
    pub differing: u64,
    /// Files that a check has found to be missing at the destination.
    pub missing: u64,
    /// Extra files that stay at the destination. Entries below an extra directory are not counted.
    pub surplus: u64,
    /// Entries to be deleted. A dry run counts them, too.
    pub doomed: u64,
    /// Files and directories deleted.
    pub deleted: u64,
    /// Files left for a later run, since they may still be written.
    pub unsettled: u64,
    /// Files removed at the source.
    pub removed: u64,
}
