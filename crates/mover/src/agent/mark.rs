//! Mark files on the disk. A mark file proves that a command was called.

use std::{
    io::{self, ErrorKind},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use crate::{
    disk::{
        MachineFileSystem,
        store::sync_above,
        system::{FileSystem, LinkPolicy, OpenMode},
    },
    names::{last_name, parent},
};

/// Creates the mark of a command call: a hard link to the file that describes the call. When the
/// function returns, the mark survives a power cut. This is necessary, because the command's
/// effects may survive a power cut.
///
/// Returns false if the mark already exists. Also returns false if the call has already ended. In
/// that case, the file that describes the call no longer exists.
///
/// # Errors
/// An error of the file system. In this case, the caller must not start the command.
pub fn mark_called(facts: &Path, mark: &Path) -> io::Result<bool> {
    mark_called_on(&MachineFileSystem, facts, mark)
}

/// Does the work of [`mark_called`] on any file system.
pub(super) fn mark_called_on(
    system: &dyn FileSystem,
    facts: &Path,
    mark: &Path,
) -> io::Result<bool> {
    let (facts, mark) = (facts.as_os_str().as_bytes(), mark.as_os_str().as_bytes());
    // If two processes try to make the link, only one succeeds. After the call has ended, the facts
    // file is missing, and no process can make the link.
    match system.hard_link(facts, mark) {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    match sync_mark(system, mark) {
        Ok(()) => Ok(true),
        Err(error) => {
            let folder = system.open_folder(parent(mark).unwrap_or_default());
            // If the mark cannot be removed, the command is not called at all.
            let _ = folder.and_then(|it| it.remove_file(&last_name(mark)));
            Err(error)
        }
    }
}

/// Syncs the content of the mark and the mark's directory entry, so that both survive a power cut.
fn sync_mark(system: &dyn FileSystem, mark: &[u8]) -> io::Result<()> {
    let folder = system.open_folder(parent(mark).unwrap_or_default())?;
    let file = folder.open(&last_name(mark), OpenMode::Read(LinkPolicy::Refuse))?;
    file.sync()?;
    // The folder of the marks may be new, too, so the folders above it are also synced.
    sync_above(system, mark, FOLDERS_ABOVE)
}

/// Number of parent folders to sync: the folder of the marks, the agent's state folder above it,
/// and the next parent.
const FOLDERS_ABOVE: usize = 3;
