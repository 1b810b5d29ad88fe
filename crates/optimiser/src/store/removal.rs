//! Removal of a store without opening it, and a check whether a process has it open.

use std::{
    fs::{self, TryLockError},
    io,
    path::Path,
};

use super::{LOCK_FILE, StoreOpenError, identity, live_segments};

/// Returns whether a process has opened the store in a folder. During this call, another process
/// that opens the store may get the error that the store is in use.
///
/// # Errors
/// The error of reading the folder.
pub fn is_in_use(folder: &Path) -> io::Result<bool> {
    let file = match fs::File::open(folder.join(LOCK_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the content of the store in a folder, unless a process has the store open. The next
/// process that opens the store finds it empty.
///
/// This function creates no file. All files therefore keep their owner, even if another user calls
/// the function.
///
/// # Errors
/// [`StoreOpenError::InUse`] if a process has the store open. [`StoreOpenError::Folder`] if the
/// folder cannot be read or a file cannot be removed. In this case, some of the files may already
/// be removed.
pub fn remove(folder: &Path) -> Result<(), StoreOpenError> {
    let failed = |source| StoreOpenError::Folder {
        folder: folder.to_owned(),
        source,
    };
    let lock = match fs::File::open(folder.join(LOCK_FILE)) {
        Ok(file) => Some(file),
        // No process has opened the store since this file was deleted.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    match lock.as_ref().map(fs::File::try_lock) {
        None | Some(Ok(())) => {}
        Some(Err(TryLockError::WouldBlock)) => {
            return Err(StoreOpenError::InUse {
                folder: folder.to_owned(),
            });
        }
        Some(Err(TryLockError::Error(error))) => return Err(failed(error)),
    }
    // The identity goes first. If the removal is interrupted, the other files are worthless without
    // it.
    let mut names: Vec<String> = identity::FILES.map(str::to_owned).into();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().into_string();
        names.extend(
            name.ok()
                .filter(|name| live_segments::number_of(name).is_some()),
        );
    }
    for name in names {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    Ok(())
}
