//! Version of a file's content, identified by its size and its modification time.

use ftp::listing::{ModifiedTime, TimePrecision};

/// Version of a file's content, identified by its size and its modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// Size in bytes. `None` if the source does not report a size.
    pub size_bytes: Option<u64>,
    /// Modification time. `None` if the source does not report a time.
    pub modified: Option<ModifiedTime>,
}

impl FileVersion {
    /// Returns the version with the size and the time that the transfer has observed. If the listed
    /// time is less precise than one second, the listed time is kept.
    pub fn seen(self, bytes: u64, modified_unix_s: Option<i64>) -> Self {
        let is_exact = |it: &ModifiedTime| it.precision == TimePrecision::Second;
        let seen = modified_unix_s.map(|unix_s| ModifiedTime {
            unix_s,
            precision: TimePrecision::Second,
        });
        let modified = match self.modified {
            Some(listed) if !is_exact(&listed) => Some(listed),
            listed => seen.or(listed),
        };
        Self {
            size_bytes: Some(bytes),
            modified,
        }
    }

    /// Returns whether two listings describe the same content. Sizes are compared only if both
    /// listings have a size. If only one listing has a modification time, the contents count as
    /// different.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let is_same_size = match (self.size_bytes, other.size_bytes) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        let is_same_time = match (self.modified, other.modified) {
            (Some(ours), Some(theirs)) => {
                let unit_s = match ours.precision.max(theirs.precision) {
                    // Two listings of an unchanged file report the same second.
                    TimePrecision::Second => 0,
                    TimePrecision::Minute => 60,
                    TimePrecision::Day => 86_400,
                };
                (ours.unix_s - theirs.unix_s).abs() <= unit_s
            }
            (ours, theirs) => ours.is_none() && theirs.is_none(),
        };
        is_same_size && is_same_time
    }
}
