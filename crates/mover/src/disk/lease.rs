//! Detects whether a file is open for writing in any process.
#![expect(unsafe_code, reason = "leases have no safe wrapper")]

use std::{
    fs::{self, File},
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
};

use nix::{errno::Errno, libc};

/// Returns whether any process has the file open for writing. Returns `None` if the system cannot
/// determine that.
///
/// If the file system grants no leases and the user is root, the function examines the open files
/// of all processes.
pub(super) fn is_being_written(file: &File) -> Option<bool> {
    let descriptor = file.as_raw_fd();
    let ask = |command, argument: libc::c_int| {
        // SAFETY: the descriptor is open, and these commands take a number.
        let answer = unsafe { libc::fcntl(descriptor, command, argument) };
        Errno::result(answer)
    };
    // If a process opens the file for writing while we hold the lease, the kernel sends this
    // signal. The default, `SIGIO`, would end this process; `SIGURG` is ignored.
    ask(F_SETSIG, libc::SIGURG).ok()?;
    match ask(libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(_) => {
            // Closing the file also releases the lease.
            let _ = ask(libc::F_SETLEASE, libc::F_UNLCK);
            Some(false)
        }
        Err(Errno::EAGAIN) => Some(true),
        Err(_) => by_processes(file),
    }
}

/// Does the work of [`is_being_written`] by reading `/proc`. Only root can see the open files of
/// all processes, so the function returns `None` for other users.
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
        // The permissions of the link to an open file show how the file was opened.
        is_same && opened.metadata().is_ok_and(|it| it.mode() & 0o200 != 0)
    });
    Some(is_written)
}

/// Command of fcntl(2) that selects the signal for lease breaks (`asm-generic/fcntl.h`). The libc
/// crate does not define this constant.
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
