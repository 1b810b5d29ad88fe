//! Records of the outcome of each file in a job.

use super::{event::ContentProof, task::RelativePath, version::FileVersion};

/// Record of the outcome of a file or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEvent {
    /// Index of the root (a source that the user named).
    pub root: usize,
    /// Path below the root.
    pub path: RelativePath,
    /// Outcome of the file or directory.
    pub result: FileOutcome,
}

/// Outcome of a file or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOutcome {
    /// The file was moved.
    Moved(FileVersion, ContentProof),
    /// The destination already had the file.
    Same(FileVersion),
    /// An earlier run has moved the file or found it at the destination. The present state of the
    /// destination is not examined.
    TakenBefore,
    /// The entry was skipped intentionally. The text is the reason.
    LeftOut(&'static str),
    /// The task has failed and will be retried. The text is the reason.
    Retried(String),
    /// The file or directory could not be moved. The text is the reason.
    Failed(String),
    /// No connection has been established yet. The text names the answer for which the lane is
    /// waiting.
    Waiting(String),
    /// A connection attempt failed, and another attempt will follow. The text is the reason.
    NoConnection(String),
    /// The destination does not list this directory. The job moves the source's files even if the
    /// destination already has them.
    Unknown(String),
    /// A warning, for display.
    Warning(String),
    /// The step that a run without `--dry-run` would take.
    Planned(DryRunStep),
    /// The destination's file differs from the source file. The text names the difference.
    Differs(&'static str),
    /// The destination does not have the file.
    Missing,
    /// Only the destination has the entry.
    Extra,
    /// The entry was deleted at the destination.
    Deleted,
    /// The file was removed at the source, because the destination has it.
    Removed,
}

/// Step that a dry run reports instead of taking it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRunStep {
    /// A file would be moved.
    Move(FileVersion),
    /// A directory would be created.
    Make,
    /// A file or a directory would be deleted.
    Delete,
}

/// Counters of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Number of files found at the source.
    pub found: u64,
    /// Total size in bytes of the files to move. Files of unknown size are not included.
    pub bytes_wanted: u64,
    /// Number of files to move.
    pub wanted: u64,
    /// Number of files that were moved.
    pub moved: u64,
    /// Number of files that the destination already had, or that an earlier run had moved.
    pub same: u64,
    /// Number of entries that were skipped intentionally.
    pub left_out: u64,
    /// Number of files and directories that failed.
    pub failed: u64,
    /// Number of files that differ, according to a check of the destination.
    pub differing: u64,
    /// Number of files that the destination lacks, according to a check of the destination.
    pub missing: u64,
    /// Number of extra files that are kept at the destination. Entries below an extra directory are
    /// not counted.
    pub surplus: u64,
    /// Number of entries to delete. A dry run counts the entries that it would delete.
    pub doomed: u64,
    /// Number of files and directories that were deleted.
    pub deleted: u64,
    /// Number of files left for a later run, because programs may still be writing them.
    pub unsettled: u64,
    /// Number of files that were removed at the source.
    pub removed: u64,
}
