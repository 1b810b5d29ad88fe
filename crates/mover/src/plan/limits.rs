//! Limits on the entries and paths that a plan accepts from a listing. An entry beyond them fails
//! under its name, since an endless listing must not fill the memory.

use units::ByteCount;

/// Size below which a part is not resumed. A query about the part would take as long as the file.
pub const RESUME_LEAST: ByteCount = ByteCount::mebibytes(1);

/// Deepest directory below a root. Some servers list links to directories above as directories.
pub const DEPTH_MAX: usize = 256;

/// Longest path below a root, in bytes, which is the limit of Linux.
pub const PATH_BYTES_MAX: usize = 4_096;

/// Maximum number of entries of a directory at the destination. All of them are in memory while the
/// source is listed.
pub const ENTRIES_THERE_MAX: usize = 1_000_000;

/// Maximum number of directories that wait to be listed.
pub const DIRECTORIES_WAITING_MAX: usize = 1_000_000;

/// Longest name, in bytes. Windows permits 255 UTF-16 units, which are 765 bytes at most.
pub const NAME_BYTES_MAX: usize = 1_024;

/// Maximum number of bytes of all names in a directory.
pub const NAMES_BYTES_MAX: usize = 256 << 20;

/// Limits that tests make smaller.
#[derive(Debug, Clone)]
pub(super) struct PlanLimits {
    pub(super) entries_there_max: usize,
    /// Maximum number of entries of a directory at the source. Only their names stay in memory.
    pub(super) entries_max: usize,
    /// Maximum number of directories that wait to be listed.
    pub(super) directories_waiting_max: usize,
    /// Maximum number of bytes of the paths of directories.
    pub(super) paths_bytes_max: usize,
    /// Maximum number of extra files.
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
