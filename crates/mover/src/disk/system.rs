//! File system as the mover uses it. `machine` implements it for this machine. Tests have an
//! implementation that fails and loses power.
//!
//! Names are resolved from open folders, so that a link that appears meanwhile cannot redirect
//! them.

use std::{fmt::Debug, fs::Metadata, io, os::unix::fs::MetadataExt as _, sync::Arc};

/// A file system. Links in paths that the user names are followed.
pub(crate) trait FileSystem: Debug + Send + Sync {
    /// Opens a folder.
    fn open_folder(&self, path: &[u8]) -> io::Result<Arc<dyn Folder>>;

    /// Returns the attributes of the file to which a path leads.
    fn stat(&self, path: &[u8]) -> io::Result<FileStat>;

    /// Returns the path without links, `.` and `..`.
    fn canonical(&self, path: &[u8]) -> io::Result<Vec<u8>>;

    /// Gives a file a second name. A link is not followed.
    fn hard_link(&self, path: &[u8], new: &[u8]) -> io::Result<()>;

    /// Returns the permissions of a file that a program makes without a choice of its own.
    fn usual_mode(&self) -> u32;

    /// Whether a file belongs to the user of this process.
    fn is_ours(&self, stat: &FileStat) -> bool;

    /// Returns the name of the time since the machine was started.
    fn boot(&self) -> Option<u64>;
}

/// An open folder. Links are followed only with [`LinkPolicy::Follow`].
pub(crate) trait Folder: Debug + Send + Sync {
    /// Opens a folder below this one. `below` contains names with slashes in between.
    fn folder(&self, below: &[u8], links: LinkPolicy) -> io::Result<Arc<dyn Folder>>;

    /// Returns the attributes of a name in this folder.
    fn stat(&self, name: &[u8], links: LinkPolicy) -> io::Result<FileStat>;

    /// Opens a file of this folder.
    fn open(&self, name: &[u8], opening: OpenMode) -> io::Result<Arc<dyn OpenFile>>;

    /// Passes the names in this folder to `take`, until it returns false.
    fn list(&self, take: &mut dyn FnMut(Vec<u8>) -> io::Result<bool>) -> io::Result<()>;

    /// Returns the target of a link.
    fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>>;

    /// Makes a folder.
    fn make_folder(&self, name: &[u8]) -> io::Result<()>;

    /// Makes a link.
    fn make_link(&self, target: &[u8], name: &[u8]) -> io::Result<()>;

    /// Renames a file of this folder. A file with the new name is replaced.
    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()>;

    /// Removes a file or a link, but no folder.
    fn remove_file(&self, name: &[u8]) -> io::Result<()>;

    /// Removes an empty folder.
    fn remove_folder(&self, name: &[u8]) -> io::Result<()>;

    /// Syncs the folder, so that the names in it outlive a power cut.
    fn sync(&self) -> io::Result<()>;

    /// Returns the permissions of a file that a program makes in this folder without a choice of
    /// its own. `None` if the folder has no default access control list.
    fn inherited_mode(&self) -> Option<u32> {
        None
    }
}

/// An open file.
pub(crate) trait OpenFile: Debug + Send + Sync {
    /// Returns the present attributes.
    fn stat(&self) -> io::Result<FileStat>;

    /// Reads from an offset. Returns 0 at the end.
    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<usize>;

    /// Writes all bytes at an offset.
    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()>;

    /// Cuts or extends the file.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Sets the time of the last change.
    fn set_modified(&self, unix_s: i64) -> io::Result<()>;

    /// Sets permissions, and where the system permits it, owner and group.
    fn set_access(&self, access: FileAccess) -> io::Result<()>;

    /// Syncs the file, so that its content outlives a power cut.
    fn sync(&self) -> io::Result<()>;

    /// Syncs the file as [`sync`](Self::sync) does, except for the time of the last change.
    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    /// Locks the file until it is closed. `Some(false)` if another process, or another opening of
    /// the file, has the lock. `None` if the file system has no locks.
    fn try_lock(&self) -> io::Result<Option<bool>>;

    /// Whether any process has the file open for writing. `None` if the system gives no answer.
    fn is_being_written(&self) -> Option<bool>;
}

/// Whether links are followed below a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkPolicy {
    Refuse,
    Follow,
}

/// Mode in which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// For reading.
    Read(LinkPolicy),
    /// For writing, as a new file that only its owner may read.
    New,
    /// For writing, as an existing file.
    Write,
    /// For writing, whether the file exists or not.
    InPlace,
}

/// Permissions, owner and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileAccess {
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// Kind of the file with a name.
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
    /// Number of names of the file.
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

/// Permissions of a file for its owner alone.
pub(crate) const OWNER_ALONE: u32 = 0o600;

/// Permissions of owner, group and others. A file with new content does not run as its owner.
pub(super) const PERMISSIONS: u32 = 0o777;
