//! Options of a job's plan.

use std::{fmt, str::FromStr, sync::Arc};

use ftp::listing::{EntryKind, ListingEntry};
use units::parse_share;

use super::memory::RunMemory;
use crate::{filter::Filter, part_name};

/// Options of a job's plan.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// Purpose of the job.
    pub purpose: JobPurpose,
    /// Maximum number of lanes at a time.
    pub lanes_max: usize,
    /// Retries of a task.
    pub retries: u32,
    /// Keeps files of the destination that are newer.
    pub keeps_newer: bool,
    /// Compares the content of files with equal size, instead of their times.
    pub compares_content: bool,
    /// The source lists times in a server's zone, which may change.
    pub source_has_zone: bool,
    /// The destination lists times in a server's zone, which may change.
    pub destination_has_zone: bool,
    /// Treatment of symbolic links below a source.
    pub links: Links,
    /// Settle time in seconds. A file changed within this time before the job's start may still be
    /// written, and is left out.
    pub settle_s: i64,
    /// Makes directories without files to move. A sync always makes them. A check reports them as
    /// missing.
    pub makes_empty_directories: bool,
    /// Reports the steps that a run would take, and changes no file.
    pub is_dry_run: bool,
    /// Filter of the files.
    pub filter: Arc<Filter>,
    /// Leaves out incomplete files of other programs, by their names.
    pub leaves_partial: bool,
    /// Suffix of parts, if it differs from `.part`. A part counts neither as a file of the source
    /// nor as an extra file.
    pub part_suffix: Option<Vec<u8>>,
    /// Memory of earlier runs. `None` for a job without memory.
    pub memory: Option<Arc<dyn RunMemory>>,
    /// Removes a file at the source once the destination has it.
    pub removes_source: bool,
    /// Follows a growing file until it stops growing.
    pub follows_growth: bool,
    /// Start of the job, in seconds since 1970. Ages of files are relative to it.
    pub begun_unix_s: i64,
}

/// Treatment of symbolic links below a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Links are left out.
    Skip,
    /// The targets of links are moved.
    Follow,
    /// Links are made at the destination, which must be on the same machine.
    Copy,
}

/// Purpose of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum JobPurpose {
    /// The destination receives the source's files.
    Copy,
    /// The destination becomes equal to the source.
    Sync {
        /// Deletion of extra files. `None` keeps them.
        deletion: Option<Deletion>,
    },
    /// Source and destination are compared, and not changed.
    Check {
        /// Compares contents, not times.
        compares_content: bool,
    },
}

/// Extent of a sync's deletions.
#[derive(Debug, Clone, PartialEq)]
pub struct Deletion {
    /// Limit above which no file is deleted.
    pub max: DeletionMax,
    /// Deletes also the entries that the filter leaves out.
    pub takes_excluded: bool,
    /// Accepts an empty listing of the source as evidence of an empty directory.
    ///
    /// Otherwise an empty listing beside a directory with files is a failure, since the disk may
    /// not be mounted.
    pub trusts_empty: bool,
}

/// Limit on the deletions of a sync.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum DeletionMax {
    /// Number of files and directories.
    Entries(u64),
    /// Fraction of the destination's files and directories.
    Share(f64),
    /// A tenth of the entries, and ten in any case, since a tenth of a small directory rounds to
    /// zero.
    #[default]
    Usual,
}

/// An error: the text is no limit of deletions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a number of files and directories nor a share such as 10%")]
pub struct DeletionMaxError(String);

impl PlanOptions {
    /// Returns the deletion options of a sync that deletes.
    pub(super) fn deletion(&self) -> Option<&Deletion> {
        match &self.purpose {
            JobPurpose::Sync { deletion } => deletion.as_ref(),
            JobPurpose::Copy | JobPurpose::Check { .. } => None,
        }
    }

    /// Whether an entry is the part of an incomplete file.
    pub(super) fn is_part(&self, entry: &ListingEntry) -> bool {
        let is_file = !matches!(entry.kind, EntryKind::Directory);
        is_file && part_name::is_part(&entry.name, self.part_suffix.as_deref())
    }

    pub(super) fn is_sync(&self) -> bool {
        matches!(self.purpose, JobPurpose::Sync { .. })
    }

    pub(super) fn is_check(&self) -> bool {
        matches!(self.purpose, JobPurpose::Check { .. })
    }
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            purpose: JobPurpose::Copy,
            lanes_max: 4,
            retries: 5,
            keeps_newer: false,
            compares_content: false,
            source_has_zone: true,
            destination_has_zone: true,
            links: Links::Skip,
            settle_s: 0,
            makes_empty_directories: false,
            is_dry_run: false,
            filter: Arc::default(),
            leaves_partial: false,
            part_suffix: None,
            memory: None,
            removes_source: false,
            follows_growth: false,
            begun_unix_s: 0,
        }
    }
}

impl DeletionMax {
    /// Whether `deleted` of `there` entries may be deleted.
    pub(super) fn allows(self, deleted: u64, there: u64) -> bool {
        match self {
            Self::Entries(max) => deleted <= max,
            // A fraction such as 29 % is not exact in binary.
            Self::Share(max) => deleted as f64 <= max * there as f64 + 1e-6,
            Self::Usual => deleted <= DELETED_FEW.max(there / 10),
        }
    }
}

/// Deletions that are always permitted. A user can review this number of names.
const DELETED_FEW: u64 = 10;

impl FromStr for DeletionMax {
    type Err = DeletionMaxError;

    /// Reads a number of entries, `50`, or a share, `10%`.
    fn from_str(text: &str) -> Result<Self, DeletionMaxError> {
        match text.parse() {
            Ok(entries) => Ok(Self::Entries(entries)),
            Err(_) => match parse_share(text) {
                Ok(share) => Ok(Self::Share(share)),
                Err(_) => Err(DeletionMaxError(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for DeletionMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries(entries) => entries.fmt(f),
            Self::Share(share) => write!(f, "{}%", (share * 1e4).round() / 1e2),
            Self::Usual => write!(f, "10%, or {DELETED_FEW} entries"),
        }
    }
}
