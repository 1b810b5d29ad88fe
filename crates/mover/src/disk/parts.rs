//! Table of open part files (incomplete files), with their locks.
//!
//! Each part file has one lock, and each lane that writes to it has its own descriptor. The
//! operating system reports a write-back error once to each descriptor. A lane must receive that
//! error before the lane records its bytes in the journal.

use std::{
    collections::HashMap,
    io::{self, ErrorKind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::{
    FolderEntry,
    system::{FileAccess, FileKind, FileStat, OWNER_ALONE, OpenFile, OpenMode},
};

/// Locked descriptors of all open part files, by the paths of the parts.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenParts(Arc<Mutex<LockedParts>>);

/// Locked descriptors, by the paths of the part files.
type LockedParts = HashMap<Vec<u8>, Weak<dyn OpenFile>>;

/// An open part file. The part stays locked until this process has dropped all open descriptors of
/// the part.
#[derive(Debug)]
struct LockedPart {
    parts: OpenParts,
    /// The locked descriptor. `None` once this value is being dropped.
    locked: Option<Arc<dyn OpenFile>>,
    /// The descriptor for writing. `None` if the locked descriptor is used for writing.
    own: Option<Arc<dyn OpenFile>>,
}

impl OpenParts {
    /// Adds a part file that was just created and locked.
    pub(super) fn add(&self, part: &[u8], locked: Arc<dyn OpenFile>) -> Arc<dyn OpenFile> {
        note(&mut self.lock(), part, &locked);
        self.opened(locked, None)
    }

    /// Opens a part file. Locks the part unless this process already holds the lock.
    pub(super) fn open(&self, part: &[u8], place: &FolderEntry) -> io::Result<Arc<dyn OpenFile>> {
        // The table stays locked here. Two lanes that open the same part at the same time therefore
        // do not exclude each other.
        let mut parts = self.lock();
        let known = parts.get(part).and_then(Weak::upgrade);
        let locked = match known {
            Some(locked) if place.has(&*locked)? => locked,
            _ => {
                let locked = lock(place)?;
                note(&mut parts, part, &locked);
                locked
            }
        };
        let own = place.folder.open(&place.name, OpenMode::Write)?;
        let (ours, theirs) = (own.stat()?, locked.stat()?);
        if (ours.device, ours.inode) != (theirs.device, theirs.inode) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(self.opened(locked, Some(own)))
    }

    fn opened(
        &self,
        locked: Arc<dyn OpenFile>,
        own: Option<Arc<dyn OpenFile>>,
    ) -> Arc<dyn OpenFile> {
        Arc::new(LockedPart {
            parts: self.clone(),
            locked: Some(locked),
            own,
        })
    }

    fn lock(&self) -> MutexGuard<'_, LockedParts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a part file, locks it, and denies other users permission to read it.
fn lock(place: &FolderEntry) -> io::Result<Arc<dyn OpenFile>> {
    let file = place.folder.open(&place.name, OpenMode::Write)?;
    let stat = file.stat()?;
    // A part must have no other hard link, because that link could be in any folder.
    if stat.kind != FileKind::File || stat.names > 1 {
        return Err(io::Error::other("the part was replaced by something else"));
    }
    if file.try_lock()? == Some(false) {
        return Err(ErrorKind::AlreadyExists.into());
    }
    if !place.has(&*file)? {
        // Another process removed the part before this process locked it.
        return Err(ErrorKind::NotFound.into());
    }
    if stat.access.mode & !OWNER_ALONE != 0 {
        let access = FileAccess {
            mode: OWNER_ALONE,
            ..stat.access
        };
        // A mount that determines permissions refuses the change.
        let _ = file.set_access(access);
    }
    Ok(file)
}

/// Adds an open part file to the table, and removes closed parts.
fn note(parts: &mut LockedParts, part: &[u8], file: &Arc<dyn OpenFile>) {
    parts.retain(|_, it| it.strong_count() > 0);
    parts.insert(part.to_vec(), Arc::downgrade(file));
}

impl LockedPart {
    fn file(&self) -> &dyn OpenFile {
        let file = self.own.as_ref().or(self.locked.as_ref());
        &**file.expect("a part is locked until it is dropped")
    }
}

impl Drop for LockedPart {
    fn drop(&mut self) {
        // Because of the guard, a concurrent `open` finds the part either locked by this process,
        // or unlocked.
        let parts = self.parts.clone();
        let guard = parts.lock();
        self.locked = None;
        drop(guard);
    }
}

impl OpenFile for LockedPart {
    fn stat(&self) -> io::Result<FileStat> {
        self.file().stat()
    }

    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        self.file().read_at(bytes, offset_bytes)
    }

    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.file().write_at(bytes, offset_bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file().set_len(bytes)
    }

    fn set_modified(&self, unix_s: i64) -> io::Result<()> {
        self.file().set_modified(unix_s)
    }

    fn set_access(&self, access: FileAccess) -> io::Result<()> {
        self.file().set_access(access)
    }

    fn sync(&self) -> io::Result<()> {
        self.file().sync()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file().sync_data()
    }

    fn try_lock(&self) -> io::Result<Option<bool>> {
        match &self.locked {
            Some(locked) => locked.try_lock(),
            None => Ok(Some(false)),
        }
    }

    fn is_being_written(&self) -> Option<bool> {
        self.file().is_being_written()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
        thread,
    };

    use super::super::{FilesRole, LocalFiles, faulty::FaultyDisk};

    /// The operating system reports a write-back error once to each descriptor.
    #[test]
    fn each_lane_hears_of_an_error_of_the_write_back() {
        let disk = FaultyDisk::new(1);
        disk.put_folder("/there");
        let side = FilesRole::Destination {
            removes_sources: false,
        };
        let files = LocalFiles::new(std::sync::Arc::new(disk.clone()), [], side);
        let part = b"/there/film.part";
        drop(files.create_part(part).expect("room"));
        let lanes = [(); 2].map(|()| files.open_part(part).expect("there"));
        for (lane, at) in lanes.iter().zip([0, 100]) {
            lane.write_at(b"bytes", at).expect("room");
        }
        disk.fail_write_back("/there/film.part");
        for lane in &lanes {
            lane.sync().expect_err("the bytes are lost");
        }
        lanes[0].sync().expect("reported before");
    }

    #[test]
    fn a_part_of_an_earlier_version_is_its_owners_alone_once_it_is_open() {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("a.part");
        fs::write(&path, b"x").expect("room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
        let files = LocalFiles::without_roots();
        let _open = files
            .open_part(path.as_os_str().as_bytes())
            .expect("nobody has it");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_part_that_closes_shuts_no_lane_of_this_process_out() {
        let folder = tempfile::tempdir().expect("room");
        let part = folder.path().join("a.part").as_os_str().as_bytes().to_vec();
        let files = LocalFiles::without_roots();
        drop(files.create_part(&part).expect("room"));
        let lanes = [(); 3].map(|()| {
            let (files, part) = (files.clone(), part.clone());
            thread::spawn(move || {
                for _ in 0..1_000 {
                    drop(files.open_part(&part).expect("no other process has it"));
                }
            })
        });
        for lane in lanes {
            lane.join().expect("no lane is shut out");
        }
    }
}
