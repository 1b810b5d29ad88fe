//! File of a transfer log, opened for appending.

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
    /// Whether the last line in the file is incomplete.
    is_torn: bool,
}

impl LogFile {
    /// Opens the file, and creates it if necessary. If the file is new, its owner may read and
    /// write it, and its group may read it.
    ///
    /// # Errors
    /// The errors of the system. A named pipe without a reader is an error.
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

    /// Writes `line`, which must end with a newline. If the preceding line is incomplete, the
    /// function first writes a newline.
    ///
    /// # Errors
    /// The errors of the system. The file then lacks the line, or the end of the line.
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

/// Mode of a new file. Other users must not read the file, because it contains paths and user
/// names.
const MODE: u32 = 0o640;
