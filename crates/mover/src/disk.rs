//! Files of this machine: listings, parts, and what is known of a file.

use std::{
    fs::{File, FileTimes, Metadata},
    io::{self, ErrorKind},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::Path,
    time::{Duration, SystemTime},
};

use ftp::listing::{Entry, Kind, Modified, Precision};

/// What tells one state of a file of this machine from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    pub(crate) size_bytes: u64,
    pub(crate) modified_unix_s: i64,
    pub(crate) modified_ns: i64,
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            size_bytes: metadata.len(),
            modified_unix_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
        }
    }
}

impl Stamp {
    /// Whether the same file is longer `now`.
    pub(crate) fn has_grown(&self, now: &Self) -> bool {
        self.inode == now.inode && self.size_bytes < now.size_bytes
    }
}

/// The state of a file; `None` where there is none.
pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    std::fs::metadata(path).ok().as_ref().map(Stamp::of)
}

/// Whether a file of this size is larger than the whole file system of `path`. Its part would keep the disk full for good.
pub(crate) fn never_fits(path: &Path, size_bytes: u64) -> bool {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let found = nix::sys::statvfs::statvfs(folder.unwrap_or(Path::new(".")));
    found.is_ok_and(|it| it.blocks() * it.fragment_size() < size_bytes)
}

/// Names the time since this machine was started.
pub(crate) fn boot() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u64::from_str_radix(text.replace('-', "").get(..16)?, 16).ok()
}

/// What a path is; `None` where nothing is. Symbolic links are followed.
///
/// # Errors
/// Those of the file system.
pub(crate) fn look(path: &Path) -> io::Result<Option<Entry>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(entry(b"", &metadata))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Hands the entries of a directory to `take`, some at a time, until it says that it wants no more. With `follows_links` a
/// symbolic link is what it leads to, unless that is nothing, or a directory above it.
///
/// # Errors
/// Those of the file system. A file that vanishes meanwhile is none.
pub(crate) fn list(
    path: &Path,
    follows_links: bool,
    mut take: impl FnMut(Vec<Entry>) -> bool,
) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry_there in std::fs::read_dir(path)? {
        let entry_there = entry_there?;
        let name = entry_there.file_name();
        let metadata = match entry_there.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let mut found = entry(name.as_bytes(), &metadata);
        if metadata.is_symlink() {
            let link = entry_there.path();
            match follows_links.then(|| led_to(path, &link)).flatten() {
                Some(metadata) => found = entry(name.as_bytes(), &metadata),
                None => {
                    let target = std::fs::read_link(&link).ok();
                    let target = target.map(|it| it.into_os_string().into_encoded_bytes());
                    found.kind = Kind::Symlink { target };
                }
            }
        }
        entries.push(found);
        if entries.len() == ENTRIES_AT_ONCE && !take(std::mem::take(&mut entries)) {
            return Ok(());
        }
    }
    take(entries);
    Ok(())
}

/// What a link in `directory` leads to; `None` for nothing, and for a directory that the link is in.
fn led_to(directory: &Path, link: &Path) -> Option<Metadata> {
    let metadata = std::fs::metadata(link).ok()?;
    if metadata.is_dir() {
        let target = link.canonicalize().ok()?;
        // Also those above that were reached by a link themselves.
        let mut above = directory
            .ancestors()
            .filter_map(|it| it.canonicalize().ok());
        if above.any(|it| it.starts_with(&target)) {
            return None;
        }
    }
    Some(metadata)
}

/// Makes a symbolic link, in the place of another one if there is one.
///
/// # Errors
/// Those of the file system.
pub(crate) fn make_link(target: &Path, part: &Path, path: &Path) -> io::Result<()> {
    match std::fs::remove_file(part) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(target, part)?;
    if part != path {
        std::fs::rename(part, path)?;
    }
    Ok(())
}

/// Sets the time of a file's last change.
///
/// # Errors
/// Those of the file system.
pub(crate) fn set_modified(file: &File, unix_s: i64) -> io::Result<()> {
    let since = Duration::from_secs(unix_s.unsigned_abs());
    let time = if unix_s >= 0 {
        SystemTime::UNIX_EPOCH + since
    } else {
        SystemTime::UNIX_EPOCH - since
    };
    file.set_times(FileTimes::new().set_modified(time))
}

fn entry(name: &[u8], metadata: &Metadata) -> Entry {
    let kind = if metadata.is_file() {
        Kind::File
    } else if metadata.is_dir() {
        Kind::Directory
    } else if metadata.is_symlink() {
        Kind::Symlink { target: None }
    } else {
        Kind::Other
    };
    Entry {
        name: name.to_vec(),
        size_bytes: metadata.is_file().then_some(metadata.len()),
        kind,
        modified: Some(Modified {
            unix_s: metadata.mtime(),
            precision: Precision::Second,
        }),
    }
}

const ENTRIES_AT_ONCE: usize = 1_000;
