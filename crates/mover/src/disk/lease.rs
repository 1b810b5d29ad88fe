//! Whether a file is open for writing, in any process.
#![expect(unsafe_code, reason = "leases have no safe wrapper")]

use std::{
    fs::{self, File},
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
};

use nix::{errno::Errno, libc};

/// Whether any process has the file open for writing; `None` where the system does not say. Root looks at all processes where
/// the file system grants no leases.
pub(super) fn is_being_written(file: &File) -> Option<bool> {
    let descriptor = file.as_raw_fd();
    let ask = |command, argument: libc::c_int| {
        // SAFETY: the descriptor is open, and these commands take a number.
        let answer = unsafe { libc::fcntl(descriptor, command, argument) };
        Errno::result(answer)
    };
    // A writer that comes while we hold the lease has this signal sent. By default that is `SIGIO`, which would end us;
    // `SIGURG` is ignored.
    ask(F_SETSIG, libc::SIGURG).ok()?;
    match ask(libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(_) => {
            // Closing the file gives the lease back, too.
            let _ = ask(libc::F_SETLEASE, libc::F_UNLCK);
            Some(false)
        }
        Err(Errno::EAGAIN) => Some(true),
        Err(_) => by_processes(file),
    }
}

/// The same by the list of all open files, which only root sees.
fn by_processes(file: &File) -> Option<bool> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let ours = file.metadata().ok()?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let folders = processes.filter(|it| it.file_name().as_encoded_bytes()[0].is_ascii_digit());
    let opened = folders.flat_map(|it| fs::read_dir(it.path().join("fd")).into_iter().flatten());
    let is_written = opened.flatten().any(|opened| {
        let path = opened.path();
        let is_same =
            fs::metadata(&path).is_ok_and(|it| (it.dev(), it.ino()) == (ours.dev(), ours.ino()));
        // The link to an open file shows by its permissions how it was opened.
        is_same && opened.metadata().is_ok_and(|it| it.mode() & 0o200 != 0)
    });
    Some(is_written)
}

/// Chooses the signal (fcntl(2), `asm-generic/fcntl.h`); the libc crate lacks it.
const F_SETSIG: libc::c_int = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_open_for_writing_is_recognised() {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("film");
        let writer = File::create(&path).expect("room");
        let reader = File::open(&path).expect("it is there");
        let also = by_processes(&reader);
        assert_eq!(is_being_written(&reader), Some(true));
        assert!(also != Some(false));
        drop(writer);
        assert_eq!(is_being_written(&reader), Some(false));
        assert!(by_processes(&reader) != Some(true));
    }
}
