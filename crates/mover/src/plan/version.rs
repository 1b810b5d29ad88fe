//! Version of a file's content: its size, and the time of its last change.

use ftp::listing::{ModifiedTime, TimePrecision};

/// Version of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// Size. `None` if the source does not report it.
    pub size_bytes: Option<u64>,
    /// Time of the last change.
    pub modified: Option<ModifiedTime>,
}

impl FileVersion {
    /// Returns this listed version with the observations of its transfer, in the precision of later
    /// listings.
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

    /// Whether two listings describe the same content, as far as they have the same attributes.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let is_same_size = match (self.size_bytes, other.size_bytes) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        let is_same_time = match (self.modified, other.modified) {
            (Some(ours), Some(theirs)) => {
                let unit_s = match ours.precision.max(theirs.precision) {
                    // The same source reports the same second.
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
