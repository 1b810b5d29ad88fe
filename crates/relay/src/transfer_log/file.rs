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
    /// The disk took only a part of the last line.
    is_torn: bool,
}

impl LogFile {
    /// Opens the file, or creates it for its owner to write and its group to read.
    ///
    /// # Errors
    /// Those of the system. A named pipe that nobody reads is one.
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

    /// Writes `line`, which ends with a newline. What is left of a line before that did not fit gets a line
    /// of its own.
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

/// Paths and user names are not for everybody.
const MODE: u32 = 0o640;
