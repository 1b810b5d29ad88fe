//! Limits on the entries and paths that a plan accepts from a listing. An entry beyond a limit
//! fails and is reported. Without the limits, an endless listing could fill the memory.

use units::ByteCount;

/// Smallest size of a file whose part (incomplete copy) is resumed. For a smaller file, the query
/// about the part would take as long as the transfer.
pub const RESUME_LEAST: ByteCount = ByteCount::mebibytes(1);

/// Maximum depth of a directory below a root. Some servers list a link to a parent directory as a
/// directory. Without the limit, the job would enter that directory again and again.
pub const DEPTH_MAX: usize = 256;

/// Maximum length of a path below a root, in bytes. The limit equals the limit of Linux.
pub const PATH_BYTES_MAX: usize = 4_096;

/// Maximum number of entries in a destination directory. All these entries stay in memory while the
/// source directory is listed.
pub const ENTRIES_THERE_MAX: usize = 1_000_000;

/// Maximum number of directories that are waiting to be listed.
pub const DIRECTORIES_WAITING_MAX: usize = 1_000_000;

/// Maximum length of a name, in bytes. Windows permits 255 UTF-16 units, which are at most 765
/// bytes.
pub const NAME_BYTES_MAX: usize = 1_024;

/// Maximum total length of all names in a directory, in bytes.
pub const NAMES_BYTES_MAX: usize = 256 << 20;

/// Limits that tests can reduce.
#[derive(Debug, Clone)]
pub(super) struct PlanLimits {
    pub(super) entries_there_max: usize,
    /// Maximum number of entries in a source directory. Only the names of these entries stay in
    /// memory.
    pub(super) entries_max: usize,
    /// Maximum number of directories that are waiting to be listed.
    pub(super) directories_waiting_max: usize,
    /// Maximum total length of the paths of all directories, in bytes.
    pub(super) paths_bytes_max: usize,
    /// Maximum number of extra files (entries that only the destination has).
    pub(super) surplus_max: usize,
}

impl Default for PlanLimits {
    fn default() -> Self {
        Self {
            entries_there_max: ENTRIES_THERE_MAX,
            entries_max: 10_000_000,
            directories_waiting_max: DIRECTORIES_WAITING_MAX,
            paths_bytes_max: 256 << 20,
            surplus_max: 1_000_000,
        }
    }
}
