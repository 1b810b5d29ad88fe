//! The journal of a job: which source each part at the destination is of. It outlives the process and a power cut.
//!
//! A part is gone on with only if its source is, by size and time, what it was when the part was begun.

use std::{
    io,
    path::{Path, PathBuf},
};

use redb::{Database, DatabaseError, ReadableDatabase as _, TableDefinition};
use serde::{Deserialize, Serialize};

/// The parts of one job.
#[derive(Debug)]
pub struct Journal {
    database: Database,
}

/// The source of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// Bytes of the file.
    pub size_bytes: u64,
    /// Time of its last change, in seconds since 1970,
    pub modified_unix_s: i64,
    /// and nanoseconds. Of a file at a server, zero.
    #[serde(default)]
    pub modified_ns: i64,
}

/// What is known of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The source.
    #[serde(flatten)]
    pub origin: Origin,
    /// Of a part of this machine: bytes that outlive a power cut,
    #[serde(default)]
    pub synced_bytes: u64,
    /// and the start of this machine during which the others were written.
    #[serde(default)]
    pub boot: Option<u64>,
}

impl Part {
    /// A part that is begun.
    pub fn new(origin: Origin, boot: Option<u64>) -> Self {
        Self {
            origin,
            synced_bytes: 0,
            boot,
        }
    }
}

/// A journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The same job runs already.
    #[error("another process does the same job ({0})")]
    Running(PathBuf),
    /// The folder cannot be made.
    #[error("the folder {path} cannot be made")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file cannot be used.
    #[error("the journal {path} cannot be used")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
}

impl Journal {
    /// Opens the journal of the job with this name in `folder`, or begins one.
    ///
    /// # Errors
    /// [`JournalError`] if the job runs already, or the file cannot be used.
    pub fn open(folder: &Path, job: &str) -> Result<Self, JournalError> {
        std::fs::create_dir_all(folder).map_err(|source| JournalError::Folder {
            path: folder.to_owned(),
            source,
        })?;
        let path = folder.join(format!(
            "{:032x}.redb",
            xxhash_rust::xxh3::xxh3_128(job.as_bytes())
        ));
        match Database::create(&path) {
            Ok(database) => Ok(Self { database }),
            Err(DatabaseError::DatabaseAlreadyOpen) => Err(JournalError::Running(path)),
            Err(error) => Err(JournalError::File {
                path,
                source: Box::new(error.into()),
            }),
        }
    }

    /// Where journals are: below `XDG_STATE_HOME`, else below `~/.local/state`.
    pub fn folder() -> Option<PathBuf> {
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let state = state.filter(|it| it.is_absolute()).or_else(|| {
            let home = std::env::var_os("HOME").filter(|it| !it.is_empty())?;
            Some(Path::new(&home).join(".local/state"))
        });
        Some(state?.join("longhaul/jobs"))
    }

    /// A part is begun, or has grown. On return this outlives a power cut.
    ///
    /// # Errors
    /// That of the file.
    pub fn begin(&self, name: &[u8], part: Part) -> Result<(), redb::Error> {
        let record = serde_json::to_vec(&part).expect("plain numbers");
        let transaction = self.database.begin_write()?;
        transaction
            .open_table(PARTS)?
            .insert(name, record.as_slice())?;
        Ok(transaction.commit()?)
    }

    /// What is known of a part.
    ///
    /// # Errors
    /// That of the file.
    pub fn part(&self, name: &[u8]) -> Result<Option<Part>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let table = match transaction.open_table(PARTS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let record = table.get(name)?;
        Ok(record.and_then(|it| serde_json::from_slice(it.value()).ok()))
    }

    /// A part is none any more.
    ///
    /// # Errors
    /// That of the file.
    pub fn end(&self, part: &[u8]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(PARTS)?.remove(part)?;
        Ok(transaction.commit()?)
    }
}

const PARTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("parts");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_known_until_it_ends_and_over_a_restart() {
        let folder = tempfile::tempdir().expect("room");
        let origin = Origin {
            size_bytes: 5,
            modified_unix_s: -7,
            modified_ns: 3,
        };
        let part = Part {
            synced_bytes: 4,
            ..Part::new(origin, Some(u64::MAX))
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
}
