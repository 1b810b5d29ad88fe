//! Databases of Longhaul's own state. A file is the storage of a `redb` database.
//!
//! A new database receives its final name after it is complete and synced. Only one process at a
//! time may open it.

use std::{
    io::{self, ErrorKind},
    sync::Arc,
};

use redb::{Database, DatabaseError, StorageBackend};

use super::system::{FileKind, FileStat, FileSystem, Folder, LinkPolicy, OpenFile, OpenMode};
use crate::names::{last_name, parent};

/// A file as the storage of a database.
#[derive(Debug)]
struct StoreFile(Arc<dyn OpenFile>);

impl StorageBackend for StoreFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.stat()?.size_bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < out.len() {
            match self.0.read_at(&mut out[filled..], offset + filled as u64)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)
    }
}

/// Opens the database `name` in a folder, or creates it. When the function returns, a new database
/// survives a power cut.
///
/// # Errors
/// [`DatabaseError::DatabaseAlreadyOpen`] if this process or another process has the database open.
pub(crate) fn open_store(folder: &dyn Folder, name: &[u8]) -> Result<Database, DatabaseError> {
    let new = [name, NEW].concat();
    for _ in 0..ATTEMPTS_MAX {
        match folder.open(name, OpenMode::Write) {
            Ok(file) => match lock(folder, name, &file)? {
                true => return database(file),
                false => continue,
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let file = match folder.open(&new, OpenMode::New) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Another process is still creating the database, or ended before the database was
                // complete.
                let left = folder.open(&new, OpenMode::Write)?;
                if lock(folder, &new, &left)? {
                    folder.remove_file(&new)?;
                }
                continue;
            }
            file => file?,
        };
        if !lock(folder, &new, &file)? || stat(folder, name)?.is_some() {
            continue;
        }
        let database = database(file)?;
        folder.rename(&new, name)?;
        folder.sync()?;
        return Ok(database);
    }
    Err(io::Error::other("other processes replace the file again and again").into())
}

/// Returns the attributes of a name in a folder, or `None` if the name does not exist.
pub(crate) fn stat(folder: &dyn Folder, name: &[u8]) -> io::Result<Option<FileStat>> {
    match folder.stat(name, LinkPolicy::Refuse) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a folder for Longhaul's own state. Creates the folder and missing parent folders. When the
/// function returns, the folder survives a power cut.
pub(crate) fn open_state_folder(
    system: &dyn FileSystem,
    path: &[u8],
) -> io::Result<Arc<dyn Folder>> {
    match system.open_folder(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened,
    }
    let above = match parent(path) {
        Some(above) => open_state_folder(system, above)?,
        None => system.open_folder(b"")?,
    };
    match above.make_folder(&last_name(path)) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    above.sync()?;
    system.open_folder(path)
}

/// Syncs the `count` folders above a path, so that the names in them survive a power cut.
///
/// If this process has no permission to open a folder, the folder is skipped. Such a folder belongs
/// to another user, and is old enough to be on the disk already.
pub(crate) fn sync_above(system: &dyn FileSystem, path: &[u8], count: usize) -> io::Result<()> {
    let mut above = parent(path);
    for _ in 0..count {
        let Some(path) = above else {
            break;
        };
        match system.open_folder(path).and_then(|it| it.sync()) {
            Err(error) if error.kind() != ErrorKind::PermissionDenied => return Err(error),
            _ => above = parent(path),
        }
    }
    Ok(())
}

/// Locks a file. Returns false if the name now leads to another file.
///
/// # Errors
/// An error if this process or another process holds the lock. Also an error if the file system has
/// no locks, because two processes could then write to one database.
fn lock(folder: &dyn Folder, name: &[u8], file: &Arc<dyn OpenFile>) -> Result<bool, DatabaseError> {
    let ours = file.stat()?;
    if ours.kind != FileKind::File {
        return Err(io::Error::other("it is no regular file").into());
    }
    match file.try_lock()? {
        Some(true) => {}
        Some(false) => return Err(DatabaseError::DatabaseAlreadyOpen),
        None => return Err(io::Error::new(ErrorKind::Unsupported, NO_LOCKS).into()),
    }
    let there = stat(folder, name)?;
    Ok(there.is_some_and(|it| {
        it.kind == FileKind::File && (it.device, it.inode) == (ours.device, ours.inode)
    }))
}

fn database(file: Arc<dyn OpenFile>) -> Result<Database, DatabaseError> {
    Database::builder().create_with_backend(StoreFile(file))
}

/// Error text for the user. The text states the reason and the next step.
const NO_LOCKS: &str = "the file system of this folder has no locks, so two processes could write to one database: set \
                        XDG_STATE_HOME, or the agent's folder of state, to one on a local disk";

/// Maximum number of attempts to open a database while other processes create and remove it.
const ATTEMPTS_MAX: usize = 64;

/// Suffix of a new database that is not yet complete.
const NEW: &[u8] = b".new";

#[cfg(test)]
mod tests {
    use super::{
        super::{MachineFileSystem, faulty::FaultyDisk},
        *,
    };

    #[test]
    fn a_database_is_refused_where_no_lock_guards_it() {
        let disk = FaultyDisk::new(1);
        let folder = open_state_folder(&disk, b"/state").expect("a folder");
        drop(open_store(&*folder, b"a").expect("made"));
        disk.lack_locks();
        for name in [&b"a"[..], b"b"] {
            let refused = open_store(&*folder, name).expect_err("no locks");
            assert!(refused.to_string().contains("has no locks"), "{refused}");
        }
    }

    #[test]
    fn a_pipe_is_no_database() {
        let place = tempfile::tempdir().expect("room");
        for name in ["a", "b.new"] {
            let path = place.path().join(name);
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("room");
        }
        let path = place.path().as_os_str().as_encoded_bytes();
        let folder = open_state_folder(&MachineFileSystem, path).expect("a folder");
        for name in [&b"a"[..], b"b"] {
            let refused = open_store(&*folder, name).expect_err("a pipe");
            assert!(refused.to_string().contains("no regular file"), "{refused}");
        }
    }

    #[test]
    fn a_database_is_one_openings_alone_and_one_that_was_being_made_is_made_anew() {
        let disk = FaultyDisk::new(1);
        disk.put("/state/a.new", b"half of a database", 7);
        let folder = open_state_folder(&disk, b"/state").expect("a folder");
        let first = open_store(&*folder, b"a").expect("made");
        let second = open_store(&*folder, b"a");
        assert!(matches!(second, Err(DatabaseError::DatabaseAlreadyOpen)));
        drop(first);
        open_store(&*folder, b"a").expect("free");
        assert_eq!(disk.files("/state").len(), 1);
        open_state_folder(&disk, b"/new/folder").expect("made");
        disk.restart();
        disk.open_folder(b"/new/folder")
            .expect("it outlives a power cut");
    }
}
