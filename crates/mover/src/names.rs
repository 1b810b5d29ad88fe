//! Paths as bytes, at servers and on this machine alike.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::PathBuf};

/// A path in a directory. The empty directory is where the server put us.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() || directory.ends_with(b"/") {
        [directory, name].concat()
    } else {
        [directory, b"/", name].concat()
    }
}

/// A path of this machine.
pub fn local(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}
