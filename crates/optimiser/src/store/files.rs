//! File operations of a store as a trait, and their implementation for the real file system. Tests
//! implement the trait to inject faults.

use std::{
    fs::{self, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// File operations that a store needs.
pub trait StoreFileSystem: Send + Sync {
    /// Creates a folder and its parent, unless they exist. Only the owner of a new folder can enter
    /// it.
    ///
    /// If the parent of the parent is missing, a disk is probably not mounted. The call then fails
    /// instead of creating the folder on another disk.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;

    /// Returns the files in a folder, in no particular order. The result may lack files that are
    /// removed during the call.
    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>>;

    /// Locks a file against other processes. Creates the file if it is missing. Returns `None` if
    /// another process has the lock.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>>;

    /// Creates an empty file for reading and writing. Only the owner of the file can read it.
    /// Truncates an existing file.
    fn create(&self, path: &Path) -> io::Result<Box<dyn StoreFile>>;

    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn StoreFile>>;

    /// Opens a file for reading and writing.
    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn StoreFile>>;

    /// Renames a file. If a file with the new name exists, replaces it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Syncs the names in a folder, so that they survive a power cut.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// An open file.
pub trait StoreFile: Send + Sync {
    /// Returns the size of the file.
    fn size_bytes(&self) -> io::Result<u64>;

    /// Reads at least one byte at `offset`, unless the file ends at `offset`. Returns the number of
    /// bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at least the first byte of `bytes`. Returns the number of bytes written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Truncates the file to `size_bytes`.
    fn truncate(&self, size_bytes: u64) -> io::Result<()>;

    /// Syncs the file's bytes, so that they survive a power cut.
    fn sync(&self) -> io::Result<()>;

    /// Returns whether the file still has a name in its folder.
    fn is_in_place(&self) -> bool {
        true
    }
}

/// A lock on a file. Dropping the value releases the lock.
pub trait FileLock: Send {
    /// Returns whether the locked file still has its name. The file loses its name if its folder is
    /// removed.
    fn is_in_place(&self) -> bool {
        true
    }
}

/// A file in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// Name of the file within its folder.
    pub name: String,
    /// Size of the file.
    pub size_bytes: u64,
}

/// The file system of this machine.
#[derive(Debug, Clone, Copy)]
pub struct RealFileSystem;

impl StoreFileSystem for RealFileSystem {
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        let make = |folder: &Path| match builder.create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
            made => made,
        };
        match (make(folder), folder.parent()) {
            (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => {
                make(above)?;
                make(folder)
            }
            (made, _) => made,
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        let mut listed = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (Ok(name), Ok(found)) = (entry.file_name().into_string(), entry.metadata()) else {
                continue;
            };
            if found.is_file() {
                let size_bytes = found.len();
                listed.push(FolderEntry { name, size_bytes });
            }
        }
        Ok(listed)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
        let file = to_write().create(true).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                let path = path.to_owned();
                Ok(Some(Box::new(RealLock { file, path })))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn StoreFile>> {
        Ok(Box::new(to_write().create(true).truncate(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StoreFile>> {
        Ok(Box::new(fs::File::open(path)?))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn StoreFile>> {
        Ok(Box::new(to_write().open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        fs::File::open(folder)?.sync_all()
    }
}

fn to_write() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

impl StoreFile for fs::File {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        self.set_len(size_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn is_in_place(&self) -> bool {
        self.metadata().is_ok_and(|it| it.nlink() > 0)
    }
}

/// A kernel lock on an open file. The kernel releases the lock when the file is closed or the
/// process ends.
struct RealLock {
    file: fs::File,
    path: PathBuf,
}

impl FileLock for RealLock {
    fn is_in_place(&self) -> bool {
        match (self.file.metadata(), fs::metadata(&self.path)) {
            (Ok(locked), Ok(named)) => (locked.dev(), locked.ino()) == (named.dev(), named.ino()),
            // If the error is not a missing file, it shows nothing about the folder.
            (_, Err(error)) => error.kind() != io::ErrorKind::NotFound,
            (Err(_), _) => true,
        }
    }
}

/// Returns whether the error means that the disk or the user's quota is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Reads from `offset` until `buffer` is full.
///
/// # Errors
/// `UnexpectedEof` if the file ends before the buffer is full, or the error of the file.
pub(super) fn read_exact_at(
    file: &dyn StoreFile,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `bytes`, starting at `offset`.
///
/// # Errors
/// The error of the file. Some of the bytes may have been written.
pub(super) fn write_all_at(file: &dyn StoreFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
