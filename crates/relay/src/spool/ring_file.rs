//! Bytes of a file on the disk: the last ones, as many as the room holds.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use nix::fcntl::{FallocateFlags, fallocate};

/// A file without a name that holds a window of another, longer one.
#[derive(Debug)]
pub(super) struct RingFile {
    file: File,
    room_bytes: u64,
}

impl RingFile {
    /// Reserves the room at once, so that the disk cannot be full later.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn new(folder: &Path, room_bytes: u64) -> io::Result<Self> {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        let mut options = File::options();
        options.read(true).write(true).mode(0o600);
        options.custom_flags(nix::libc::O_TMPFILE);
        let file = options.open(folder).or_else(|error| {
            // If the parent folder is missing too, a disk is not mounted.
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            std::fs::DirBuilder::new().mode(0o700).create(folder)?;
            options.open(folder)
        })?;
        let length = i64::try_from(room_bytes).map_err(io::Error::other)?;
        match fallocate(&file, FallocateFlags::empty(), 0, length) {
            // Some file systems do not support this. A full disk then causes an error at a later
            // write.
            Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => Ok(Self { file, room_bytes }),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn room_bytes(&self) -> u64 {
        self.room_bytes
    }

    /// Writes bytes, the first of which has the number `at`.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn write(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let (place, room) = self.place(at, bytes.len());
            self.file.write_all_at(&bytes[..room], place)?;
            bytes = &bytes[room..];
            at += room as u64;
        }
        Ok(())
    }

    /// Reads bytes that have been written. The first one has the number `at`.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn read(&self, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let (place, room) = self.place(at, bytes.len());
            self.file.read_exact_at(&mut bytes[..room], place)?;
            bytes = &mut bytes[room..];
            at += room as u64;
        }
        Ok(())
    }

    /// Returns the position of a byte, and the part of `count` that fits there.
    fn place(&self, at: u64, count: usize) -> (u64, usize) {
        let place = at % self.room_bytes;
        let room = usize::try_from(self.room_bytes - place).unwrap_or(usize::MAX);
        (place, count.min(room))
    }
}
