//! In-memory file system for tests. The file system can fail and can lose power.
//!
//! Unsynced changes may survive a power cut or may be lost. In a folder, only the oldest unsynced
//! changes survive, and their number is random. In a file, some of the unsynced blocks survive.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::{self, ErrorKind},
    sync::{Arc, Mutex, MutexGuard},
};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::system::{
    FileAccess, FileKind, FileStat, FileSystem, Folder, LinkPolicy, OWNER_ALONE, OpenFile, OpenMode,
};
use crate::names::{last_name, parent};

/// A shared handle of the file system.
#[derive(Debug, Clone)]
pub(crate) struct FaultyDisk(Arc<Mutex<Disk>>);

#[derive(Debug)]
struct Disk {
    nodes: HashMap<u64, DiskNode>,
    next: u64,
    /// Number of operations until the power fails.
    until_cut: u64,
    /// Average number of operations per failure. 0 means that no operation fails.
    one_fails_in: u32,
    random: Pcg64Mcg,
    folder_syncs: u64,
    locked: HashSet<u64>,
    has_no_locks: bool,
    boots: u64,
    /// A file that is to change after the next write, and the new content of that file.
    changes: Option<(u64, Vec<u8>)>,
    /// Files that another process has open for writing.
    busy: HashSet<u64>,
}

#[derive(Debug, Clone)]
struct DiskNode {
    kind: FileKind,
    data: Vec<u8>,
    synced_data: Vec<u8>,
    /// Lengths that `set_len` has set since the last sync of the file. Later writes may have
    /// lengthened the data further.
    lengths: Vec<usize>,
    names: BTreeMap<Vec<u8>, u64>,
    synced_names: BTreeMap<Vec<u8>, u64>,
    changes: Vec<BTreeMap<Vec<u8>, u64>>,
    modified_unix_s: i64,
    mode: u32,
    /// Number of write-back errors so far.
    errors: u64,
}

#[derive(Debug)]
struct OpenHandle {
    disk: FaultyDisk,
    id: u64,
    lock: Mutex<Option<FileLock>>,
    /// Number of write-back errors that this handle no longer reports. The handle has reported
    /// them, or they occurred before the handle was opened.
    errors: Mutex<u64>,
}

/// The lock of a file. The lock is released when this value is dropped.
#[derive(Debug)]
struct FileLock {
    disk: FaultyDisk,
    id: u64,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        self.disk.disk().locked.remove(&self.id);
    }
}

impl FaultyDisk {
    pub(crate) fn new(seed: u64) -> Self {
        let mut disk = Disk {
            nodes: HashMap::new(),
            next: ROOT,
            until_cut: u64::MAX,
            one_fails_in: 0,
            random: Pcg64Mcg::seed_from_u64(seed),
            folder_syncs: 0,
            locked: HashSet::new(),
            has_no_locks: false,
            boots: 1,
            changes: None,
            busy: HashSet::new(),
        };
        disk.make(FileKind::Folder);
        Self(Arc::new(Mutex::new(disk)))
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().expect("nobody panics with it")
    }

    fn handle(&self, id: u64) -> OpenHandle {
        let errors = self.disk().nodes[&id].errors;
        OpenHandle {
            errors: Mutex::new(errors),
            disk: self.clone(),
            id,
            lock: Mutex::default(),
        }
    }

    fn lock(&self, id: u64) -> Option<FileLock> {
        let is_free = self.disk().locked.insert(id);
        is_free.then(|| FileLock {
            disk: self.clone(),
            id,
        })
    }

    /// Writes a file and creates the folders above the file. The file and the folders survive a
    /// power cut.
    pub(crate) fn put(&self, path: &str, bytes: &[u8], modified_unix_s: i64) {
        let mut disk = self.disk();
        let mut at = ROOT;
        let names: Vec<_> = path.split('/').filter(|it| !it.is_empty()).collect();
        for (number, name) in names.iter().enumerate() {
            let kind = match number + 1 == names.len() && modified_unix_s != FOLDER {
                true => FileKind::File,
                false => FileKind::Folder,
            };
            let name = name.as_bytes().to_vec();
            let known = disk.nodes[&at].names.get(&name).copied();
            let id = known.unwrap_or_else(|| disk.make(kind));
            let above = disk.node(at);
            above.names.insert(name.clone(), id);
            above.synced_names.insert(name, id);
            at = id;
        }
        let file = disk.node(at);
        file.data = bytes.to_vec();
        file.synced_data = bytes.to_vec();
        file.modified_unix_s = modified_unix_s;
    }

    /// Makes a file behave as if it had never been synced. A power cut may then destroy the file.
    pub(crate) fn forget_syncs(&self, path: &str) {
        let mut disk = self.disk();
        let (above, name) = path.rsplit_once('/').expect("a path from the root");
        let above = disk.find(ROOT, above.as_bytes()).expect("it is there");
        let file = disk.find(above, name.as_bytes()).expect("it is there");
        disk.node(file).synced_data.clear();
        disk.node(above).synced_names.remove(name.as_bytes());
    }

    /// Creates a folder that survives a power cut.
    pub(crate) fn put_folder(&self, path: &str) {
        self.put(path, b"", FOLDER);
    }

    /// Creates a folder and the folders above it. A power cut can destroy the new folder, but not
    /// the folders above it. Returns the new folder.
    pub(crate) fn put_new_folder(&self, path: &str) -> Arc<dyn Folder> {
        self.put_folder(path);
        let (above, name) = path.rsplit_once('/').expect("a path from the root");
        let mut disk = self.disk();
        let above = disk.find(ROOT, above.as_bytes()).expect("it is there");
        let id = disk.find(above, name.as_bytes()).expect("it is there");
        disk.node(above).synced_names.remove(name.as_bytes());
        let names = disk.node(above).names.clone();
        disk.node(above).changes.push(names);
        drop(disk);
        Arc::new(self.handle(id))
    }

    /// Makes the power fail after `operations` operations.
    pub(crate) fn cut_after(&self, operations: u64) {
        self.disk().until_cut = operations;
    }

    /// Makes each operation fail with a probability of one in `operations`.
    pub(crate) fn fail_one_in(&self, operations: u32) {
        self.disk().one_fails_in = operations;
    }

    /// Makes the write-back of a file fail after its bytes were written. Each open handle reports
    /// the error once.
    pub(crate) fn fail_write_back(&self, path: &str) {
        let mut disk = self.disk();
        let id = disk.find(ROOT, path.as_bytes()).expect("it is there");
        disk.node(id).errors += 1;
    }

    /// Schedules a change of the file at `path`. After the next write to any file, the file at
    /// `path` contains `content` instead of its old content.
    pub(crate) fn change_after_write(&self, path: &str, content: &[u8]) {
        let mut disk = self.disk();
        let id = disk.find(ROOT, path.as_bytes()).expect("it is there");
        disk.changes = Some((id, content.to_vec()));
    }

    /// Marks a file as open for writing in another process.
    pub(crate) fn open_elsewhere(&self, path: &str) {
        let mut disk = self.disk();
        let id = disk.find(ROOT, path.as_bytes()).expect("it is there");
        disk.busy.insert(id);
    }

    /// Makes the file system refuse all locks, like a file system without locks.
    pub(crate) fn lack_locks(&self) {
        self.disk().has_no_locks = true;
    }

    pub(crate) fn folder_syncs(&self) -> u64 {
        self.disk().folder_syncs
    }

    /// Restarts the machine after a power cut. Unsynced changes survive or are lost at random.
    pub(crate) fn restart(&self) {
        let mut disk = self.disk();
        let disk = &mut *disk;
        for node in disk.nodes.values_mut() {
            let kept = disk.random.random_range(0..=node.changes.len());
            if kept > 0 {
                node.synced_names = node.changes[kept - 1].clone();
            }
            node.changes.clear();
            node.names = node.synced_names.clone();
            if node.data != node.synced_data {
                // The file gets one of its former lengths, or a length between its last former
                // length and its present length. Writes lengthen a file gradually, but `set_len`
                // changes the length in one step.
                let (had, has) = (node.synced_data.len(), node.data.len());
                let last = node.lengths.last().copied().unwrap_or(had);
                let mut length = match disk.random.random_range(0..=node.lengths.len()) {
                    0 => had,
                    kept => node.lengths[kept - 1],
                };
                if has > last && length == last {
                    length = disk.random.random_range(last..=has);
                }
                node.data.resize(length.max(has), 0);
                if let Some(rest) = node.synced_data.get(has..) {
                    let rest = &rest[..rest.len().min(node.data.len() - has)];
                    node.data[has..has + rest.len()].copy_from_slice(rest);
                }
                for (number, block) in node.data.chunks_mut(BLOCK_BYTES).enumerate() {
                    if disk.random.random_range(0..2) == 0 {
                        let before = node.synced_data.get(number * BLOCK_BYTES..);
                        let before = before.unwrap_or_default();
                        let (old, new) = block.split_at_mut(before.len().min(block.len()));
                        old.copy_from_slice(&before[..old.len()]);
                        new.fill(0);
                    }
                }
                node.data.truncate(length);
                node.synced_data = node.data.clone();
            }
            node.lengths.clear();
        }
        disk.until_cut = u64::MAX;
        disk.one_fails_in = 0;
        disk.boots += 1;
    }

    /// Returns the contents of all files below a folder, by path.
    pub(crate) fn files(&self, folder: &str) -> BTreeMap<String, Vec<u8>> {
        let disk = self.disk();
        let mut found = BTreeMap::new();
        let mut folders = Vec::new();
        folders.extend(
            disk.find(ROOT, folder.as_bytes())
                .ok()
                .map(|it| (String::new(), it)),
        );
        while let Some((path, id)) = folders.pop() {
            for (name, id) in &disk.nodes[&id].names {
                let path = format!("{path}/{}", String::from_utf8_lossy(name));
                match disk.nodes[id].kind {
                    FileKind::Folder => folders.push((path, *id)),
                    _ => drop(found.insert(path, disk.nodes[id].data.clone())),
                }
            }
        }
        found
    }
}

impl Disk {
    fn make(&mut self, kind: FileKind) -> u64 {
        let id = self.next;
        self.next += 1;
        let node = DiskNode {
            kind,
            data: Vec::new(),
            synced_data: Vec::new(),
            lengths: Vec::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            changes: Vec::new(),
            modified_unix_s: 0,
            mode: 0o644,
            errors: 0,
        };
        self.nodes.insert(id, node);
        id
    }

    fn node(&mut self, id: u64) -> &mut DiskNode {
        self.nodes.get_mut(&id).expect("handles are of nodes")
    }

    /// Counts one operation. Returns an error if the operation is due to fail.
    fn operate(&mut self) -> io::Result<()> {
        if self.until_cut == 0 {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.until_cut -= 1;
        if self.one_fails_in > 0 && self.random.random_range(0..self.one_fails_in) == 0 {
            let number = if self.random.random_range(0..2) == 0 {
                EIO
            } else {
                ENOSPC
            };
            return Err(io::Error::from_raw_os_error(number));
        }
        Ok(())
    }

    fn find(&self, from: u64, path: &[u8]) -> io::Result<u64> {
        let names = path.split(|it| *it == b'/').filter(|it| !it.is_empty());
        let mut at = from;
        for name in names {
            at = *self.nodes[&at].names.get(name).ok_or(ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    fn stat(&self, id: u64) -> FileStat {
        let node = &self.nodes[&id];
        FileStat {
            kind: node.kind,
            device: 1,
            inode: id,
            size_bytes: node.data.len() as u64,
            modified_unix_s: node.modified_unix_s,
            modified_ns: 0,
            access: FileAccess {
                mode: node.mode,
                user: 0,
                group: 0,
            },
            names: 1,
        }
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut BTreeMap<Vec<u8>, u64>)) {
        let folder = self.node(id);
        change(&mut folder.names);
        let names = folder.names.clone();
        folder.changes.push(names);
    }
}

impl FileSystem for FaultyDisk {
    fn open_folder(&self, path: &[u8]) -> io::Result<Arc<dyn Folder>> {
        let id = self.disk().find(ROOT, path)?;
        Ok(Arc::new(self.handle(id)))
    }

    fn stat(&self, path: &[u8]) -> io::Result<FileStat> {
        let disk = self.disk();
        Ok(disk.stat(disk.find(ROOT, path)?))
    }

    fn canonical(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        Ok(path.to_vec())
    }

    fn hard_link(&self, path: &[u8], new: &[u8]) -> io::Result<()> {
        let mut disk = self.disk();
        disk.operate()?;
        let id = disk.find(ROOT, path)?;
        if disk.find(ROOT, new).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let folder = disk.find(ROOT, parent(new).unwrap_or_default())?;
        disk.change(folder, |it| {
            it.insert(last_name(new), id);
        });
        Ok(())
    }

    fn usual_mode(&self) -> u32 {
        0o644
    }

    fn is_ours(&self, _: &FileStat) -> bool {
        true
    }

    fn boot(&self) -> Option<u64> {
        Some(self.disk().boots)
    }
}

impl Folder for OpenHandle {
    fn folder(&self, below: &[u8], _: LinkPolicy) -> io::Result<Arc<dyn Folder>> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        let id = disk.find(self.id, below)?;
        drop(disk);
        Ok(Arc::new(self.disk.handle(id)))
    }

    fn stat(&self, name: &[u8], _: LinkPolicy) -> io::Result<FileStat> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        Ok(disk.stat(disk.find(self.id, name)?))
    }

    fn open(&self, name: &[u8], opening: OpenMode) -> io::Result<Arc<dyn OpenFile>> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        let known = disk.find(self.id, name);
        let id = match (opening, known) {
            (OpenMode::New, Ok(_)) => return Err(ErrorKind::AlreadyExists.into()),
            (_, Ok(id)) => id,
            (OpenMode::New | OpenMode::InPlace, Err(_)) => {
                let id = disk.make(FileKind::File);
                if opening == OpenMode::New {
                    disk.node(id).mode = OWNER_ALONE;
                }
                disk.change(self.id, |it| {
                    it.insert(name.to_vec(), id);
                });
                id
            }
            (_, Err(error)) => return Err(error),
        };
        drop(disk);
        Ok(Arc::new(self.disk.handle(id)))
    }

    fn list(&self, take: &mut dyn FnMut(Vec<u8>) -> io::Result<bool>) -> io::Result<()> {
        let names: Vec<_> = {
            let mut disk = self.disk.disk();
            disk.operate()?;
            disk.nodes[&self.id].names.keys().cloned().collect()
        };
        for name in names {
            if !take(name)? {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self, _: &[u8]) -> io::Result<Vec<u8>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn make_folder(&self, name: &[u8]) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        if disk.find(self.id, name).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let id = disk.make(FileKind::Folder);
        disk.change(self.id, |it| {
            it.insert(name.to_vec(), id);
        });
        Ok(())
    }

    fn make_link(&self, _: &[u8], _: &[u8]) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        let id = disk.find(self.id, from)?;
        disk.change(self.id, |it| {
            it.remove(from);
            it.insert(to.to_vec(), id);
        });
        Ok(())
    }

    fn remove_file(&self, name: &[u8]) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        disk.find(self.id, name)?;
        disk.change(self.id, |it| {
            it.remove(name);
        });
        Ok(())
    }

    fn remove_folder(&self, name: &[u8]) -> io::Result<()> {
        self.remove_file(name)
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        disk.folder_syncs += 1;
        let folder = disk.node(self.id);
        folder.synced_names = folder.names.clone();
        folder.changes.clear();
        Ok(())
    }
}

impl OpenFile for OpenHandle {
    fn stat(&self) -> io::Result<FileStat> {
        Ok(self.disk.disk().stat(self.id))
    }

    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        let data = &disk.nodes[&self.id].data;
        let rest = data.get(offset_bytes as usize..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        let data = &mut disk.node(self.id).data;
        let offset = offset_bytes as usize;
        data.resize(data.len().max(offset), 0);
        let (within, beyond) = bytes.split_at(bytes.len().min(data.len() - offset));
        data[offset..offset + within.len()].copy_from_slice(within);
        data.extend_from_slice(beyond);
        if let Some((id, content)) = disk.changes.take() {
            let file = disk.node(id);
            file.data = content;
            file.modified_unix_s += 1;
        }
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        let file = disk.node(self.id);
        file.data.resize(bytes as usize, 0);
        file.lengths.push(bytes as usize);
        Ok(())
    }

    fn set_modified(&self, unix_s: i64) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        disk.node(self.id).modified_unix_s = unix_s;
        Ok(())
    }

    fn set_access(&self, access: FileAccess) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        disk.node(self.id).mode = access.mode;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.operate()?;
        let file = disk.node(self.id);
        let mut reported = self.errors.lock().expect("nobody panics with it");
        if std::mem::replace(&mut *reported, file.errors) < file.errors {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        file.synced_data.clone_from(&file.data);
        file.lengths.clear();
        Ok(())
    }

    /// Tries to lock the file. This call does not count as an operation.
    fn try_lock(&self) -> io::Result<Option<bool>> {
        if self.disk.disk().has_no_locks {
            return Ok(None);
        }
        let mut locked = self.lock.lock().expect("nobody panics with it");
        if locked.is_none() {
            *locked = self.disk.lock(self.id);
        }
        Ok(Some(locked.is_some()))
    }

    fn is_being_written(&self) -> Option<bool> {
        Some(self.disk.disk().busy.contains(&self.id))
    }
}

const ROOT: u64 = 1;

/// Special modification time with which `put` creates a folder instead of a file.
const FOLDER: i64 = i64::MIN;

const BLOCK_BYTES: usize = 4_096;

const EIO: i32 = 5;

const ENOSPC: i32 = 28;
