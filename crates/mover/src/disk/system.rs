//! File system interface of the mover. The module `machine` implements the interface for this
//! machine. Tests use an implementation that simulates errors and power cuts.
//!
//! Names are resolved from open folders. Therefore a symbolic link that appears later cannot
//! redirect a name.

use std::{fmt::Debug, fs::Metadata, io, os::unix::fs::MetadataExt as _, sync::Arc};

/// A file system. Symbolic links in paths that the user names are followed.
pub(crate) trait FileSystem: Debug + Send + Sync {
    /// Opens a folder.
    fn open_folder(&self, path: &[u8]) -> io::Result<Arc<dyn Folder>>;

    /// Returns the attributes of the file to which a path leads.
    fn stat(&self, path: &[u8]) -> io::Result<FileStat>;

    /// Returns the absolute path without symbolic links, `.` and `..`.
    fn canonical(&self, path: &[u8]) -> io::Result<Vec<u8>>;

    /// Creates a hard link `new` to the file `path`. If `path` is a symbolic link, it is not
    /// followed.
    fn hard_link(&self, path: &[u8], new: &[u8]) -> io::Result<()>;

    /// Returns the default permissions of a new file, according to the process's umask.
    fn usual_mode(&self) -> u32;

    /// Returns whether a file belongs to the user of this process.
    fn is_ours(&self, stat: &FileStat) -> bool;

    /// Returns a number that identifies the present boot of the machine.
    fn boot(&self) -> Option<u64>;
}

/// An open folder. Links are followed only with [`LinkPolicy::Follow`].
pub(crate) trait Folder: Debug + Send + Sync {
    /// Opens a folder below this folder. `below` contains one or more names, separated by slashes.
    fn folder(&self, below: &[u8], links: LinkPolicy) -> io::Result<Arc<dyn Folder>>;

    /// Returns the attributes of an entry of this folder.
    fn stat(&self, name: &[u8], links: LinkPolicy) -> io::Result<FileStat>;

    /// Opens a file in this folder.
    fn open(&self, name: &[u8], opening: OpenMode) -> io::Result<Arc<dyn OpenFile>>;

    /// Passes the names in this folder to `take`, until `take` returns false.
    fn list(&self, take: &mut dyn FnMut(Vec<u8>) -> io::Result<bool>) -> io::Result<()>;

    /// Returns the target of a symbolic link.
    fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>>;

    /// Creates a folder.
    fn make_folder(&self, name: &[u8]) -> io::Result<()>;

    /// Creates a symbolic link.
    fn make_link(&self, target: &[u8], name: &[u8]) -> io::Result<()>;

    /// Renames a file in this folder. An existing file with the new name is replaced.
    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()>;

    /// Removes a file or a symbolic link. Folders are refused.
    fn remove_file(&self, name: &[u8]) -> io::Result<()>;

    /// Removes an empty folder.
    fn remove_folder(&self, name: &[u8]) -> io::Result<()>;

    /// Syncs the folder, so that the names in it survive a power cut.
    fn sync(&self) -> io::Result<()>;

    /// Returns the default permissions of a new file in this folder according to the folder's
    /// default access control list. Returns `None` if the folder has no such list.
    fn inherited_mode(&self) -> Option<u32> {
        None
    }
}

/// An open file.
pub(crate) trait OpenFile: Debug + Send + Sync {
    /// Returns the file's present attributes.
    fn stat(&self) -> io::Result<FileStat>;

    /// Reads bytes from an offset, and returns their number. Returns 0 at the end of the file.
    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<usize>;

    /// Writes all bytes at an offset.
    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()>;

    /// Truncates or extends the file to `bytes` bytes.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Sets the modification time.
    fn set_modified(&self, unix_s: i64) -> io::Result<()>;

    /// Sets the permissions. Also sets owner and group if the operating system permits that.
    fn set_access(&self, access: FileAccess) -> io::Result<()>;

    /// Syncs the file, so that its content survives a power cut.
    fn sync(&self) -> io::Result<()>;

    /// Syncs the content of the file. The modification time need not be synced.
    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    /// Locks the file until this handle is closed. Returns `Some(false)` if another process or
    /// another handle has the lock. Returns `None` if the file system has no locks.
    fn try_lock(&self) -> io::Result<Option<bool>>;

    /// Returns whether any process has the file open for writing. Returns `None` if the system
    /// cannot determine that.
    fn is_being_written(&self) -> Option<bool>;
}

/// Whether symbolic links below a root are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkPolicy {
    Refuse,
    Follow,
}

/// Mode in which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Open for reading.
    Read(LinkPolicy),
    /// Create a new file for writing. Only the owner may read the file.
    New,
    /// Open an existing file for writing.
    Write,
    /// Open a file for writing. Create the file if it does not exist.
    InPlace,
}

/// Permissions, owner and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileAccess {
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// Kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    File,
    Folder,
    Link,
    Other,
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStat {
    pub(crate) kind: FileKind,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size_bytes: u64,
    pub(crate) modified_unix_s: i64,
    pub(crate) modified_ns: i64,
    pub(crate) access: FileAccess,
    /// Number of hard links of the file.
    pub(crate) names: u64,
}

impl FileStat {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let kind = metadata.file_type();
        Self {
            kind: match kind {
                it if it.is_file() => FileKind::File,
                it if it.is_dir() => FileKind::Folder,
                it if it.is_symlink() => FileKind::Link,
                _ => FileKind::Other,
            },
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.len(),
            modified_unix_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
            access: FileAccess {
                mode: metadata.mode() & PERMISSIONS,
                user: metadata.uid(),
                group: metadata.gid(),
            },
            names: metadata.nlink(),
        }
    }
}

/// Permissions that let only the owner read and write a file.
pub(crate) const OWNER_ALONE: u32 = 0o600;

/// Permission bits of owner, group and others. The mask excludes the set-user-ID bit, so that a
/// file with new content does not run with its owner's rights.
pub(super) const PERMISSIONS: u32 = 0o777;
