//! Grouping of a job's files into batches for workers.

use ftp::listing::TimePrecision;
use mover::plan::{FileVersion, RelativePath};

use crate::message::{BatchFile, EncodedBytes};

/// Collects files until they fill a batch.
#[derive(Debug, Default)]
pub struct Batches {
    files: Vec<BatchFile>,
    path_bytes: usize,
    bytes: u64,
}

impl Batches {
    /// Adds a file. If the batch is now full, returns its files and starts a new batch.
    pub fn add(
        &mut self,
        source: usize,
        path: &RelativePath,
        version: FileVersion,
    ) -> Option<Vec<BatchFile>> {
        let path = EncodedBytes::new(&path.to_bytes());
        let size_bytes = version.size_bytes;
        let modified = version.modified;
        let modified = modified.filter(|it| it.precision == TimePrecision::Second);
        self.path_bytes += path.encoded().len();
        // A file without a known size fills the batch, because the file may be large.
        self.bytes = self
            .bytes
            .saturating_add(size_bytes.unwrap_or(BATCH_BYTES_MAX));
        self.files.push(BatchFile {
            source,
            path,
            size_bytes,
            modified_unix_s: modified.map(|it| it.unix_s),
        });
        let is_full = self.files.len() >= BATCH_FILES_MAX
            || self.bytes >= BATCH_BYTES_MAX
            || self.path_bytes >= PATH_BYTES_MAX;
        is_full.then(|| self.take())
    }

    /// Returns the files of the incomplete last batch. Returns `None` if there are no such files.
    pub fn end(&mut self) -> Option<Vec<BatchFile>> {
        (!self.files.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> Vec<BatchFile> {
        std::mem::take(self).files
    }
}

/// Maximum number of files in a batch. With small batches, all workers end at about the same time.
/// With large batches, the log-in for each batch takes little of the time.
pub const BATCH_FILES_MAX: usize = 32;

/// Total file size in bytes at which a batch is full.
const BATCH_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Total length of a batch's paths in bytes. At this length, the batch is full. A NATS message has
/// at most 1 MB.
const PATH_BYTES_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn of_size(size_bytes: Option<u64>) -> FileVersion {
        FileVersion {
            size_bytes,
            modified: None,
        }
    }

    fn sizes(files: impl Iterator<Item = Option<u64>>) -> Vec<usize> {
        let mut batches = Batches::default();
        let path = RelativePath::default().join(b"x");
        let mut made: Vec<usize> = files
            .filter_map(|size| batches.add(0, &path, of_size(size)))
            .map(|it| it.len())
            .collect();
        made.extend(batches.end().map(|it| it.len()));
        made
    }

    #[test]
    fn a_batch_has_a_bound_of_files_and_of_bytes() {
        assert_eq!(sizes((0..70).map(|_| Some(10))), [32, 32, 6]);
        assert_eq!(sizes((0..5).map(|_| Some(BATCH_BYTES_MAX / 2))), [2, 2, 1]);
        assert_eq!(sizes([Some(1), None, Some(1)].into_iter()), [2, 1]);
        assert_eq!(sizes(std::iter::empty()), [0; 0]);
    }

    #[test]
    fn long_paths_fill_a_batch() {
        let mut batches = Batches::default();
        let path = RelativePath::default().join(&[b'x'; 100_000]);
        let full: Vec<bool> = (0..3)
            .map(|_| batches.add(0, &path, of_size(Some(1))).is_some())
            .collect();
        assert_eq!(full, [false, false, true]);
    }
}
