//! Memory file of an agent's job. It records files already moved, commands still to be called, and
//! the last start. The file survives a restart of the process and a power cut.

use std::{
    collections::{HashMap, HashSet},
    io::{self, ErrorKind},
    os::unix::ffi::OsStrExt as _,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

use ftp::listing::{ModifiedTime, TimePrecision};
use redb::{
    Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, StorageError,
    TableDefinition,
};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    disk::{
        MachineFileSystem,
        store::{open_state_folder, open_store, stat, sync_above},
        system::FileSystem,
    },
    names::{last_name, parent},
    plan::{self, File, FileStanding, FileVersion, RelativePath, StateStoreError, TakenFile},
};

/// Memory file of one job: a database of moved files, pending command calls and the last start.
#[derive(Debug)]
pub struct JobMemory {
    database: Database,
    name: String,
    path: PathBuf,
    /// Whether a command is called for each file that the job moves.
    calls: bool,
    settle: Duration,
    /// Files that the present run has found.
    run: Mutex<RunFiles>,
}

/// Files that a run has found at the source.
#[derive(Debug, Default)]
struct RunFiles {
    number: u64,
    /// Hashes of the paths of files that the run has found. One million files need 16 MB.
    found: HashSet<u64>,
    /// Files that programs may still be writing, by path.
    settling: HashMap<Vec<u8>, UnsettledFile>,
}

/// A file that a program may still be writing.
#[derive(Debug)]
struct UnsettledFile {
    version: FileVersion,
    /// Time at which the file's present size and modification time were first seen.
    since: Instant,
    /// Number of the last run that found the file.
    run: u64,
}

/// A file for which a command is to be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCall {
    /// Number of the command call. No other call of the job has the same number.
    pub number: u64,
    /// Path of the file below the job's source and destination.
    pub path: Vec<u8>,
    /// Size of the file in bytes, if known.
    pub size_bytes: Option<u64>,
    /// Time of the last change at the source, in seconds since 1970, if known.
    pub modified_unix_s: Option<i64>,
}

/// An error that prevents the use of a job's memory file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Another process has opened the memory file.
    #[error("another agent does the job {0}")]
    Running(String),
    /// The file cannot be used.
    #[error("the memory of the job {name}, {path}, cannot be used")]
    File {
        /// Name of the job.
        name: String,
        /// Path of the memory file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: Box<redb::Error>,
    },
    /// The file is damaged.
    #[error(
        "the memory of the job {name} is damaged ({reason}): move {path} away. The job then compares all files, and \
         copies those that the destination lacks"
    )]
    Damaged {
        /// Name of the job.
        name: String,
        /// Path of the memory file.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
}

/// Record of a file.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct FileRecord {
    state: FileState,
    #[serde(default)]
    size_bytes: Option<u64>,
    #[serde(default)]
    modified_unix_s: Option<i64>,
    /// Resolution of the modification time, in seconds.
    #[serde(default)]
    unit_s: u32,
    /// Time at which the record was written, in seconds since 1970.
    at_unix_s: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileState {
    /// A run has begun to move the file.
    Begun,
    /// The destination has the file.
    Taken,
}

/// Record of a pending command call.
#[derive(Debug, Serialize, Deserialize)]
struct CallRecord {
    /// The bytes of the path as hexadecimal digits, because a path need not be valid UTF-8.
    path: String,
    size_bytes: Option<u64>,
    modified_unix_s: Option<i64>,
}

impl JobMemory {
    /// Opens the memory file of the job `name` in `folder`, or creates it.
    ///
    /// `identity` describes the source and the destination. If the stored identity differs, all
    /// records are deleted. A file counts as settled when its listings have been the same for
    /// `settle`. If `calls` is true, a call of the command is recorded for each moved file.
    ///
    /// # Errors
    /// [`MemoryError`] if another process has the file open, or the file cannot be used.
    pub fn open(
        folder: &Path,
        name: &str,
        identity: &str,
        settle: Duration,
        calls: bool,
    ) -> Result<Self, MemoryError> {
        let job = (name, identity);
        Self::open_on(&MachineFileSystem, folder, job, settle, calls)
    }

    /// Opens a memory file on any file system. `(name, identity)` describes the job.
    pub(crate) fn open_on(
        system: &dyn FileSystem,
        folder: &Path,
        (name, identity): (&str, &str),
        settle: Duration,
        calls: bool,
    ) -> Result<Self, MemoryError> {
        let path = folder.join(format!("{name}.redb"));
        // The database may panic over a damaged file.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let memory = Self {
                database: open_file(system, name, &path)?,
                name: name.to_owned(),
                path: path.clone(),
                calls,
                settle,
                run: Mutex::default(),
            };
            let begun = memory.begin_as(identity);
            begun.map_err(|error| memory.unusable(error))?;
            Ok(memory)
        }));
        opened.unwrap_or_else(|_| Err(damaged(name, &path, "it cannot be read".to_owned())))
    }

    /// Deletes all records if the identity has changed. Creates missing tables.
    fn begin_as(&self, identity: &str) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut texts = transaction.open_table(TEXTS)?;
            let known = texts.get(IDENTITY)?.map(|it| it.value().to_owned());
            if known.as_deref() != Some(identity) {
                if known.is_some() {
                    // The records belong to a job with another source or destination. The new job
                    // must not call commands for these records.
                    transaction.delete_table(FILES)?;
                    transaction.delete_table(CALLS)?;
                    let mut numbers = transaction.open_table(NUMBERS)?;
                    numbers.remove(LAST_START)?;
                    numbers.remove(IS_OPEN)?;
                }
                texts.insert(IDENTITY, identity)?;
            }
            transaction.open_table(FILES)?;
            transaction.open_table(CALLS)?;
            transaction.open_table(NUMBERS)?;
        }
        Ok(transaction.commit()?)
    }

    /// Returns the time of the job's last start, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`MemoryError`] if the file cannot be read.
    pub fn last_start_unix_ms(&self) -> Result<Option<i64>, MemoryError> {
        let read = || -> Result<Option<i64>, redb::Error> {
            let transaction = self.database.begin_read()?;
            let numbers = transaction.open_table(NUMBERS)?;
            Ok(numbers.get(LAST_START)?.map(|it| it.value().cast_signed()))
        };
        read().map_err(|error| self.unusable(error))
    }

    /// Records that the job starts.
    ///
    /// # Errors
    /// [`MemoryError`] if the start cannot be recorded.
    pub fn started(&self, unix_ms: i64) -> Result<(), MemoryError> {
        let mut run = self.run.lock().expect("nobody panics with it");
        let last = run.number;
        // If the last run did not find a file, the file no longer exists, and its entry is removed.
        run.settling.retain(|_, it| it.run == last);
        run.found.clear();
        run.number += 1;
        drop(run);
        self.write(|transaction| {
            let mut numbers = transaction.open_table(NUMBERS)?;
            numbers.insert(LAST_START, unix_ms.cast_unsigned())?;
            numbers.insert(IS_OPEN, 1)?;
            Ok(())
        })
    }

    /// Records that the job has no unfinished work until its next start.
    ///
    /// # Errors
    /// [`MemoryError`] if the record cannot be written.
    pub fn ended(&self) -> Result<(), MemoryError> {
        self.write(|transaction| {
            transaction.open_table(NUMBERS)?.remove(IS_OPEN)?;
            Ok(())
        })
    }

    /// Returns whether the job had unfinished work when the agent last ended. A job that was never
    /// started has no unfinished work.
    ///
    /// # Errors
    /// [`MemoryError`] if the file cannot be read.
    pub fn is_open(&self) -> Result<bool, MemoryError> {
        let read = || -> Result<bool, redb::Error> {
            let transaction = self.database.begin_read()?;
            Ok(transaction.open_table(NUMBERS)?.get(IS_OPEN)?.is_some())
        };
        read().map_err(|error| self.unusable(error))
    }

    /// Returns at most `most` command calls that are still to be made, the oldest first. Returns no
    /// call whose number is below `from`.
    ///
    /// # Errors
    /// [`MemoryError`] if the file cannot be read.
    pub fn calls(&self, from: u64, most: usize) -> Result<Vec<PendingCall>, MemoryError> {
        let read = || -> Result<Vec<PendingCall>, redb::Error> {
            let transaction = self.database.begin_read()?;
            let table = transaction.open_table(CALLS)?;
            let mut calls = Vec::new();
            for entry in table.range(from..)?.take(most) {
                let (number, record) = entry?;
                calls.extend(call(number.value(), record.value()));
            }
            Ok(calls)
        };
        read().map_err(|error| self.unusable(error))
    }

    /// Records that a command call has been made.
    ///
    /// # Errors
    /// [`MemoryError`] if the call cannot be recorded.
    pub fn called(&self, number: u64) -> Result<(), MemoryError> {
        self.write(|transaction| {
            transaction.open_table(CALLS)?.remove(number)?;
            Ok(())
        })
    }

    /// Returns the number of files that have a record. A file has a record once a run has begun to
    /// move it.
    #[cfg(test)]
    pub(super) fn files(&self) -> Result<u64, MemoryError> {
        use redb::ReadableTableMetadata as _;
        let read = || -> Result<u64, redb::Error> {
            Ok(self.database.begin_read()?.open_table(FILES)?.len()?)
        };
        read().map_err(|error| self.unusable(error))
    }

    /// Deletes records that were written before `before_unix_s`, if the present run has not found
    /// their files at the source. The present run must be complete.
    ///
    /// # Errors
    /// [`MemoryError`] if the change cannot be recorded.
    pub fn forget(&self, before_unix_s: i64) -> Result<(), MemoryError> {
        let run = self.run.lock().expect("nobody panics with it");
        if run.found.is_empty() {
            // If the run has found no file, perhaps a disk is not mounted. Therefore no record is
            // deleted.
            return Ok(());
        }
        let is_there = |path: &[u8]| run.found.contains(&xxh3_64(path));
        self.write(|transaction| {
            let mut files = transaction.open_table(FILES)?;
            files.retain(|path, record| {
                let at = read_record(record).map(|it| it.at_unix_s);
                at.is_some_and(|it| it >= before_unix_s) || is_there(path)
            })?;
            Ok(())
        })
    }

    fn write(
        &self,
        work: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), MemoryError> {
        self.commit(work).map_err(|error| self.unusable(error))
    }

    fn unusable(&self, error: redb::Error) -> MemoryError {
        unusable(&self.name, &self.path, error)
    }

    fn commit(
        &self,
        work: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        work(&transaction)?;
        Ok(transaction.commit()?)
    }

    fn record(&self, path: &[u8]) -> Option<FileRecord> {
        let read = || -> Result<Option<FileRecord>, redb::Error> {
            let transaction = self.database.begin_read()?;
            let files = transaction.open_table(FILES)?;
            Ok(files.get(path)?.and_then(|it| read_record(it.value())))
        };
        let read = read();
        read.inspect_err(
            |error| tracing::warn!(job = self.name, %error, "the memory cannot be read"),
        )
        .ok()
        .flatten()
    }

    fn store_error(&self, error: redb::Error) -> StateStoreError {
        StateStoreError {
            name: self.name.clone(),
            source: Box::new(error),
        }
    }
}

impl plan::RunMemory for JobMemory {
    fn standing(&self, file: &File, now: Instant) -> FileStanding {
        let path = file.path.to_bytes();
        let mut run = self.run.lock().expect("nobody panics with it");
        run.found.insert(xxh3_64(&path));
        let version = file.version();
        let record = self.record(&path);
        if let Some(record) = record
            && record.state == FileState::Taken
            && record.version().is_same_as(&version)
        {
            return FileStanding::Taken;
        }
        match self.settle.is_zero() || run.is_settled(&path, version, now, self.settle) {
            true => FileStanding::New,
            false => FileStanding::Unsettled,
        }
    }

    fn taken(&self, path: &RelativePath) -> Option<FileVersion> {
        let record = self.record(&path.to_bytes())?;
        (record.state == FileState::Taken).then(|| record.version())
    }

    fn begin(&self, files: &[File]) -> Result<(), StateStoreError> {
        let at_unix_s = now_unix_s();
        let begun = self.commit(|transaction| {
            let mut table = transaction.open_table(FILES)?;
            for file in files {
                let record = FileRecord::new(FileState::Begun, file.version(), at_unix_s);
                table.insert(file.path.to_bytes().as_slice(), record.write().as_slice())?;
            }
            Ok(())
        });
        begun.map_err(|error| self.store_error(error))
    }

    fn took(&self, taken: &[TakenFile]) -> Result<(), StateStoreError> {
        let at_unix_s = now_unix_s();
        let took = self.commit(|transaction| {
            let mut files = transaction.open_table(FILES)?;
            let mut calls = transaction.open_table(CALLS)?;
            let mut numbers = transaction.open_table(NUMBERS)?;
            let mut number = numbers.get(NEXT_CALL)?.map_or(0, |it| it.value());
            for taken in taken {
                let path = taken.path.to_bytes();
                let before = files.get(path.as_slice())?;
                let before = before.and_then(|it| read_record(it.value()));
                let was_begun = before.is_some_and(|it| it.state == FileState::Begun);
                let record = FileRecord::new(FileState::Taken, taken.version, at_unix_s);
                files.insert(path.as_slice(), record.write().as_slice())?;
                // An earlier run may have moved the file, but may have been killed before it
                // recorded the move.
                if self.calls && (taken.is_moved || was_begun) {
                    calls.insert(number, CallRecord::of(&path, taken.version).as_slice())?;
                    number += 1;
                }
            }
            numbers.insert(NEXT_CALL, number)?;
            Ok(())
        });
        took.map_err(|error| self.store_error(error))?;
        let mut run = self.run.lock().expect("nobody panics with it");
        for taken in taken {
            run.settling.remove(&taken.path.to_bytes());
        }
        Ok(())
    }

    fn removed(&self, paths: &[RelativePath]) -> Result<(), StateStoreError> {
        let removed = self.commit(|transaction| {
            let mut files = transaction.open_table(FILES)?;
            for path in paths {
                files.remove(path.to_bytes().as_slice())?;
            }
            Ok(())
        });
        removed.map_err(|error| self.store_error(error))
    }
}

impl RunFiles {
    /// Returns whether a file has been the same in all listings for the settle time.
    fn is_settled(
        &mut self,
        path: &[u8],
        version: FileVersion,
        now: Instant,
        settle: Duration,
    ) -> bool {
        let run = self.number;
        if let Some(settling) = self.settling.get_mut(path) {
            settling.run = run;
            if !settling.version.is_same_as(&version) {
                (settling.version, settling.since) = (version, now);
            }
            return now.saturating_duration_since(settling.since) >= settle;
        }
        // If more than `SETTLING_MAX` files are unsettled, the additional files wait until the
        // first files are settled.
        if self.settling.len() < SETTLING_MAX {
            let since = now;
            let settling = UnsettledFile {
                version,
                since,
                run,
            };
            self.settling.insert(path.to_vec(), settling);
        }
        false
    }
}

impl FileRecord {
    fn new(state: FileState, version: FileVersion, at_unix_s: i64) -> Self {
        Self {
            state,
            size_bytes: version.size_bytes,
            modified_unix_s: version.modified.map(|it| it.unix_s),
            unit_s: match version.modified.map(|it| it.precision) {
                None | Some(TimePrecision::Second) => 1,
                Some(TimePrecision::Minute) => 60,
                Some(TimePrecision::Day) => 86_400,
            },
            at_unix_s,
        }
    }

    fn version(&self) -> FileVersion {
        let precision = match self.unit_s {
            ..=1 => TimePrecision::Second,
            2..=60 => TimePrecision::Minute,
            _ => TimePrecision::Day,
        };
        FileVersion {
            size_bytes: self.size_bytes,
            modified: self
                .modified_unix_s
                .map(|unix_s| ModifiedTime { unix_s, precision }),
        }
    }

    fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain numbers")
    }
}

impl CallRecord {
    fn of(path: &[u8], version: FileVersion) -> Vec<u8> {
        let record = Self {
            path: path.iter().map(|it| format!("{it:02x}")).collect(),
            size_bytes: version.size_bytes,
            modified_unix_s: version.modified.map(|it| it.unix_s),
        };
        serde_json::to_vec(&record).expect("plain text and numbers")
    }
}

fn read_record(bytes: &[u8]) -> Option<FileRecord> {
    serde_json::from_slice(bytes).ok()
}

fn call(number: u64, record: &[u8]) -> Option<PendingCall> {
    let record: CallRecord = serde_json::from_slice(record).ok()?;
    let digits = record.path.as_bytes().chunks(2);
    let bytes = digits.map(|it| u8::from_str_radix(str::from_utf8(it).ok()?, 16).ok());
    Some(PendingCall {
        number,
        path: bytes.collect::<Option<Vec<u8>>>()?,
        size_bytes: record.size_bytes,
        modified_unix_s: record.modified_unix_s,
    })
}

/// Opens a memory file, or creates it. An empty file counts as damaged.
fn open_file(system: &dyn FileSystem, name: &str, path: &Path) -> Result<Database, MemoryError> {
    let path_bytes = path.as_os_str().as_bytes();
    let file_name = last_name(path_bytes);
    let found = || {
        let folder = open_state_folder(system, parent(path_bytes).unwrap_or_default())?;
        let found = stat(&*folder, &file_name)?;
        Ok((folder, found))
    };
    let (folder, found) =
        found().map_err(|error: io::Error| unusable(name, path, StorageError::Io(error)))?;
    if found.is_some_and(|it| it.size_bytes == 0) {
        return Err(damaged(name, path, "it is empty".to_owned()));
    }
    match open_store(&*folder, &file_name) {
        Ok(database) => {
            if found.is_none() {
                let synced = sync_above(system, path_bytes, FOLDERS_ABOVE);
                synced.map_err(|error| unusable(name, path, StorageError::Io(error)))?;
            }
            Ok(database)
        }
        Err(DatabaseError::DatabaseAlreadyOpen) => Err(MemoryError::Running(name.to_owned())),
        Err(error) => Err(unusable(name, path, error)),
    }
}

/// Classifies an error. If the error comes from the operating system, the file remains usable. Any
/// other error means that the file is damaged.
fn unusable(name: &str, path: &Path, error: impl Into<redb::Error>) -> MemoryError {
    let error = error.into();
    let is_of_system = match &error {
        redb::Error::Io(error) => !matches!(
            error.kind(),
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof
        ),
        redb::Error::PreviousIo | redb::Error::DatabaseClosed => true,
        _ => false,
    };
    match is_of_system {
        true => MemoryError::File {
            name: name.to_owned(),
            path: path.to_owned(),
            source: Box::new(error),
        },
        false => damaged(name, path, error.to_string()),
    }
}

fn damaged(name: &str, path: &Path, reason: String) -> MemoryError {
    MemoryError::Damaged {
        name: name.to_owned(),
        path: path.to_owned(),
        reason,
    }
}

#[allow(clippy::disallowed_methods, reason = "dates what is written")]
fn now_unix_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

const FILES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("files");
const CALLS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("calls");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const TEXTS: TableDefinition<'_, &str, &str> = TableDefinition::new("texts");

const IDENTITY: &str = "identity";
const LAST_START: &str = "last start";
const IS_OPEN: &str = "open";
const NEXT_CALL: &str = "next call";

/// Number of parent folders to sync after a memory file is created. These folders may be as new as
/// the file.
const FOLDERS_ABOVE: usize = 3;

/// Maximum number of unsettled source files that are tracked in memory. Each entry needs about 100
/// bytes.
const SETTLING_MAX: usize = 100_000;
