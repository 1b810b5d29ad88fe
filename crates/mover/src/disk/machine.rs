//! The file system of this machine. All paths are resolved from open folder descriptors.

use std::{
    ffi::OsStr,
    fs::{File, FileTimes, Permissions, TryLockError},
    io::{self, ErrorKind},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            fs::{FileExt as _, PermissionsExt as _, fchown},
        },
    },
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::{
    lease,
    system::{
        FileAccess, FileKind, FileStat, FileSystem, Folder, LinkPolicy, OWNER_ALONE, OpenFile,
        OpenMode, PERMISSIONS,
    },
};

/// The file system of this machine.
#[derive(Debug)]
pub(crate) struct MachineFileSystem;

#[derive(Debug)]
struct MachineFolder(OwnedFd);

#[derive(Debug)]
struct MachineFile(File);

impl FileSystem for MachineFileSystem {
    fn open_folder(&self, path: &[u8]) -> io::Result<Arc<dyn Folder>> {
        let folder = fs::openat(CWD, or_here(path), FOLDER, Mode::empty())?;
        Ok(Arc::new(MachineFolder(folder)))
    }

    fn stat(&self, path: &[u8]) -> io::Result<FileStat> {
        std::fs::metadata(path_of(path))
            .as_ref()
            .map(FileStat::of)
            .map_err(copied)
    }

    fn canonical(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let path = std::fs::canonicalize(path_of(path))?;
        Ok(path.into_os_string().into_vec())
    }

    fn hard_link(&self, path: &[u8], new: &[u8]) -> io::Result<()> {
        std::fs::hard_link(path_of(path), path_of(new))
    }

    fn usual_mode(&self) -> u32 {
        // The system call that returns the umask also changes the umask of all threads. Therefore
        // the umask is read from `/proc`.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut lines = status.lines();
        let mask = lines.find_map(|it| it.strip_prefix("Umask:"));
        let mask = mask.and_then(|it| u32::from_str_radix(it.trim(), 8).ok());
        0o666 & !mask.unwrap_or(UMASK)
    }

    fn is_ours(&self, stat: &FileStat) -> bool {
        stat.access.user == nix::unistd::geteuid().as_raw()
    }

    fn boot(&self) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        u64::from_str_radix(text.replace('-', "").get(..16)?, 16).ok()
    }
}

impl Folder for MachineFolder {
    fn folder(&self, below: &[u8], links: LinkPolicy) -> io::Result<Arc<dyn Folder>> {
        let folder = match links {
            LinkPolicy::Follow => fs::openat(&self.0, or_here(below), FOLDER, Mode::empty())?,
            LinkPolicy::Refuse => beneath(&self.0, below)?,
        };
        Ok(Arc::new(Self(folder)))
    }

    fn stat(&self, name: &[u8], links: LinkPolicy) -> io::Result<FileStat> {
        let flags = match links {
            LinkPolicy::Follow => AtFlags::empty(),
            LinkPolicy::Refuse => AtFlags::SYMLINK_NOFOLLOW,
        };
        Ok(stat_of(&fs::statat(&self.0, name, flags)?))
    }

    fn open(&self, name: &[u8], opening: OpenMode) -> io::Result<Arc<dyn OpenFile>> {
        // Opening a pipe must not block if no process has opened the other end.
        let common = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let everybody = Mode::from_raw_mode(0o666);
        let (flags, mode) = match opening {
            OpenMode::Read(LinkPolicy::Follow) => (OFlags::RDONLY, Mode::empty()),
            OpenMode::Read(LinkPolicy::Refuse) => {
                (OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty())
            }
            OpenMode::New => (
                OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW,
                Mode::from_raw_mode(OWNER_ALONE),
            ),
            OpenMode::Write => (OFlags::RDWR | OFlags::NOFOLLOW, Mode::empty()),
            OpenMode::InPlace => (
                OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW,
                everybody,
            ),
        };
        let file = fs::openat(&self.0, name, flags | common, mode).map_err(of_link)?;
        Ok(Arc::new(MachineFile(file.into())))
    }

    fn list(&self, take: &mut dyn FnMut(Vec<u8>) -> io::Result<bool>) -> io::Result<()> {
        for entry in fs::Dir::read_from(self.readable()?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && !take(name.to_vec())? {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(fs::readlinkat(&self.0, name, Vec::new())?.into_bytes())
    }

    fn make_folder(&self, name: &[u8]) -> io::Result<()> {
        Ok(fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777))?)
    }

    fn make_link(&self, target: &[u8], name: &[u8]) -> io::Result<()> {
        Ok(fs::symlinkat(target, &self.0, name)?)
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(fs::renameat(&self.0, from, &self.0, to)?)
    }

    fn remove_file(&self, name: &[u8]) -> io::Result<()> {
        Ok(fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    fn remove_folder(&self, name: &[u8]) -> io::Result<()> {
        Ok(fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    fn sync(&self) -> io::Result<()> {
        let folder = match self.readable() {
            Ok(folder) => folder,
            // A folder that permits only the creation of files cannot be synced.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
            Err(error) => return Err(error),
        };
        match fs::fsync(folder) {
            // Some file systems cannot sync folders.
            Err(Errno::INVAL | Errno::ROFS | Errno::NOTSUP) => Ok(()),
            synced => Ok(synced?),
        }
    }

    fn inherited_mode(&self) -> Option<u32> {
        // A descriptor opened with `O_PATH` gives no access to attributes.
        let folder = self.readable().ok()?;
        let mut list = [0; LIST_BYTES_MAX];
        let length = fs::fgetxattr(&folder, DEFAULT_LIST, &mut list[..]).ok()?;
        mode_by_list(list.get(..length)?)
    }
}

impl MachineFolder {
    /// Opens the same folder again with permission to read entries. The first descriptor needs only
    /// permission to search the folder.
    fn readable(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(fs::openat(&self.0, ".", flags, Mode::empty())?)
    }
}

impl OpenFile for MachineFile {
    fn stat(&self) -> io::Result<FileStat> {
        self.0.metadata().as_ref().map(FileStat::of).map_err(copied)
    }

    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(bytes, offset_bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset_bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn set_modified(&self, unix_s: i64) -> io::Result<()> {
        let since = Duration::from_secs(unix_s.unsigned_abs());
        let time = if unix_s >= 0 {
            SystemTime::UNIX_EPOCH.checked_add(since)
        } else {
            SystemTime::UNIX_EPOCH.checked_sub(since)
        };
        let time = time.ok_or(ErrorKind::InvalidInput)?;
        self.0.set_times(FileTimes::new().set_modified(time))
    }

    fn set_access(&self, access: FileAccess) -> io::Result<()> {
        let now = self.stat()?.access;
        let mut mode = access.mode & PERMISSIONS;
        if (now.user, now.group) != (access.user, access.group) {
            let has_owner = fchown(&self.0, Some(access.user), Some(access.group)).is_ok();
            let has_group = has_owner
                || now.group == access.group
                || fchown(&self.0, None, Some(access.group)).is_ok();
            if !has_group {
                // The new file has another group. That group gets only the permissions that all
                // users have.
                mode = mode & !0o070 | mode & (mode & 0o007) << 3;
            }
        }
        // A mount that determines the permissions itself refuses every change, even a change to the
        // present value.
        if now.mode & PERMISSIONS == mode {
            return Ok(());
        }
        self.0.set_permissions(Permissions::from_mode(mode))
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn try_lock(&self) -> io::Result<Option<bool>> {
        match self.0.try_lock() {
            Ok(()) => Ok(Some(true)),
            Err(TryLockError::WouldBlock) => Ok(Some(false)),
            Err(TryLockError::Error(error)) => match Errno::from_io_error(&error) {
                // A network file system returns `ENOLCK` if its server has no lock service.
                Some(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK) => Ok(None),
                _ => Err(error),
            },
        }
    }

    fn is_being_written(&self) -> Option<bool> {
        lease::is_being_written(&self.0)
    }
}

/// Opens a folder below another folder. Symbolic links are not followed, and `..` is refused.
fn beneath(folder: &OwnedFd, below: &[u8]) -> io::Result<OwnedFd> {
    if has_openat2() {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        for _ in 0..ATTEMPTS_MAX {
            match fs::openat2(folder, or_here(below), FOLDER, Mode::empty(), resolve) {
                // A rename in the tree, or a signal, has interrupted the call.
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => return opened.map_err(of_link),
            }
        }
    }
    by_names(folder, below)
}

/// Does the work of [`beneath`] with one open call for each name, for kernels without `openat2`.
fn by_names(folder: &OwnedFd, below: &[u8]) -> io::Result<OwnedFd> {
    let mut folder = folder.as_fd().try_clone_to_owned()?;
    for name in below.split(|it| *it == b'/') {
        match name {
            b"" | b"." => continue,
            b".." => return Err(of_link(Errno::XDEV)),
            _ => {}
        }
        let flags = FOLDER | OFlags::NOFOLLOW;
        folder = fs::openat(&folder, name, flags, Mode::empty()).map_err(of_link)?;
    }
    Ok(folder)
}

/// Returns whether `openat2` works. The kernel must support it, and no system call filter may
/// refuse it.
fn has_openat2() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| fs::openat2(CWD, ".", FOLDER, Mode::empty(), ResolveFlags::empty()).is_ok())
}

/// Converts an error. If the error was caused by a symbolic link, the new error states that the
/// link was refused.
fn of_link(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::XDEV => {
            io::Error::other("there is a symbolic link on the way, which is not followed")
        }
        error => error.into(),
    }
}

fn stat_of(stat: &fs::Stat) -> FileStat {
    FileStat {
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Folder,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        },
        device: stat.st_dev,
        inode: stat.st_ino,
        size_bytes: u64::try_from(stat.st_size).unwrap_or_default(),
        modified_unix_s: stat.st_mtime,
        modified_ns: i64::try_from(stat.st_mtime_nsec).unwrap_or_default(),
        access: FileAccess {
            mode: stat.st_mode & PERMISSIONS,
            user: stat.st_uid,
            group: stat.st_gid,
        },
        #[allow(
            clippy::useless_conversion,
            reason = "the type differs between processors"
        )]
        names: u64::from(stat.st_nlink),
    }
}

fn path_of(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(or_here(path)))
}

/// Returns `.`, the working directory, if the path is empty. Returns any other path unchanged.
fn or_here(path: &[u8]) -> &[u8] {
    match path {
        b"" => b".",
        path => path,
    }
}

/// Copies an error of the operating system.
fn copied(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => error.kind().into(),
    }
}

/// Returns the permissions of a new file according to a default access control list.
///
/// `list` has the format in which the kernel stores the list: a version, followed by entries. Each
/// entry contains a tag, permissions and an id.
fn mode_by_list(list: &[u8]) -> Option<u32> {
    let (version, entries) = list.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != LIST_VERSION {
        return None;
    }
    let permissions = |tag: u16| {
        let mut entries = entries.chunks_exact(LIST_ENTRY_BYTES);
        let entry = entries.find(|it| u16::from_le_bytes([it[0], it[1]]) == tag)?;
        Some(u32::from(u16::from_le_bytes([entry[2], entry[3]])) & 0o6)
    };
    let group = permissions(MASK_TAG).or_else(|| permissions(GROUP_TAG))?;
    Some(permissions(OWNER_TAG)? << 6 | group << 3 | permissions(OTHERS_TAG)?)
}

/// Extended attribute of a folder that contains the access control list for new files.
const DEFAULT_LIST: &str = "system.posix_acl_default";

const LIST_BYTES_MAX: usize = 4_096;

const LIST_VERSION: u32 = 2;

const LIST_ENTRY_BYTES: usize = 8;

const OWNER_TAG: u16 = 0x01;

const GROUP_TAG: u16 = 0x04;

const MASK_TAG: u16 = 0x10;

const OTHERS_TAG: u16 = 0x20;

/// Umask that is assumed if the kernel does not show the umask of the process. With this umask,
/// only the owner can access a new file.
const UMASK: u32 = 0o077;

/// Flags for opening a folder at which path resolution starts.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Maximum number of attempts with `openat2`, which fails if a path is renamed at the same time.
/// After the last attempt, the names are resolved one by one.
const ATTEMPTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_resolved_alike_with_and_without_openat2() {
        let folder = tempfile::tempdir().expect("room");
        std::fs::create_dir_all(folder.path().join("a/b")).expect("room");
        std::os::unix::fs::symlink("b", folder.path().join("a/inside")).expect("room");
        std::os::unix::fs::symlink("/", folder.path().join("a/outside")).expect("room");
        let path = folder.path().as_os_str().as_bytes();
        let root = fs::openat(CWD, path, FOLDER, Mode::empty()).expect("a folder");
        for (below, is_open) in [
            ("a/b", true),
            ("a/./b", true),
            ("a/inside", false),
            ("a/outside/etc", false),
            ("../..", false),
            ("a/missing", false),
        ] {
            for open in [beneath, by_names] {
                assert_eq!(open(&root, below.as_bytes()).is_ok(), is_open, "{below}");
            }
        }
    }
}
