//! What a job is to do, and what it is allowed.

use std::{fmt, str::FromStr, sync::Arc};

use ftp::listing::{Entry, Kind};
use units::parse_share;

use super::memory::Memory;
use crate::{filter::Filter, part_name};

/// What a job is to do, and what it is allowed.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the job is for.
    pub purpose: Purpose,
    /// Most lanes at a time.
    pub lanes_max: usize,
    /// How often a task is tried again.
    pub retries: u32,
    /// Keeps files of the destination that are newer.
    pub keeps_newer: bool,
    /// Of files with the same size the content is compared, not the time.
    pub compares_content: bool,
    /// The source lists times of a server, whose zone may change.
    pub source_has_zone: bool,
    /// The destination lists times of a server.
    pub destination_has_zone: bool,
    /// What becomes of symbolic links below a source.
    pub links: Links,
    /// A file that was changed within so many seconds before the job began may still be written, and is left out.
    pub settle_s: i64,
    /// Makes directories in which there is nothing to move. A sync always does. A check misses them.
    pub makes_empty_directories: bool,
    /// Tells what would be done, and changes nothing.
    pub is_dry_run: bool,
    /// Which files are taken.
    pub filter: Arc<Filter>,
    /// Leaves out what other programs have not completed, by the names that they give.
    pub leaves_partial: bool,
    /// The suffix of parts, where it is another one than `.part`. A part is no file of the source, nor surplus.
    pub part_suffix: Option<Vec<u8>>,
    /// What earlier runs have taken; `None` remembers nothing.
    pub memory: Option<Arc<dyn Memory>>,
    /// Removes a file at the source once the destination has it.
    pub removes_source: bool,
    /// Files that grow are read until they rest.
    pub follows_growth: bool,
    /// When the job began, in seconds since 1970: ages of files are those of that time.
    pub begun_unix_s: i64,
}

/// What becomes of symbolic links below a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// They are left out.
    Skip,
    /// What they lead to is moved.
    Follow,
    /// They are made at the destination, which must be on the same machine.
    Copy,
}

/// What a job is for.
#[derive(Debug, Clone, PartialEq)]
pub enum Purpose {
    /// The destination gets what the source has.
    Copy,
    /// The destination becomes as the source is.
    Sync {
        /// What only the destination has is deleted; `None` leaves it.
        deletion: Option<Deletion>,
    },
    /// Both are compared, and stay as they are.
    Check {
        /// Content is compared, not times.
        compares_content: bool,
    },
}

/// What a sync may delete.
#[derive(Debug, Clone, PartialEq)]
pub struct Deletion {
    /// Above this nothing is deleted.
    pub max: DeletionMax,
    /// Deletes also what the filter leaves out.
    pub takes_excluded: bool,
    /// Takes a directory of the source for empty if its listing is. Else an empty listing beside a directory with files
    /// ends in a failure: the disk may not be mounted.
    pub trusts_empty: bool,
}

/// The most that a sync deletes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum DeletionMax {
    /// Files and directories.
    Entries(u64),
    /// A share of the destination's files and directories.
    Share(f64),
    /// A tenth of them, and ten in any case: a share of a small directory is none at all.
    #[default]
    Usual,
}

/// A text is no limit of deletions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a number of files and directories nor a share such as 10%")]
pub struct DeletionMaxError(String);

impl Options {
    /// The deletion of a sync that deletes.
    pub(super) fn deletion(&self) -> Option<&Deletion> {
        match &self.purpose {
            Purpose::Sync { deletion } => deletion.as_ref(),
            Purpose::Copy | Purpose::Check { .. } => None,
        }
    }

    /// Whether an entry is the part of a file that has not been moved to its end.
    pub(super) fn is_part(&self, entry: &Entry) -> bool {
        let is_file = !matches!(entry.kind, Kind::Directory);
        is_file && part_name::is_part(&entry.name, self.part_suffix.as_deref())
    }

    pub(super) fn is_sync(&self) -> bool {
        matches!(self.purpose, Purpose::Sync { .. })
    }

    pub(super) fn is_check(&self) -> bool {
        matches!(self.purpose, Purpose::Check { .. })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            purpose: Purpose::Copy,
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
    /// Whether so many of `there` entries may be deleted.
    pub(super) fn allows(self, deleted: u64, there: u64) -> bool {
        match self {
            Self::Entries(max) => deleted <= max,
            // A share such as 29 % is no exact fraction.
            Self::Share(max) => deleted as f64 <= max * there as f64 + 1e-6,
            Self::Usual => deleted <= DELETED_FEW.max(there / 10),
        }
    }
}

/// A person looks through so many names.
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
