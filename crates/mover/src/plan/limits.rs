//! How much a plan takes from a listing. What is more fails by name: a listing without end must not fill the memory.

use units::ByteCount;

/// A part below this is moved anew: to ask what is there takes as long.
pub const RESUME_LEAST: ByteCount = ByteCount::mebibytes(1);

/// Deepest directory below a root. Links that lead back are listed as directories by some servers.
pub const DEPTH_MAX: usize = 256;

/// Longest path below a root, in bytes: that of Linux.
pub const PATH_BYTES_MAX: usize = 4_096;

/// Most entries of a directory at the destination: all of them are in memory while the source is listed.
pub const ENTRIES_THERE_MAX: usize = 1_000_000;

/// Most directories that wait to be listed.
pub const DIRECTORIES_WAITING_MAX: usize = 1_000_000;

/// Longest name, in bytes: 255 UTF-16 units, as Windows takes them, are 765 bytes at most.
pub const NAME_BYTES_MAX: usize = 1_024;

/// Most bytes of all names of a directory.
pub const NAMES_BYTES_MAX: usize = 256 << 20;

/// Bounds that tests make smaller.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) entries_there_max: usize,
    /// Most entries of a directory at the source: only their names stay.
    pub(super) entries_max: usize,
    /// Most directories that wait to be listed.
    pub(super) directories_waiting_max: usize,
    /// Most bytes of the paths of directories.
    pub(super) paths_bytes_max: usize,
    /// Most entries that only the destination has.
    pub(super) surplus_max: usize,
}

impl Default for Limits {
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
