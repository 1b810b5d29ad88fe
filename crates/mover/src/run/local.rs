//! Local files as source or destination of a lane, with readers and writers.

use std::{io, mem, sync::Arc};

use tokio::task::{JoinHandle, spawn_blocking};

use super::{blocking::on_disk, failure::TaskError};
use crate::{
    disk::{
        LocalFiles,
        system::{FileKind, OpenFile},
    },
    names::{local, shown},
};

/// This machine as source or destination of a lane.
pub(super) struct LocalEnd {
    pub(super) files: Arc<LocalFiles>,
    /// The part file that was written last. The field is `None` after the file has been renamed.
    part: Option<OpenPart>,
}

/// An open part (incomplete file). If no later run can resume the part, the part is removed when
/// this value is dropped.
pub(super) struct OpenPart {
    pub(super) files: Arc<LocalFiles>,
    pub(super) path: Vec<u8>,
    pub(super) file: Arc<dyn OpenFile>,
    pub(super) is_kept: bool,
}

/// A file that is being read.
pub(super) struct LocalReader {
    file: Arc<dyn OpenFile>,
    path: Vec<u8>,
    at: u64,
    /// Size of the file in bytes when the file was opened. The size limits the buffer.
    size_bytes: u64,
    buffer: Vec<u8>,
}

/// A part file that is being written. One write runs in the background while the next bytes arrive.
pub(super) struct LocalWriter {
    file: Arc<dyn OpenFile>,
    path: Vec<u8>,
    at: u64,
    writing: Option<JoinHandle<(Vec<u8>, io::Result<()>)>>,
    buffer: Vec<u8>,
    /// Number of bytes written since the last sync began.
    unsynced_bytes: u64,
    /// A sync that is running in the background.
    syncing: Option<JoinHandle<io::Result<()>>>,
}

impl LocalEnd {
    pub(super) fn new(files: Arc<LocalFiles>) -> Self {
        Self { files, part: None }
    }

    /// Opens a file for reading at the offset `at`.
    pub(super) async fn read(&self, path: &[u8], at: u64) -> Result<LocalReader, TaskError> {
        let what = format!("reading {}", shown(&local(path)));
        let (files, path) = (self.files.clone(), path.to_vec());
        let open = move || {
            let file = files.open(&path)?;
            let is_busy = files.is_being_written(&*file);
            let size_bytes = file.stat()?.size_bytes;
            Ok((file, path, size_bytes, is_busy))
        };
        let (file, path, size_bytes, is_busy) = on_disk(open, what).await?;
        if is_busy {
            return Err(TaskError::Busy);
        }
        Ok(LocalReader {
            file,
            path,
            at,
            size_bytes,
            buffer: Vec::new(),
        })
    }

    /// Opens the part file of `path` for writing. If `part` and `path` are equal, the file is
    /// written directly under its final name.
    pub(super) async fn write(
        &mut self,
        (part, path): (&[u8], &[u8]),
        at: u64,
        is_kept: bool,
    ) -> Result<LocalWriter, TaskError> {
        let what = format!("writing {}", shown(&local(part)));
        let is_in_place = part == path;
        self.release_part();
        let (files, part) = (self.files.clone(), part.to_vec());
        let ours = part.clone();
        let open = move || {
            let file = match at {
                _ if is_in_place => files.open_in_place(&part)?,
                0 => return files.create_part(&part),
                _ => files.open_part(&part)?,
            };
            // A device has no length.
            if file.stat()?.kind == FileKind::File {
                file.set_len(at)?;
            }
            Ok(file)
        };
        let file = on_disk(open, what).await?;
        self.part = Some(OpenPart {
            files: self.files.clone(),
            path: ours.clone(),
            file: file.clone(),
            is_kept: is_kept || is_in_place,
        });
        Ok(LocalWriter::new(file, ours, at))
    }

    /// Removes a part file that an ended process has left. `is_recorded` states whether the journal
    /// contains the part's name.
    pub(super) async fn remove_left(
        &self,
        part: &[u8],
        is_recorded: bool,
    ) -> Result<(), TaskError> {
        let what = format!("removing {}", shown(&local(part)));
        let (files, part) = (self.files.clone(), part.to_vec());
        let remove = move || files.remove_left_part(&part, is_recorded).map(drop);
        on_disk(remove, what).await
    }

    /// Closes the part file that was written last. If no later run can resume the part, the part is
    /// removed.
    pub(super) fn release_part(&mut self) {
        self.part = None;
    }

    /// Creates a part file that has its full length, but no content yet. Later runs may resume the
    /// part.
    ///
    /// If `is_recorded` is true, the journal contains the part's name from an earlier attempt. The
    /// part of that attempt is then removed, even if the file system has no locks.
    pub(super) async fn make_part(
        &self,
        part: &[u8],
        size_bytes: u64,
        is_recorded: bool,
    ) -> Result<(), TaskError> {
        let what = format!("writing {}", shown(&local(part)));
        let (files, part) = (self.files.clone(), part.to_vec());
        let make = move || {
            if is_recorded {
                files.remove_left_part(&part, true)?;
            }
            let file = files.create_part(&part)?;
            file.set_len(size_bytes)?;
            file.sync()
        };
        on_disk(make, what).await
    }

    /// Opens a part file that [`make_part`](Self::make_part) has created.
    pub(super) async fn open_part(&self, part: &[u8]) -> Result<LocalWriter, TaskError> {
        let what = format!("writing {}", shown(&local(part)));
        let (files, part) = (self.files.clone(), part.to_vec());
        let open = move || Ok((files.open_part(&part)?, part));
        let (file, part) = on_disk(open, what).await?;
        Ok(LocalWriter::new(file, part, 0))
    }

    /// Sets the modification time of a complete part file. When the function returns, the content
    /// survives a power cut. The part stays open and locked until it is renamed.
    pub(super) async fn complete(
        &mut self,
        part: &[u8],
        path: &[u8],
        modified_unix_s: Option<i64>,
    ) -> Result<(), TaskError> {
        let what = format!("writing {}", shown(&local(part)));
        let open = self.part.as_ref().filter(|it| it.path == part);
        let open = open.map(|it| it.file.clone());
        let is_open = open.is_some();
        let (files, ours, path) = (self.files.clone(), part.to_vec(), path.to_vec());
        let complete = move || {
            let file = match open {
                Some(file) => file,
                None => files.open_part(&ours)?,
            };
            files.complete_part(&*file, &ours, &path, modified_unix_s)?;
            Ok(file)
        };
        let file = on_disk(complete, what).await?;
        if !is_open {
            self.part = Some(OpenPart {
                files: self.files.clone(),
                path: part.to_vec(),
                file,
                is_kept: true,
            });
        }
        Ok(())
    }

    /// Renames a complete part file to its final name.
    pub(super) async fn name(&mut self, part: &[u8], path: &[u8]) -> Result<(), TaskError> {
        let failed = renaming(part, path);
        let (files, part, path) = (self.files.clone(), part.to_vec(), path.to_vec());
        let named = spawn_blocking(move || files.name_part(&part, &path));
        named
            .await
            .expect("disk work does not panic")
            .map_err(failed)?;
        if let Some(part) = &mut self.part {
            part.is_kept = true;
        }
        self.part = None;
        Ok(())
    }
}

impl Drop for OpenPart {
    fn drop(&mut self) {
        if !self.is_kept {
            // The part may be gone, or its name may lead to another file.
            let _ = self.files.remove_part(&self.path, &*self.file);
        }
    }
}

impl LocalReader {
    /// Reads bytes, and returns their number. Returns 0 at the end of the file.
    pub(super) async fn read(&mut self, bytes: &mut [u8]) -> Result<usize, TaskError> {
        let (file, mut buffer, at) = (self.file.clone(), mem::take(&mut self.buffer), self.at);
        let left = usize::try_from(self.size_bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        buffer.resize(bytes.len().min(left.max(READ_LEAST_BYTES)), 0);
        let read = spawn_blocking(move || {
            let read = file.read_at(&mut buffer, at);
            (buffer, read)
        });
        let (buffer, read) = read.await.expect("disk work does not panic");
        self.buffer = buffer;
        let what = || format!("reading {}", shown(&local(&self.path)));
        let count = read.map_err(|error| TaskError::disk(what())(error))?;
        bytes[..count].copy_from_slice(&self.buffer[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

impl LocalWriter {
    fn new(file: Arc<dyn OpenFile>, path: Vec<u8>, at: u64) -> Self {
        Self {
            file,
            path,
            at,
            writing: None,
            buffer: Vec::new(),
            unsynced_bytes: 0,
            syncing: None,
        }
    }

    /// Sets the offset of the next write.
    pub(super) fn seek(&mut self, at: u64) {
        self.at = at;
    }

    /// Writes bytes in the background. If the write fails, the next call returns the error.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), TaskError> {
        self.flush().await?;
        let (file, mut buffer, at) = (self.file.clone(), mem::take(&mut self.buffer), self.at);
        buffer.clear();
        buffer.extend_from_slice(bytes);
        self.at += bytes.len() as u64;
        self.unsynced_bytes += bytes.len() as u64;
        self.writing = Some(spawn_blocking(move || {
            let written = file.write_at(&buffer, at);
            (buffer, written)
        }));
        let is_syncing = self.syncing.as_ref().is_some_and(|it| !it.is_finished());
        if self.unsynced_bytes >= SYNCED_BESIDE_BYTES && !is_syncing {
            self.end_sync().await?;
            self.unsynced_bytes = 0;
            let file = self.file.clone();
            self.syncing = Some(spawn_blocking(move || file.sync_data()));
        }
        Ok(())
    }

    /// Waits for the sync that is running in the background. The result of each sync must be read,
    /// because the operating system reports a disk error only once.
    async fn end_sync(&mut self) -> Result<(), TaskError> {
        let Some(syncing) = self.syncing.take() else {
            return Ok(());
        };
        let synced = syncing.await.expect("disk work does not panic");
        synced.map_err(TaskError::disk(format!(
            "writing {}",
            shown(&local(&self.path))
        )))
    }

    /// Waits until all bytes are written and no sync is running.
    pub(super) async fn finish(&mut self) -> Result<(), TaskError> {
        self.flush().await?;
        self.end_sync().await
    }

    /// Waits until all bytes are written.
    pub(super) async fn flush(&mut self) -> Result<(), TaskError> {
        let Some(writing) = self.writing.take() else {
            return Ok(());
        };
        let (buffer, written) = writing.await.expect("disk work does not panic");
        self.buffer = buffer;
        written.map_err(TaskError::disk(format!(
            "writing {}",
            shown(&local(&self.path))
        )))
    }

    /// Syncs the written bytes, so that they survive a power cut.
    pub(super) async fn sync(&mut self) -> Result<(), TaskError> {
        self.finish().await?;
        self.unsynced_bytes = 0;
        let what = format!("writing {}", shown(&local(&self.path)));
        let file = self.file.clone();
        on_disk(move || file.sync(), what).await
    }
}

/// Returns a function that makes the error for a part file that could not be renamed.
pub(super) fn renaming(part: &[u8], path: &[u8]) -> impl FnOnce(io::Error) -> TaskError + use<> {
    let (from, to) = (local(part), local(path));
    TaskError::disk(format!("renaming {} to {}", shown(&from), shown(&to)))
}

/// Smallest size of a read in bytes. Reads beyond the known end of the file have this size, because
/// the file may have grown.
const READ_LEAST_BYTES: usize = 4_096;

/// Number of bytes between two syncs in the background. Because of these syncs, only a few bytes
/// remain to sync at the end of a file.
const SYNCED_BESIDE_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{FilesRole, faulty::FaultyDisk};

    /// Some network file systems lack locks.
    #[tokio::test]
    async fn a_part_that_the_journal_knows_is_made_anew_on_a_disk_without_locks() {
        let disk = FaultyDisk::new(1);
        disk.put("/there/a.part", b"of another version", 7);
        disk.lack_locks();
        let side = FilesRole::Destination {
            removes_sources: false,
        };
        let files = LocalFiles::new(Arc::new(disk.clone()), [b"/there".to_vec()], side);
        let end = LocalEnd::new(files);
        let part = b"/there/a.part";
        let taken = end.make_part(part, 3, false).await;
        assert!(
            taken.is_err_and(|it| it.is_taken()),
            "a process may have it"
        );
        end.make_part(part, 3, true).await.expect("it is ours");
        assert_eq!(disk.files("/there")["/a.part"], [0; 3]);
    }
}
