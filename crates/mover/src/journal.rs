//! Journal of a job. The journal records the source of each part (incomplete file) at the
//! destination, and survives restarts and power cuts.
//!
//! A part is resumed only if its source still has the size and the modification time that it had
//! when the part was created.

use std::{
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::{Deserialize, Serialize};

use crate::{
    disk::{
        MachineFileSystem,
        store::{open_state_folder, open_store},
        system::{FileSystem, Folder},
    },
    names::{last_name, local},
    part_name::{names_of_key, path_of_key},
    plan::Piece,
};

/// The journal of one job.
#[derive(Debug)]
pub struct Journal {
    database: Database,
    folder: Arc<dyn Folder>,
    /// Name of the journal file in its folder.
    name: Vec<u8>,
    mark: u32,
    /// Whether the journal file is deleted when the journal is dropped and no part file remains.
    is_one_off: bool,
}

/// Attributes of the source file from which a part file is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartOrigin {
    /// Size of the source file in bytes.
    pub size_bytes: u64,
    /// Modification time of the source file, in seconds since 1970.
    pub modified_unix_s: i64,
    /// Nanoseconds of the modification time. Zero if the source is a server.
    #[serde(default)]
    pub modified_ns: i64,
}

/// Journal record of a part file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// Attributes of the source file.
    #[serde(flatten)]
    pub origin: PartOrigin,
    /// Number of bytes of a local part file that survive a power cut. Zero for a part file at a
    /// server.
    #[serde(default)]
    pub synced_bytes: u64,
    /// Identifier of a boot of this machine. All bytes after `synced_bytes` were written after that
    /// boot.
    #[serde(default)]
    pub boot: Option<u64>,
    /// Digits in the part file's name. `None` if these digits are the hash of the source.
    #[serde(default)]
    pub digits: Option<u32>,
}

/// Stored record of a file that is moved in pieces.
#[derive(Debug, Serialize, Deserialize)]
struct StoredPieces {
    #[serde(flatten)]
    origin: PartOrigin,
    /// Begin and end offsets of each finished piece, in bytes.
    done: Vec<(u64, u64)>,
    /// Digits in the part file's name. `None` if these digits are the hash of the source.
    #[serde(default)]
    digits: Option<u32>,
}

/// Record of a file that is moved in pieces (byte ranges).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PiecesRecord {
    /// Attributes of the source file.
    pub origin: PartOrigin,
    /// Pieces that are finished.
    pub done: Vec<Piece>,
    /// Digits in the part file's name. `None` if these digits are the hash of the source.
    pub digits: Option<u32>,
}

impl PartRecord {
    /// Creates the record of a new part file.
    pub fn new(origin: PartOrigin, boot: Option<u64>) -> Self {
        Self {
            origin,
            synced_bytes: 0,
            boot,
            digits: None,
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.is_one_off && self.left().is_ok_and(|it| it.is_empty()) {
            // If the file cannot be removed, the next run finds an empty journal.
            let _ = self.folder.remove_file(&self.name);
        }
    }
}

/// A part (incomplete file) that an interrupted run has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftPart {
    /// Key of the part file's record in the journal.
    pub key: Vec<u8>,
    /// Paths that the part file may have at the destination. The second path is used if the
    /// destination refuses long names.
    pub names: Vec<Vec<u8>>,
    /// Final path of the file, if the key contains it.
    pub path: Option<Vec<u8>>,
}

impl LeftPart {
    /// Returns whether the part file's paths are absolute. An earlier version recorded paths that
    /// are relative to the working directory.
    pub(crate) fn is_absolute(&self) -> bool {
        self.key.starts_with(b"/")
    }
}

/// Digits in a part file's name. Records of parts and records of pieces both contain this field.
#[derive(Deserialize)]
struct PartDigits {
    #[serde(default)]
    digits: Option<u32>,
}

/// An error that prevents the use of a journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process is running the same job.
    #[error("another process does the same job ({0})")]
    Running(PathBuf),
    /// The journal's folder cannot be created.
    #[error("the folder {path} cannot be made")]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// The file system's error.
        #[source]
        source: io::Error,
    },
    /// The journal file cannot be used.
    #[error("the journal {path} cannot be used")]
    File {
        /// Path of the journal file.
        path: PathBuf,
        /// The database's error.
        #[source]
        source: Box<redb::Error>,
    },
}

impl Journal {
    /// Opens the journal of the job with this name in `folder`, or creates it.
    ///
    /// # Errors
    /// [`JournalError`] if another process runs the same job, or if the file cannot be used.
    pub fn open(folder: &Path, job: &str) -> Result<Self, JournalError> {
        Self::open_on(&MachineFileSystem, folder.as_os_str().as_bytes(), job)
    }

    /// Opens a journal as [`open`](Self::open) does, on any file system.
    pub(crate) fn open_on(
        system: &dyn FileSystem,
        folder_path: &[u8],
        job: &str,
    ) -> Result<Self, JournalError> {
        let hash = xxhash_rust::xxh3::xxh3_128(job.as_bytes());
        let path = local(folder_path).join(format!("{hash:032x}.redb"));
        let name = last_name(path.as_os_str().as_bytes());
        let folder = open_state_folder(system, folder_path);
        let folder = folder.map_err(|source| JournalError::Folder {
            path: local(folder_path),
            source,
        })?;
        match open_store(&*folder, &name) {
            Ok(database) => Ok(Self {
                database,
                folder,
                name,
                mark: hash as u32,
                is_one_off: false,
            }),
            Err(DatabaseError::DatabaseAlreadyOpen) => Err(JournalError::Running(path)),
            Err(error) => Err(JournalError::File {
                path,
                source: Box::new(error.into()),
            }),
        }
    }

    /// Makes the journal a temporary journal. If no part file remains when the journal is dropped,
    /// the journal deletes its own file. The function is used for a job that may never run again.
    pub fn one_off(mut self) -> Self {
        self.is_one_off = true;
        self
    }

    /// Returns the part files that interrupted runs have left at the destination.
    ///
    /// # Errors
    /// An error of the journal file.
    pub fn left(&self) -> Result<Vec<LeftPart>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let mut left = Vec::new();
        for table in [PARTS, PIECES] {
            let table = match transaction.open_table(table) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            for entry in table.iter()? {
                let (key, value) = entry?;
                let named: Option<PartDigits> = serde_json::from_slice(value.value()).ok();
                let digits = named.and_then(|it| it.digits);
                left.push(LeftPart {
                    key: key.value().to_vec(),
                    names: names_of_key(key.value(), digits),
                    path: path_of_key(key.value()).map(<[u8]>::to_vec),
                });
            }
        }
        Ok(left)
    }

    /// Returns a number that distinguishes the part files of this job from the parts of other jobs.
    pub fn mark(&self) -> u32 {
        self.mark
    }

    /// Returns the folder that contains all journals. The folder is below `XDG_STATE_HOME`, or
    /// below `~/.local/state` if that variable is not set.
    pub fn folder() -> Option<PathBuf> {
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let state = state.filter(|it| it.is_absolute()).or_else(|| {
            let home = std::env::var_os("HOME").filter(|it| !it.is_empty())?;
            Some(Path::new(&home).join(".local/state"))
        });
        Some(state?.join("longhaul/jobs"))
    }

    /// Records that a part file was created or has grown. When the function returns, the record
    /// survives a power cut.
    ///
    /// # Errors
    /// An error of the journal file.
    pub fn begin(&self, name: &[u8], part: PartRecord) -> Result<(), redb::Error> {
        let record = serde_json::to_vec(&part).expect("plain numbers");
        let transaction = self.database.begin_write()?;
        transaction
            .open_table(PARTS)?
            .insert(name, record.as_slice())?;
        Ok(transaction.commit()?)
    }

    /// Returns the record of a part file, or `None` if the journal has no such record.
    ///
    /// # Errors
    /// An error of the journal file.
    pub fn part(&self, name: &[u8]) -> Result<Option<PartRecord>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let table = match transaction.open_table(PARTS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let record = table.get(name)?;
        Ok(record.and_then(|it| serde_json::from_slice(it.value()).ok()))
    }

    /// Creates the record of a file that is moved in pieces. When the function returns, the record
    /// survives a power cut.
    ///
    /// # Errors
    /// An error of the journal file.
    pub fn begin_pieces(
        &self,
        name: &[u8],
        origin: PartOrigin,
        digits: Option<u32>,
    ) -> Result<(), redb::Error> {
        let done = Vec::new();
        let begun = StoredPieces {
            origin,
            done,
            digits,
        };
        self.write_pieces(name, |_| Some(begun))
    }

    /// Records a piece that is synced at the destination. When the function returns, the record
    /// survives a power cut.
    ///
    /// # Errors
    /// An error of the journal file.
    pub fn add_piece(&self, name: &[u8], piece: Piece) -> Result<(), redb::Error> {
        self.write_pieces(name, |known| {
            let mut known = known?;
            let begins = |it: &&mut (u64, u64)| it.0 == piece.begin;
            match known.done.iter_mut().find(begins) {
                Some((_, end)) => *end = piece.end.max(*end),
                None => known.done.push((piece.begin, piece.end)),
            }
            Some(known)
        })
    }

    /// Removes the record of a file that was moved in pieces.
    ///
    /// # Errors
    /// An error of the journal file.
    pub fn end_pieces(&self, name: &[u8]) -> Result<(), redb::Error> {
        self.write_pieces(name, |_| None)
    }

    /// Returns the record of a file that is moved in pieces: its source and its finished pieces.
    ///
    /// # Errors
    /// An error of the journal file.
    pub fn pieces(&self, name: &[u8]) -> Result<Option<PiecesRecord>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let table = match transaction.open_table(PIECES) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let record = table.get(name)?;
        let known: Option<StoredPieces> =
            record.and_then(|it| serde_json::from_slice(it.value()).ok());
        Ok(known.map(|it| {
            let pieces = it.done.into_iter();
            let pieces = pieces.map(|(begin, end)| Piece { begin, end });
            PiecesRecord {
                origin: it.origin,
                done: pieces.collect(),
                digits: it.digits,
            }
        }))
    }

    fn write_pieces(
        &self,
        name: &[u8],
        change: impl FnOnce(Option<StoredPieces>) -> Option<StoredPieces>,
    ) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(PIECES)?;
            let record = table.get(name)?;
            let known = record.and_then(|it| serde_json::from_slice(it.value()).ok());
            match change(known) {
                Some(done) => {
                    let record = serde_json::to_vec(&done).expect("plain numbers");
                    table.insert(name, record.as_slice())?;
                }
                None => {
                    table.remove(name)?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    /// Removes all records of a part file, including records of pieces.
    ///
    /// # Errors
    /// An error of the journal file.
    pub fn end(&self, part: &[u8]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(PARTS)?.remove(part)?;
        transaction.open_table(PIECES)?.remove(part)?;
        Ok(transaction.commit()?)
    }
}

const PIECES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("pieces");

const PARTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("parts");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_known_until_it_ends_and_over_a_restart() {
        let folder = tempfile::tempdir().expect("room");
        let origin = PartOrigin {
            size_bytes: 5,
            modified_unix_s: -7,
            modified_ns: 3,
        };
        let part = PartRecord {
            synced_bytes: 4,
            ..PartRecord::new(origin, Some(u64::MAX))
        };
        let open = |job| Journal::open(folder.path(), job);
        let journal = open("a").expect("a journal");
        assert_eq!(journal.part(b"x.part").expect("read"), None);
        journal.begin(b"x.part", part).expect("written");
        assert!(matches!(open("a"), Err(JournalError::Running(_))));
        drop(journal);
        let journal = open("a").expect("a journal");
        assert_eq!(journal.part(b"x.part").expect("read"), Some(part));
        let other = open("b").expect("another job's");
        assert_eq!(other.part(b"x.part").expect("read"), None);
        journal.end(b"x.part").expect("written");
        assert_eq!(journal.part(b"x.part").expect("read"), None);
    }

    #[test]
    fn the_file_of_a_job_that_is_done_goes_and_one_with_a_part_stays() {
        let folder = tempfile::tempdir().expect("room");
        let open = || {
            Journal::open(folder.path(), "a")
                .expect("a journal")
                .one_off()
        };
        let files = || std::fs::read_dir(folder.path()).expect("a folder").count();
        let part = PartRecord::new(
            PartOrigin {
                size_bytes: 5,
                modified_unix_s: 7,
                modified_ns: 0,
            },
            None,
        );
        drop(open());
        assert_eq!(files(), 0);
        let journal = open();
        journal.begin(b"x.part", part).expect("written");
        journal
            .begin_pieces(b"y.part", part.origin, None)
            .expect("written");
        drop(journal);
        assert_eq!(files(), 1);
        let journal = open();
        let left = journal.left().expect("read");
        let keys: Vec<_> = left.into_iter().map(|it| it.key).collect();
        assert_eq!(keys, [b"x.part".to_vec(), b"y.part".to_vec()]);
        journal.end(b"x.part").expect("written");
        journal.end_pieces(b"y.part").expect("written");
        drop(journal);
        assert_eq!(files(), 0);
    }

    #[test]
    fn pieces_grow_and_end() {
        let folder = tempfile::tempdir().expect("room");
        let journal = Journal::open(folder.path(), "a").expect("a journal");
        let origin = PartOrigin {
            size_bytes: 50,
            modified_unix_s: 7,
            modified_ns: 0,
        };
        let piece = |begin, end| Piece { begin, end };
        let known = || journal.pieces(b"x").expect("read");
        journal.add_piece(b"x", piece(0, 5)).expect("written");
        assert_eq!(known(), None, "it has not begun");
        journal
            .begin_pieces(b"x", origin, Some(7))
            .expect("written");
        for (begin, end) in [(10, 12), (0, 5), (10, 20)] {
            journal.add_piece(b"x", piece(begin, end)).expect("written");
        }
        let begun = PiecesRecord {
            origin,
            done: vec![piece(10, 20), piece(0, 5)],
            digits: Some(7),
        };
        assert_eq!(known(), Some(begun));
        journal.end_pieces(b"x").expect("written");
        assert_eq!(known(), None);
    }
}
