//! Ring buffer on the disk, which holds the newest bytes of a longer file.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use nix::fcntl::{FallocateFlags, fallocate};

/// An unnamed file that holds the newest bytes of a longer file.
#[derive(Debug)]
pub(super) struct RingFile {
    file: File,
    room_bytes: u64,
}

impl RingFile {
    /// Creates the file and reserves its disk space, so that later writes do not fail because of a
    /// full disk.
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
            // Some file systems cannot reserve disk space. A full disk then causes an error at a
            // later write.
            Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => Ok(Self { file, room_bytes }),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn room_bytes(&self) -> u64 {
        self.room_bytes
    }

    /// Writes bytes. `at` is the offset of the first byte in the longer file.
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

    /// Reads bytes that were written before. `at` is the offset of the first byte in the longer
    /// file.
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

    /// Returns the position of the byte `at` in the ring buffer. Also returns how many of the
    /// `count` bytes fit before the end of the buffer.
    fn place(&self, at: u64, count: usize) -> (u64, usize) {
        let place = at % self.room_bytes;
        let room = usize::try_from(self.room_bytes - place).unwrap_or(usize::MAX);
        (place, count.min(room))
    }
}
