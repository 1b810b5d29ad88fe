//! A file system in memory that simulates faults.
//!
//! The faults are errors, short reads and writes, a full disk, flipped bits, and power cuts. A
//! power cut preserves a random subset of the unsynced changes.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use optimiser::store::{FileLock, FolderEntry, StoreFile, StoreFileSystem};
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_pcg::Pcg64Mcg;

/// Handle of the simulated file system. All clones refer to the same file system.
#[derive(Clone)]
pub(crate) struct FaultyFiles(Arc<Mutex<State>>);

/// Probabilities of each fault in a call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub error: f64,
    pub short: f64,
    /// Probability of a flipped bit in a read.
    pub flip: f64,
}

struct State {
    random: Pcg64Mcg,
    faults: Faults,
    /// Maximum total size of all files in bytes.
    capacity_bytes: usize,
    calls: u64,
    /// Number of the call during which the power fails.
    off_at: u64,
    is_off: bool,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    /// Unsynced changes of file names.
    renamings: Vec<Renaming>,
    files: HashMap<usize, Stored>,
    locks: HashSet<PathBuf>,
}

#[derive(Clone)]
enum Renaming {
    Create(PathBuf, usize),
    Move(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Default)]
struct Stored {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    /// Unsynced changes of the file's content.
    changes: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl FaultyFiles {
    /// Creates an empty file system without faults.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: Pcg64Mcg::seed_from_u64(seed),
            faults: Faults::default(),
            capacity_bytes: usize::MAX,
            calls: 0,
            off_at: u64::MAX,
            is_off: false,
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            renamings: Vec::new(),
            files: HashMap::new(),
            locks: HashSet::new(),
        })))
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    pub(crate) fn set_capacity(&self, bytes: usize) {
        self.state().capacity_bytes = bytes;
    }

    /// Makes the power fail during the `calls`-th call from now on.
    pub(crate) fn cut_power_after(&self, calls: u64) {
        let mut state = self.state();
        state.off_at = state.calls + calls;
    }

    pub(crate) fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Restores the power. A random subset of the unsynced changes has survived.
    pub(crate) fn restart(&self) {
        let state = &mut *self.state();
        (state.off_at, state.is_off) = (u64::MAX, false);
        state.locks.clear();
        let kept = kept(&mut state.random, state.renamings.len());
        for (renaming, is_kept) in state.renamings.drain(..).zip(kept) {
            if is_kept {
                apply(&mut state.synced_names, renaming);
            }
        }
        state.names = state.synced_names.clone();
        for file in state.files.values_mut() {
            file.lose(&mut state.random);
        }
    }

    /// Flips one bit of a random file.
    pub(crate) fn flip_bit(&self) {
        let state = &mut *self.state();
        let numbers: Vec<usize> = state.names.values().copied().collect();
        if let Some(number) = numbers.choose(&mut state.random)
            && let Some(file) = state.files.get_mut(number)
            && !file.bytes.is_empty()
        {
            let bit = state.random.random_range(0..file.bytes.len() * 8);
            file.bytes[bit / 8] ^= 1 << (bit % 8);
            file.synced = file.bytes.clone();
            file.changes.clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics with it")
    }

    /// Counts a call. Returns the locked state, or the error with which the call must fail.
    fn call(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.calls += 1;
        if state.calls >= state.off_at {
            state.is_off = true;
        }
        let error = state.faults.error;
        if state.is_off || state.random.random_bool(error) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        Ok(state)
    }

    fn change_name(&self, renaming: Renaming) -> io::Result<()> {
        let state = &mut *self.call()?;
        let from = match &renaming {
            Renaming::Create(..) => None,
            Renaming::Move(from, _) => Some(from),
            Renaming::Remove(path) => Some(path),
        };
        if from.is_some_and(|from| !state.names.contains_key(from)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        apply(&mut state.names, renaming.clone());
        state.renamings.push(renaming);
        Ok(())
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, renaming: Renaming) {
    match renaming {
        Renaming::Create(path, number) => {
            names.insert(path, number);
        }
        Renaming::Move(from, to) => {
            if let Some(number) = names.remove(&from) {
                names.insert(to, number);
            }
        }
        Renaming::Remove(path) => {
            names.remove(&path);
        }
    }
}

/// Chooses at random the changes that survive a power cut: all, none, the first changes, or any
/// subset.
fn kept(random: &mut Pcg64Mcg, count: usize) -> Vec<bool> {
    let way = random.random_range(0..4);
    let first = random.random_range(0..=count);
    let mut is_kept = |n| match way {
        0 => true,
        1 => n < first / 8,
        2 => n < first,
        _ => random.random_bool(0.5),
    };
    (0..count).map(&mut is_kept).collect()
}

impl Stored {
    fn change(&mut self, change: Change) {
        change_bytes(&mut self.bytes, &change);
        self.changes.push(change);
    }

    /// Discards the changes that do not survive a power cut.
    fn lose(&mut self, random: &mut Pcg64Mcg) {
        let mut pieces = Vec::new();
        for change in self.changes.drain(..) {
            match change {
                Change::Write(offset, bytes) => pieces.extend(pages(offset, &bytes)),
                truncate @ Change::Truncate(_) => pieces.push(truncate),
            }
        }
        let kept = kept(random, pieces.len());
        for (mut piece, is_kept) in pieces.into_iter().zip(kept) {
            if !is_kept {
                continue;
            }
            if let Change::Write(_, bytes) = &mut piece
                && random.random_bool(0.05)
            {
                let sectors = bytes.len() / 512;
                bytes.truncate(random.random_range(0..=sectors) * 512);
            }
            change_bytes(&mut self.synced, &piece);
        }
        // The length of a file may reach the disk before its bytes. The blocks of the file may then
        // have their earlier content.
        if self.synced.len() < self.bytes.len() && random.random_bool(0.3) {
            let byte = if random.random_bool(0.5) { 0 } else { 0xa5 };
            self.synced.resize(self.bytes.len(), byte);
        }
        self.bytes = self.synced.clone();
    }
}

fn change_bytes(all: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(offset, bytes) => {
            let end = offset + bytes.len();
            if all.len() < end {
                all.resize(end, 0);
            }
            all[*offset..end].copy_from_slice(bytes);
        }
        Change::Truncate(size_bytes) => all.resize(*size_bytes, 0),
    }
}

/// Splits a write into changes of one page (4 KiB) each.
fn pages(mut offset: usize, mut bytes: &[u8]) -> Vec<Change> {
    let mut pages = Vec::new();
    while !bytes.is_empty() {
        let (page, rest) = bytes.split_at(bytes.len().min(4096 - offset % 4096));
        pages.push(Change::Write(offset, page.to_vec()));
        (offset, bytes) = (offset + page.len(), rest);
    }
    pages
}

impl StoreFileSystem for FaultyFiles {
    fn make_folder(&self, _folder: &Path) -> io::Result<()> {
        self.call().map(|_| ())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        let state = self.call()?;
        let mut listed = Vec::new();
        for (path, number) in &state.names {
            if path.parent() == Some(folder)
                && let Some(name) = path.file_name().and_then(|name| name.to_str())
            {
                listed.push(FolderEntry {
                    name: name.to_owned(),
                    size_bytes: state.files[number].bytes.len() as u64,
                });
            }
        }
        Ok(listed)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
        let is_free = self.call()?.locks.insert(path.to_owned());
        let lock = FaultyLock(self.clone(), path.to_owned());
        Ok(is_free.then(|| Box::new(lock) as Box<dyn FileLock>))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn StoreFile>> {
        let number = {
            let state = &mut *self.call()?;
            let number = state.files.len();
            state.files.insert(number, Stored::default());
            number
        };
        self.change_name(Renaming::Create(path.to_owned(), number))?;
        Ok(Box::new(FaultyFile(self.clone(), number)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StoreFile>> {
        let number = self.call()?.names.get(path).copied();
        let number = number.ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(FaultyFile(self.clone(), number)))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn StoreFile>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change_name(Renaming::Move(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change_name(Renaming::Remove(path.to_owned()))
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        let state = &mut *self.call()?;
        state.synced_names = state.names.clone();
        state.renamings.clear();
        Ok(())
    }
}

struct FaultyLock(FaultyFiles, PathBuf);

impl FileLock for FaultyLock {}

impl Drop for FaultyLock {
    fn drop(&mut self) {
        self.0.state().locks.remove(&self.1);
    }
}

struct FaultyFile(FaultyFiles, usize);

impl FaultyFile {
    fn with<T>(&self, act: impl FnOnce(&mut State, &mut Stored) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.0.call()?;
        let mut file = state.files.remove(&self.1).expect("it was made");
        let done = act(&mut state, &mut file);
        state.files.insert(self.1, file);
        done
    }
}

impl StoreFile for FaultyFile {
    fn size_bytes(&self) -> io::Result<u64> {
        self.with(|_, file| Ok(file.bytes.len() as u64))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|state, file| {
            let rest = file.bytes.get(offset as usize..).unwrap_or_default();
            let mut count = rest.len().min(buffer.len());
            if count > 1 && state.random.random_bool(state.faults.short) {
                count = state.random.random_range(1..count);
            }
            buffer[..count].copy_from_slice(&rest[..count]);
            if count > 0 && state.random.random_bool(state.faults.flip) {
                buffer[state.random.random_range(0..count)] ^= 16;
            }
            Ok(count)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.with(|state, file| {
            let named: HashSet<usize> = state.names.values().copied().collect();
            let others = named.iter().filter_map(|it| state.files.get(it));
            let others: usize = others.map(|file| file.bytes.len()).sum();
            let room = state
                .capacity_bytes
                .saturating_sub(others + offset as usize);
            let mut count = bytes.len().min(room);
            if count == 0 {
                return Err(io::Error::from_raw_os_error(ENOSPC));
            }
            if count > 1 && state.random.random_bool(state.faults.short) {
                count = state.random.random_range(1..count);
            }
            file.change(Change::Write(offset as usize, bytes[..count].to_vec()));
            Ok(count)
        })
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        self.with(|_, file| {
            file.change(Change::Truncate(size_bytes as usize));
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|_, file| {
            file.synced = file.bytes.clone();
            file.changes.clear();
            Ok(())
        })
    }
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
