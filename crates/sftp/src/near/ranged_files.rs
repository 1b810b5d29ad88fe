//! Files that the client downloads in ranges, each with a handle of its own.
//!
//! For such a file, the client does not need bytes from the start of the file, or bytes behind the
//! range. The near half therefore starts the read-ahead at the first READ of a handle. It expects
//! that the next range has the length of the latest one.
//!
//! Input: the part of a file that the client has read with a handle. Output: the expected length of
//! a range.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// Files that the client has recently read in ranges.
#[derive(Debug, Default)]
pub(super) struct RangedFiles {
    /// Files and the length of their latest range in bytes. The latest file is last.
    known: VecDeque<(PathHash, u64)>,
}

/// Hash of a path. If two paths have the same hash, the only effect is a wrong expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PathHash(u64);

impl PathHash {
    /// Returns the hash of a path of an account.
    pub(super) fn of(account: u64, path: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        account.hash(&mut hasher);
        path.hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl RangedFiles {
    /// Stores the length of a range that the client has read.
    pub(super) fn record(&mut self, path: PathHash, range_bytes: u64) {
        self.known.retain(|(known, _)| *known != path);
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back((path, range_bytes));
    }

    /// Accepts the number of bytes that the client has read from the start of a file. Removes the
    /// file if the client no longer reads it in ranges.
    pub(super) fn read_from_start(&mut self, path: PathHash, bytes: u64) {
        self.known
            .retain(|(known, range_bytes)| *known != path || bytes <= 2 * range_bytes);
    }

    /// Returns the length of the latest range of a file in bytes. Returns `None` if the client has
    /// not read the file in ranges.
    pub(super) fn range_bytes(&self, path: PathHash) -> Option<u64> {
        let known = self.known.iter().find(|(known, _)| *known == path);
        known.map(|(_, range_bytes)| *range_bytes)
    }
}

/// Maximum number of known files.
const KNOWN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_range_of_the_latest_files_is_known() {
        let mut files = RangedFiles::default();
        let path = |number: usize| PathHash::of(0, format!("/file {number}").as_bytes());
        for number in 0..=KNOWN_MAX {
            files.record(path(number), 1);
            files.record(path(1), number as u64);
        }
        assert_eq!(files.range_bytes(path(0)), None);
        assert_eq!(files.range_bytes(path(1)), Some(KNOWN_MAX as u64));
        assert_eq!(files.range_bytes(path(KNOWN_MAX)), Some(1));
        let range = KNOWN_MAX as u64;
        files.read_from_start(path(1), 2 * range);
        assert!(files.range_bytes(path(1)).is_some());
        files.read_from_start(path(1), 2 * range + 1);
        assert_eq!(files.range_bytes(path(1)), None);
    }
}
