//! The file of a transfer log: opened for appending, written line by line.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use nix::fcntl::OFlag;

#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    /// Whether the disk accepted only a part of the last line.
    is_torn: bool,
}

impl LogFile {
    /// Opens the file. A new file is writable for its owner, and readable for its group.
    ///
    /// # Errors
    /// The errors of the system. A named pipe without a reader is one.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(MODE)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(path)?;
        let is_torn = false;
        Ok(Self { file, is_torn })
    }

    /// Writes `line`, which ends with a newline. If the line before was written only in part, a
    /// newline precedes `line`.
    ///
    /// # Errors
    /// The line, or its end, is not in the file.
    pub(super) fn write_line(&mut self, line: &str) -> io::Result<()> {
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    rest = &rest[count..];
                    self.is_torn = !rest.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Paths and user names must not be public.
const MODE: u32 = 0o640;
