//! Local files: listings, parts (incomplete files), and attributes of files.
//!
//! Paths below a job's roots are resolved from a descriptor of the root. Symbolic links below the
//! root are followed only if the job follows the links of its source. The root itself may be a
//! link, because the user has named the root. An incomplete file has a temporary name. The mover
//! creates that file itself, and never opens it through a link.

#[cfg(test)]
pub(crate) mod faulty;
mod inherited;
mod lease;
mod machine;
mod parts;
pub(crate) mod store;
mod syncs;
pub(crate) mod system;

use std::{
    collections::{HashMap, HashSet},
    io::{self, ErrorKind},
    path::Path,
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

use ftp::listing::{EntryKind, ListingEntry, ModifiedTime, TimePrecision};
use tokio::task::spawn_blocking;

pub(crate) use self::machine::MachineFileSystem;
use self::{
    inherited::InheritedModes,
    parts::OpenParts,
    syncs::SyncQueue,
    system::{
        FileAccess, FileKind, FileStat, FileSystem, Folder, LinkPolicy, OWNER_ALONE, OpenFile,
        OpenMode,
    },
};
use crate::names::{join, last_name, local, parent};

/// Source or destination of a job on this machine: the files below a set of roots.
#[derive(Debug)]
pub(crate) struct LocalFiles {
    system: Arc<dyn FileSystem>,
    roots: HashMap<Vec<u8>, LocalRoot>,
    /// Whether reads follow symbolic links below the roots. Writes and removals never follow links.
    links: LinkPolicy,
    /// Files that the job has read. `None` if the job keeps its source files.
    read: Option<Mutex<HashMap<Vec<u8>, Stamp>>>,
    /// Files that have received their final names and were synced. `None` if the job keeps its
    /// source files.
    synced: Option<Mutex<HashSet<Vec<u8>>>>,
    syncs: Arc<SyncQueue>,
    /// Folders whose names in their parent folders were synced, or will be synced together with the
    /// next file.
    folders: Mutex<HashSet<Vec<u8>>>,
    parts: OpenParts,
    /// Permissions of a new file in a folder without a default access control list.
    usual_mode: OnceLock<u32>,
    inherited_modes: InheritedModes,
}

/// Role of the files in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilesRole {
    /// The job reads the files.
    Source {
        /// Whether the job follows symbolic links below the roots.
        follows_links: bool,
        /// Whether the job removes each file after copying it.
        is_removed: bool,
    },
    /// The job writes the files.
    Destination {
        /// Whether the job removes the source of each written file.
        removes_sources: bool,
    },
}

/// A root of the job. Each field is set at its first use.
#[derive(Debug, Default)]
struct LocalRoot {
    folder: OnceLock<Arc<dyn Folder>>,
    file: OnceLock<(Arc<dyn Folder>, Vec<u8>)>,
}

/// Resolved position of a path: the open folder and the last name of the path.
pub(crate) struct FolderEntry {
    folder: Arc<dyn Folder>,
    name: Vec<u8>,
}

/// Attributes that distinguish two versions of a local file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    pub(crate) size_bytes: u64,
    pub(crate) modified_unix_s: i64,
    pub(crate) modified_ns: i64,
}

/// Result of removing a part file that an earlier run may have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartRemoval {
    /// No file has the part file's name.
    Missing,
    /// The part file was removed.
    Removed,
    /// The part file was kept, because a process writes to the part or another user owns it.
    Kept,
}

/// Result of removing a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceRemoval {
    /// The source was removed.
    Removed,
    /// The source was kept. The name leads to another file now, or a process is writing to the
    /// file.
    Kept,
}

impl FolderEntry {
    /// Returns whether the name still leads to `file`.
    fn has(&self, file: &dyn OpenFile) -> io::Result<bool> {
        let ours = file.stat()?;
        match self.folder.stat(&self.name, LinkPolicy::Refuse) {
            Ok(there) => Ok((ours.device, ours.inode) == (there.device, there.inode)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Stamp {
    pub(crate) fn of(stat: &FileStat) -> Self {
        Self {
            device: stat.device,
            inode: stat.inode,
            size_bytes: stat.size_bytes,
            modified_unix_s: stat.modified_unix_s,
            modified_ns: stat.modified_ns,
        }
    }

    /// Returns whether `now` describes the same file with a larger size.
    pub(crate) fn has_grown(&self, now: &Self) -> bool {
        (self.device, self.inode) == (now.device, now.inode) && self.size_bytes < now.size_bytes
    }
}

impl LocalFiles {
    /// Creates a [`LocalFiles`] for the files below `roots`.
    pub(crate) fn new(
        system: Arc<dyn FileSystem>,
        roots: impl IntoIterator<Item = Vec<u8>>,
        side: FilesRole,
    ) -> Arc<Self> {
        let (follows_links, removes_read, removes_sources) = match side {
            FilesRole::Source {
                follows_links,
                is_removed,
            } => (follows_links, is_removed, false),
            FilesRole::Destination { removes_sources } => (false, false, removes_sources),
        };
        Arc::new(Self {
            system,
            roots: roots
                .into_iter()
                .map(|it| (it, LocalRoot::default()))
                .collect(),
            links: match follows_links {
                true => LinkPolicy::Follow,
                false => LinkPolicy::Refuse,
            },
            read: removes_read.then(Mutex::default),
            synced: removes_sources.then(Mutex::default),
            syncs: Arc::default(),
            folders: Mutex::default(),
            parts: OpenParts::default(),
            usual_mode: OnceLock::new(),
            inherited_modes: InheritedModes::default(),
        })
    }

    /// Creates a [`LocalFiles`] that is used without a job and has no roots.
    pub(crate) fn without_roots() -> Arc<Self> {
        let side = FilesRole::Destination {
            removes_sources: false,
        };
        Self::new(Arc::new(MachineFileSystem), [], side)
    }

    /// Returns a number that identifies the present boot of the machine.
    pub(crate) fn boot(&self) -> Option<u64> {
        self.system.boot()
    }

    /// Returns the attributes of a path as a listing entry, or `None` if the path does not exist.
    /// If a root is a symbolic link, the link is followed.
    pub(crate) fn look(&self, path: &[u8]) -> io::Result<Option<ListingEntry>> {
        Ok(self.stat(path)?.map(|it| entry(b"", &it)))
    }

    /// Returns the version of a file, or `None` if the path does not lead to a regular file.
    pub(crate) fn stamp(&self, path: &[u8]) -> Option<Stamp> {
        let stat = self.stat(path).ok().flatten();
        let file = stat.filter(|it| it.kind == FileKind::File);
        file.as_ref().map(Stamp::of)
    }

    fn stat(&self, path: &[u8]) -> io::Result<Option<FileStat>> {
        let found = match self.below_root(path) {
            None => self.system.stat(path),
            Some(_) => self
                .place(path, self.links)
                .and_then(|it| it.folder.stat(&it.name, self.links)),
        };
        match found {
            Ok(stat) => Ok(Some(stat)),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, path: &[u8]) -> io::Result<Arc<dyn OpenFile>> {
        let place = self.source_place(path)?;
        let file = place.folder.open(&place.name, OpenMode::Read(self.links))?;
        let stat = file.stat()?;
        if stat.kind != FileKind::File {
            return Err(io::Error::other("it is no regular file"));
        }
        if let Some(read) = &self.read {
            let mut read = read.lock().expect("nobody panics with it");
            read.insert(path.to_vec(), Stamp::of(&stat));
        }
        Ok(file)
    }

    /// Returns whether a file that the job will remove is open for writing. Removing such a file
    /// would lose the bytes that are written later.
    pub(crate) fn is_being_written(&self, file: &dyn OpenFile) -> bool {
        self.read.is_some() && file.is_being_written() == Some(true)
    }

    /// Passes the entries of a directory to `take` in batches, until `take` returns false.
    ///
    /// If `follows_links` is true, a symbolic link is listed as its target. The link itself is
    /// listed if the target does not exist or is a directory above the link.
    ///
    /// # Errors
    /// An error of the file system. A file that vanishes during the listing causes no error.
    pub(crate) fn list(
        &self,
        path: &[u8],
        follows_links: bool,
        mut take: impl FnMut(Vec<ListingEntry>) -> bool,
    ) -> io::Result<()> {
        let folder = self.folder(path, self.links)?;
        let mut entries = Vec::new();
        folder.list(&mut |name| {
            let stat = match folder.stat(&name, LinkPolicy::Refuse) {
                Ok(stat) => stat,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
                Err(error) => return Err(error),
            };
            let mut found = entry(&name, &stat);
            if stat.kind == FileKind::Link {
                let led_to = || self.led_to(path, &*folder, &name);
                match follows_links.then(led_to).flatten() {
                    Some(stat) => found = entry(&name, &stat),
                    None => {
                        let target = folder.read_link(&name).ok();
                        found.kind = EntryKind::Symlink { target };
                    }
                }
            }
            entries.push(found);
            Ok(entries.len() < ENTRIES_AT_ONCE || take(std::mem::take(&mut entries)))
        })?;
        take(entries);
        Ok(())
    }

    /// Returns the attributes of a link's target. Returns `None` if the target does not exist, or
    /// if the target is a directory that contains the link.
    fn led_to(&self, directory: &[u8], folder: &dyn Folder, name: &[u8]) -> Option<FileStat> {
        let stat = folder.stat(name, LinkPolicy::Follow).ok()?;
        if stat.kind == FileKind::Folder {
            let target = local(&self.system.canonical(&join(directory, name)).ok()?);
            // The comparison includes directories above that were reached through a link.
            let directory = local(directory);
            let mut above = directory.ancestors().filter_map(|it| {
                let path = it.as_os_str().as_encoded_bytes();
                self.system.canonical(path).ok().map(|it| local(&it))
            });
            if above.any(|it| it.starts_with(&target)) {
                return None;
            }
        }
        Some(stat)
    }

    /// Creates a directory. If the path is below a root, only its last directory is created. If the
    /// path is below no root, the user has named the path, and missing parent directories are also
    /// created.
    pub(crate) fn make_folder(&self, path: &[u8]) -> io::Result<()> {
        if self.below_root(path).is_some() {
            let place = self.place(path, LinkPolicy::Refuse)?;
            return match place.folder.make_folder(&place.name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    let there = place.folder.stat(&place.name, LinkPolicy::Refuse)?;
                    if there.kind == FileKind::Folder {
                        Ok(())
                    } else {
                        Err(error)
                    }
                }
                made => {
                    self.syncs.changed(parent(path).unwrap_or_default());
                    made
                }
            };
        }
        match self.system.open_folder(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => return opened.map(drop),
        }
        let above = parent(path).unwrap_or_default();
        if !above.is_empty() {
            self.make_folder(above)?;
        }
        let folder = self.system.open_folder(above)?;
        match folder.make_folder(&last_name(path)) {
            // The existing entry must be a folder. A file or a link without a target causes an
            // error.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.system.open_folder(path).map(drop)
            }
            made => {
                self.syncs.changed(above);
                made
            }
        }
    }

    /// Creates a part (an incomplete file) and locks it. Only the part's owner may read it. If an
    /// ended process left a part under the same name, that part is removed first.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if a process is writing a part of that name, or if the file of
    /// that name belongs to another user.
    pub(crate) fn create_part(&self, part: &[u8]) -> io::Result<Arc<dyn OpenFile>> {
        self.create_part_in(&self.part_place(part)?, part)
    }

    /// Resolves the path of a part file once, for several operations in succession.
    pub(crate) fn part_place(&self, part: &[u8]) -> io::Result<FolderEntry> {
        self.place(part, LinkPolicy::Refuse)
    }

    /// Creates a part file as [`create_part`](Self::create_part) does, with a path that is already
    /// resolved.
    pub(crate) fn create_part_in(
        &self,
        place: &FolderEntry,
        part: &[u8],
    ) -> io::Result<Arc<dyn OpenFile>> {
        for _ in 0..CREATIONS_MAX {
            match place.folder.open(&place.name, OpenMode::New) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if self.remove_left(place, false)? == PartRemoval::Kept {
                        return Err(error);
                    }
                }
                opened => {
                    let file = opened?;
                    // Before this process locked the part, another process may have treated the
                    // part as a leftover and removed it.
                    if file.try_lock()? != Some(false) && place.has(&*file)? {
                        return Ok(self.parts.add(part, file));
                    }
                }
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Removes the part file that an ended process has left.
    ///
    /// Locked parts, other users' parts and directories are kept. If `is_recorded` is true, the
    /// journal contains the part's name. In that case the part is removed even if another user owns
    /// it or the file system has no locks.
    pub(crate) fn remove_left_part(
        &self,
        part: &[u8],
        is_recorded: bool,
    ) -> io::Result<PartRemoval> {
        match self.place(part, LinkPolicy::Refuse) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(PartRemoval::Missing)
            }
            place => self.remove_left(&place?, is_recorded),
        }
    }

    fn remove_left(&self, place: &FolderEntry, is_recorded: bool) -> io::Result<PartRemoval> {
        let removed = || -> io::Result<PartRemoval> {
            let stat = place.folder.stat(&place.name, LinkPolicy::Refuse)?;
            let is_ours = is_recorded || self.system.is_ours(&stat);
            match stat.kind {
                FileKind::File if is_ours => {
                    let file = place
                        .folder
                        .open(&place.name, OpenMode::Read(LinkPolicy::Refuse))?;
                    let is_free = file.try_lock()?.unwrap_or(is_recorded);
                    if !is_free || !place.has(&*file)? {
                        return Ok(PartRemoval::Kept);
                    }
                }
                // The link is removed without being followed.
                FileKind::Link if is_ours => {}
                _ => return Ok(PartRemoval::Kept),
            }
            place.folder.remove_file(&place.name)?;
            Ok(PartRemoval::Removed)
        };
        match removed() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(PartRemoval::Missing),
            removed => removed,
        }
    }

    /// Opens an existing part file and locks it. This process may open the part several times. The
    /// operating system reports disk errors to each open file separately.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if another process is writing to the part.
    pub(crate) fn open_part(&self, part: &[u8]) -> io::Result<Arc<dyn OpenFile>> {
        self.parts
            .open(part, &self.place(part, LinkPolicy::Refuse)?)
    }

    /// Opens a file that is written directly under its final name.
    pub(crate) fn open_in_place(&self, path: &[u8]) -> io::Result<Arc<dyn OpenFile>> {
        let place = match self.below_root(path) {
            Some(_) => self.place(path, LinkPolicy::Refuse)?,
            None => self.source_place(path)?,
        };
        let file = place.folder.open(&place.name, OpenMode::InPlace)?;
        self.syncs.changed(parent(path).unwrap_or_default());
        Ok(file)
    }

    /// Sets the modification time and the permissions of a complete part file.
    ///
    /// If the part replaces an existing file, it receives that file's permissions. Otherwise it
    /// receives the usual permissions. When the function returns, the content survives a power cut,
    /// so the part may be renamed.
    pub(crate) fn complete_part(
        &self,
        file: &dyn OpenFile,
        part: &[u8],
        path: &[u8],
        modified_unix_s: Option<i64>,
    ) -> io::Result<()> {
        match part == path {
            true => Self::sync_part(file, modified_unix_s),
            false => self.complete_part_in(&self.part_place(part)?, file, path, modified_unix_s),
        }
    }

    /// Completes a part file as [`complete_part`](Self::complete_part) does, with a path that is
    /// already resolved.
    pub(crate) fn complete_part_in(
        &self,
        place: &FolderEntry,
        file: &dyn OpenFile,
        path: &[u8],
        modified_unix_s: Option<i64>,
    ) -> io::Result<()> {
        match place.folder.stat(&last_name(path), LinkPolicy::Refuse) {
            Ok(replaced) if replaced.kind == FileKind::File => {
                file.set_access(replaced.access)?;
            }
            _ => {
                let access = file.stat()?.access;
                // If the mount determines the permissions, the part's permissions differ from
                // `OWNER_ALONE`. The part then keeps its permissions.
                if access.mode == OWNER_ALONE {
                    let folder = parent(path).unwrap_or_default();
                    #[allow(clippy::disallowed_methods, reason = "drives disks")]
                    let now = Instant::now();
                    let ask = || place.folder.inherited_mode();
                    let mode = self.inherited_modes.mode(folder, now, ask);
                    let usual = || *self.usual_mode.get_or_init(|| self.system.usual_mode());
                    let mode = mode.unwrap_or_else(usual);
                    match file.set_access(FileAccess { mode, ..access }) {
                        Err(error) if is_refusal(&error) => {}
                        set => set?,
                    }
                }
            }
        }
        Self::sync_part(file, modified_unix_s)
    }

    fn sync_part(file: &dyn OpenFile, modified_unix_s: Option<i64>) -> io::Result<()> {
        if let Some(unix_s) = modified_unix_s {
            file.set_modified(unix_s)?;
        }
        // The content reaches the disk before the file gets its name, so that a power cut cannot
        // leave an incomplete file.
        file.sync()
    }

    /// Renames a complete part file to its final name. The name survives a power cut once
    /// [`named`](Self::named) has returned.
    pub(crate) fn name_part(&self, part: &[u8], path: &[u8]) -> io::Result<()> {
        if part == path {
            return Ok(());
        }
        self.name_part_in(&self.part_place(part)?, path)
    }

    /// Renames a part file as [`name_part`](Self::name_part) does, with a path that is already
    /// resolved.
    pub(crate) fn name_part_in(&self, place: &FolderEntry, path: &[u8]) -> io::Result<()> {
        place.folder.rename(&place.name, &last_name(path))
    }

    /// Waits until the name of a file is on the disk, so that a power cut cannot destroy it.
    pub(crate) async fn named(self: &Arc<Self>, path: &[u8]) -> io::Result<()> {
        let files = self.clone();
        let sync = move |folder: &[u8]| files.folder(folder, LinkPolicy::Refuse)?.sync();
        self.note_folders(path);
        self.syncs
            .done(parent(path).unwrap_or_default(), sync)
            .await?;
        if let Some(synced) = &self.synced {
            let mut synced = synced.lock().expect("nobody panics with it");
            synced.insert(path.to_vec());
        }
        Ok(())
    }

    /// Schedules one sync of each folder above a file. Other programs created these folders, so it
    /// is unknown whether their names are on the disk.
    fn note_folders(&self, path: &[u8]) {
        let mut folders = self.folders.lock().expect("nobody panics with it");
        let mut folder = parent(path);
        while let Some(path) =
            folder.filter(|it| self.below_root(it).is_some() || self.roots.contains_key(*it))
        {
            if !folders.insert(path.to_vec()) {
                break;
            }
            folder = parent(path);
            self.syncs.changed(folder.unwrap_or_default());
        }
    }

    /// Waits until a file is on the disk, so that a power cut cannot destroy it. Another process
    /// may have written the file. Afterwards the caller may remove the file's source.
    pub(crate) async fn kept_for_good(self: &Arc<Self>, path: &[u8]) -> io::Result<()> {
        if let Some(synced) = &self.synced
            && synced.lock().expect("nobody panics with it").remove(path)
        {
            return Ok(());
        }
        let (files, ours) = (self.clone(), path.to_vec());
        let sync = move || match files.open(&ours) {
            Ok(file) => file.sync().map(|()| true),
            // The destination has received the file before, but a program may have moved the file
            // away since.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        let is_there = spawn_blocking(sync)
            .await
            .expect("disk work does not panic")?;
        if is_there {
            self.named(path).await?;
            // The entry is no longer needed, because each file is queried only once.
            if let Some(synced) = &self.synced {
                synced.lock().expect("nobody panics with it").remove(path);
            }
        }
        Ok(())
    }

    /// Removes a part file if the part's name still leads to `file`.
    pub(crate) fn remove_part(&self, part: &[u8], file: &dyn OpenFile) -> io::Result<()> {
        let place = self.place(part, LinkPolicy::Refuse)?;
        match place.has(file)? {
            true => place.folder.remove_file(&place.name),
            false => Ok(()),
        }
    }

    /// Removes a file or a symbolic link. Directories are refused.
    pub(crate) fn remove(&self, path: &[u8]) -> io::Result<()> {
        let place = self.place(path, LinkPolicy::Refuse)?;
        place.folder.remove_file(&place.name)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_folder(&self, path: &[u8]) -> io::Result<()> {
        let place = self.place(path, LinkPolicy::Refuse)?;
        place.folder.remove_folder(&place.name)
    }

    /// Removes a source file if it is unchanged, no process is writing to it, and `is_taken`
    /// returns true for it. Only `is_taken` can detect changes of a file that an earlier run has
    /// read.
    pub(crate) fn remove_source(
        &self,
        path: &[u8],
        is_taken: impl FnOnce(&ListingEntry) -> bool,
    ) -> io::Result<SourceRemoval> {
        let stamp = self.read.as_ref().and_then(|read| {
            let mut read = read.lock().expect("nobody panics with it");
            read.remove(path)
        });
        let found = self
            .place_of_source(path, LinkPolicy::Refuse)
            .and_then(|place| {
                let stat = place.folder.stat(&place.name, LinkPolicy::Refuse)?;
                Ok((place, stat))
            });
        let (place, stat) = match found {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(SourceRemoval::Removed),
            // The job follows links, and has read this file through a link.
            Err(_) if self.links == LinkPolicy::Follow => return Ok(SourceRemoval::Kept),
            Err(error) => return Err(error),
        };
        // If a file has grown since it was copied, it differs from the copy, even if a later read
        // saw its present state.
        let is_read = stamp.is_none_or(|it| it == Stamp::of(&stat));
        let is_same = is_read && is_taken(&entry(b"", &stat));
        if !is_same || stat.kind != FileKind::File {
            return Ok(SourceRemoval::Kept);
        }
        // If the file cannot be opened, this check for writers is skipped. In that case, the job
        // cannot have read the file either.
        if let Ok(file) = place
            .folder
            .open(&place.name, OpenMode::Read(LinkPolicy::Refuse))
        {
            let now = file.stat()?;
            let is_other = Stamp::of(&now) != Stamp::of(&stat);
            if is_other || file.is_being_written() == Some(true) {
                return Ok(SourceRemoval::Kept);
            }
        }
        place.folder.remove_file(&place.name)?;
        Ok(SourceRemoval::Removed)
    }

    /// Creates a symbolic link. An existing link of the same name is replaced.
    pub(crate) fn make_link(&self, target: &[u8], part: &[u8], path: &[u8]) -> io::Result<()> {
        let place = self.place(part, LinkPolicy::Refuse)?;
        if self.remove_left(&place, false)? == PartRemoval::Kept {
            return Err(ErrorKind::AlreadyExists.into());
        }
        place.folder.make_link(target, &place.name)?;
        self.name_part(part, path)
    }

    /// Returns the root above a path, and the path relative to that root. Returns `None` for a root
    /// itself and for a path that is below no root.
    fn below_root<'a>(&'a self, path: &'a [u8]) -> Option<(&'a [u8], &'a LocalRoot, &'a [u8])> {
        let slashes = (0..path.len()).rev().filter(|at| path[*at] == b'/');
        let ends = slashes.flat_map(|at| [at + 1, at]);
        let is_relative = !path.starts_with(b"/") && !path.is_empty();
        let mut ends = ends.chain(is_relative.then_some(0));
        ends.find_map(|end| {
            let (above, rest) = path.split_at(end);
            let rest = &rest[rest.iter().take_while(|it| **it == b'/').count()..];
            let root = self.roots.get(above)?;
            (!rest.is_empty()).then_some((above, root, rest))
        })
    }

    /// Opens the folder that contains a path. If the path is below no root, the user has named the
    /// path, and links are followed.
    fn place(&self, path: &[u8], links: LinkPolicy) -> io::Result<FolderEntry> {
        let Some((root_path, root, rest)) = self.below_root(path) else {
            let folder = self.system.open_folder(parent(path).unwrap_or_default())?;
            let name = last_name(path);
            return Ok(FolderEntry { folder, name });
        };
        let folder = self.root_folder(root_path, root)?;
        Ok(FolderEntry {
            folder: match parent(rest) {
                None => folder,
                Some(above) => folder.folder(above, links)?,
            },
            name: last_name(rest),
        })
    }

    /// Opens the folder of a source file as [`place`](Self::place) does. If a root is a symbolic
    /// link to a file, the link is followed.
    fn source_place(&self, path: &[u8]) -> io::Result<FolderEntry> {
        self.place_of_source(path, self.links)
    }

    fn place_of_source(&self, path: &[u8], links: LinkPolicy) -> io::Result<FolderEntry> {
        if self.below_root(path).is_some() {
            return self.place(path, links);
        }
        let root = self.roots.get(path);
        if let Some((folder, name)) = root.and_then(|it| it.file.get()) {
            return Ok(FolderEntry {
                folder: folder.clone(),
                name: name.clone(),
            });
        }
        let mut place = self.place(path, links)?;
        let is_link = |stat: &FileStat| stat.kind == FileKind::Link;
        if place
            .folder
            .stat(&place.name, LinkPolicy::Refuse)
            .is_ok_and(|it| is_link(&it))
        {
            let target = self.system.canonical(path)?;
            place = FolderEntry {
                folder: self
                    .system
                    .open_folder(parent(&target).unwrap_or_default())?,
                name: last_name(&target),
            };
        }
        if let Some(root) = root {
            // Another lane has stored the same value.
            let _ = root.file.set((place.folder.clone(), place.name.clone()));
        }
        Ok(place)
    }

    fn root_folder(&self, path: &[u8], root: &LocalRoot) -> io::Result<Arc<dyn Folder>> {
        if let Some(folder) = root.folder.get() {
            return Ok(folder.clone());
        }
        let folder = self.system.open_folder(path)?;
        Ok(root.folder.get_or_init(|| folder).clone())
    }

    /// Opens a directory.
    fn folder(&self, path: &[u8], links: LinkPolicy) -> io::Result<Arc<dyn Folder>> {
        if let Some((root_path, root, rest)) = self.below_root(path) {
            return self.root_folder(root_path, root)?.folder(rest, links);
        }
        match self.roots.get(path) {
            Some(root) => self.root_folder(path, root),
            None => self.system.open_folder(path),
        }
    }
}

/// Returns whether an error means that permissions cannot be changed. Either the user lacks the
/// right to change them, or the file system does not store permissions.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::Unsupported
    )
}

/// Returns whether a file of this size exceeds the total size of the file system of `path`. A copy
/// of such a file would fill the disk, and no later run could complete it.
pub(crate) fn never_fits(path: &Path, size_bytes: u64) -> bool {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let found = nix::sys::statvfs::statvfs(folder.unwrap_or(Path::new(".")));
    found.is_ok_and(|it| it.blocks() * it.fragment_size() < size_bytes)
}

fn entry(name: &[u8], stat: &FileStat) -> ListingEntry {
    let is_file = stat.kind == FileKind::File;
    ListingEntry {
        name: name.to_vec(),
        size_bytes: is_file.then_some(stat.size_bytes),
        kind: match stat.kind {
            FileKind::File => EntryKind::File,
            FileKind::Folder => EntryKind::Directory,
            FileKind::Link => EntryKind::Symlink { target: None },
            FileKind::Other => EntryKind::Other,
        },
        modified: Some(ModifiedTime {
            unix_s: stat.modified_unix_s,
            precision: TimePrecision::Second,
        }),
    }
}

const ENTRIES_AT_ONCE: usize = 1_000;

/// Maximum number of attempts to create a part file while other processes create and remove parts
/// of the same name.
const CREATIONS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    };

    use super::*;

    /// Other users must not be able to read or lock the part file before it is complete.
    #[test]
    fn a_part_is_its_owners_alone_until_it_is_complete() {
        let folder = tempfile::tempdir().expect("room");
        let files = LocalFiles::without_roots();
        let path = |name: &str| folder.path().join(name).as_os_str().as_bytes().to_vec();
        let mode = |path: &[u8]| {
            let metadata = fs::metadata(local(path)).expect("there");
            metadata.permissions().mode() & 0o777
        };
        fs::write(folder.path().join("usual"), b"").expect("room");
        fs::write(folder.path().join("old"), b"").expect("room");
        let old = fs::Permissions::from_mode(0o640);
        fs::set_permissions(folder.path().join("old"), old).expect("ours");
        for (name, expected) in [("new", mode(&path("usual"))), ("old", 0o640)] {
            let (part, file) = (path(&format!("{name}.part")), path(name));
            let open = files.create_part(&part).expect("room");
            assert_eq!(mode(&part), 0o600);
            files
                .complete_part(&*open, &part, &file, None)
                .expect("ours");
            files.name_part(&part, &file).expect("ours");
            assert_eq!(mode(&file), expected, "{name}");
        }
    }

    #[test]
    fn a_new_file_has_the_permissions_of_its_folders_default_list() {
        let folder = tempfile::tempdir().expect("room");
        // The list contains a version, and then the tag, the permissions and the id of each entry.
        // The entries are owner, user, group, mask and others.
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in [
            (0x01_u16, 7_u16, u32::MAX),
            (0x02, 7, 12_345),
            (0x04, 5, u32::MAX),
            (0x10, 7, u32::MAX),
            (0x20, 0, u32::MAX),
        ] {
            list.extend(tag.to_le_bytes());
            list.extend(permissions.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        let name = "system.posix_acl_default";
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(folder.path(), name, &list, flags).is_err() {
            println!("this file system has no lists");
            return;
        }
        let files = LocalFiles::without_roots();
        let path = |name: &str| folder.path().join(name).as_os_str().as_bytes().to_vec();
        let mode = |path: &[u8]| {
            let metadata = fs::metadata(local(path)).expect("there");
            metadata.permissions().mode() & 0o777
        };
        fs::write(folder.path().join("usual"), b"").expect("room");
        let open = files.create_part(&path("new.part")).expect("room");
        assert_eq!(mode(&path("new.part")), 0o600);
        files
            .complete_part(&*open, &path("new.part"), &path("new"), None)
            .expect("ours");
        files
            .name_part(&path("new.part"), &path("new"))
            .expect("ours");
        assert_eq!(mode(&path("new")), mode(&path("usual")));
        assert_eq!(mode(&path("new")), 0o660);
    }

    #[test]
    fn a_part_that_another_process_writes_to_is_not_opened() {
        let folder = tempfile::tempdir().expect("room");
        let part = folder.path().join("a.part").as_os_str().as_bytes().to_vec();
        let (files, others) = (LocalFiles::without_roots(), LocalFiles::without_roots());
        drop(files.create_part(&part).expect("room"));
        let first = files.open_part(&part).expect("nobody has it");
        let second = files.open_part(&part).expect("it is our own");
        drop(first);
        let refused = others.open_part(&part).expect_err("it is locked");
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
        let left = others.remove_left_part(&part, true).expect("looked at");
        assert_eq!(left, PartRemoval::Kept);
        drop(second);
        others.open_part(&part).expect("nobody has it");
    }

    #[test]
    fn a_part_replaces_one_that_an_ended_process_has_left_and_no_other() {
        let folder = tempfile::tempdir().expect("room");
        let files = LocalFiles::without_roots();
        let path = |name: &str| folder.path().join(name).as_os_str().as_bytes().to_vec();
        let part = path("a.0123abcd.part");
        let create = || files.create_part(&part);
        let is_taken = || create().is_err_and(|it| it.kind() == ErrorKind::AlreadyExists);
        fs::write(local(&part), b"left").expect("room");
        let first = create().expect("nobody writes to it");
        assert_eq!(first.stat().expect("there").size_bytes, 0);
        assert!(is_taken(), "the first one is being written");
        drop(first);
        create().expect("nobody writes to it");
        // A link is not followed, and a folder never counts as a part.
        fs::remove_file(local(&part)).expect("there");
        fs::write(folder.path().join("victim"), b"secret").expect("room");
        std::os::unix::fs::symlink("victim", local(&part)).expect("room");
        let third = create().expect("a link of ours");
        third.write_at(b"x", 0).expect("room");
        assert_eq!(
            fs::read(folder.path().join("victim")).expect("there"),
            b"secret"
        );
        drop(third);
        fs::remove_file(local(&part)).expect("there");
        fs::create_dir(local(&part)).expect("room");
        assert!(is_taken());
        fs::remove_dir(local(&part)).expect("empty");
        if nix::unistd::geteuid().is_root() {
            fs::write(local(&part), b"another user's").expect("room");
            std::os::unix::fs::chown(local(&part), Some(65_534), None).expect("as root");
            assert!(is_taken());
            let left = files.remove_left_part(&part, false).expect("looked at");
            assert_eq!(left, PartRemoval::Kept);
            assert_eq!(fs::read(local(&part)).expect("there"), b"another user's");
        }
    }
}
