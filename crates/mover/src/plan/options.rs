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
    /// Maximum number of lanes that are open at the same time.
    pub lanes_max: usize,
    /// Maximum number of retries of a failed task.
    pub retries: u32,
    /// Whether a newer file at the destination is kept.
    pub keeps_newer: bool,
    /// Whether files of equal size are compared by content instead of modification time.
    pub compares_content: bool,
    /// Whether the source lists times in a server's time zone. The offset of that zone may change.
    pub source_has_zone: bool,
    /// Whether the destination lists times in a server's time zone. The offset of that zone may
    /// change.
    pub destination_has_zone: bool,
    /// Whether both ends accept names with line breaks. FTP cannot carry such names.
    pub carries_line_breaks: bool,
    /// Handling of symbolic links below a source root.
    pub links: Links,
    /// Settle time in seconds. The job skips a file that has changed within this time before the
    /// job's start. A program may still be writing such a file.
    pub settle_s: i64,
    /// Whether the job creates directories that contain no files to move. A sync always creates
    /// these directories. A check reports missing directories if this option is set.
    pub makes_empty_directories: bool,
    /// Whether the job only reports the steps that it would take, and changes no file.
    pub is_dry_run: bool,
    /// Filter that accepts or excludes files.
    pub filter: Arc<Filter>,
    /// Whether the job skips files whose names mark them as incomplete files of other programs.
    pub leaves_partial: bool,
    /// Suffix of parts (incomplete files), if the suffix is not `.part`. A part is neither copied
    /// from the source nor treated as an extra file.
    pub part_suffix: Option<Vec<u8>>,
    /// Memory of the files that earlier runs have moved. `None` if the job has no such memory.
    pub memory: Option<Arc<dyn RunMemory>>,
    /// Whether the job removes a source file once the destination has the file.
    pub removes_source: bool,
    /// Whether the job copies a growing file until the file stops growing.
    pub follows_growth: bool,
    /// Start time of the job, in seconds since 1970. The ages of files are computed relative to
    /// this time.
    pub begun_unix_s: i64,
}

/// Handling of symbolic links below a source root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Symbolic links are skipped.
    Skip,
    /// The targets of symbolic links are moved.
    Follow,
    /// Symbolic links are created at the destination. The destination must be on the same machine
    /// as the source.
    Copy,
}

/// Purpose of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum JobPurpose {
    /// The destination receives the source's files.
    Copy,
    /// The destination becomes equal to the source.
    Sync {
        /// Options for deleting extra files. `None` keeps extra files.
        deletion: Option<Deletion>,
    },
    /// The source and the destination are compared, and no file is changed.
    Check {
        /// Whether the check compares contents instead of modification times.
        compares_content: bool,
    },
}

/// Options for the deletions of a sync.
#[derive(Debug, Clone, PartialEq)]
pub struct Deletion {
    /// Limit on the number of deletions. If a sync would exceed the limit, the sync deletes
    /// nothing.
    pub max: DeletionMax,
    /// Whether the sync also deletes entries that the filter excludes.
    pub takes_excluded: bool,
    /// Whether an empty listing of a source directory is accepted as correct.
    ///
    /// If false, an empty listing of the source is a failure when the destination's directory has
    /// files. The listing may be empty because a disk is not mounted.
    pub trusts_empty: bool,
}

/// Limit on the deletions of a sync.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum DeletionMax {
    /// Absolute limit on the number of files and directories.
    Entries(u64),
    /// Limit as a fraction of the files and directories at the destination.
    Share(f64),
    /// One tenth of the entries at the destination, but never less than ten. For a small directory,
    /// one tenth would round to zero.
    #[default]
    Usual,
}

/// An error: the text is not a limit on deletions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a number of files and directories nor a share such as 10%")]
pub struct DeletionMaxError(String);

impl PlanOptions {
    /// Returns the deletion options, or `None` if the job deletes no extra files.
    pub(super) fn deletion(&self) -> Option<&Deletion> {
        match &self.purpose {
            JobPurpose::Sync { deletion } => deletion.as_ref(),
            JobPurpose::Copy | JobPurpose::Check { .. } => None,
        }
    }

    /// Returns whether an entry is a part (an incomplete file).
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
            carries_line_breaks: false,
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
    /// Returns whether the sync may delete `deleted` entries if the destination has `there`
    /// entries.
    pub(super) fn allows(self, deleted: u64, there: u64) -> bool {
        match self {
            Self::Entries(max) => deleted <= max,
            // The tolerance is needed because a fraction such as 29 % is not exact in binary.
            Self::Share(max) => deleted as f64 <= max * there as f64 + 1e-6,
            Self::Usual => deleted <= DELETED_FEW.max(there / 10),
        }
    }
}

/// Number of deletions that the default limit always permits. A user can review this number of
/// names.
const DELETED_FEW: u64 = 10;

impl FromStr for DeletionMax {
    type Err = DeletionMaxError;

    /// Parses a number of entries such as `50`, or a percentage such as `10%`.
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
