//! Open files and folders at the near half.

use super::{file_ahead::FileReadAhead, folder_ahead::FolderReadAhead, writes::Writes};
use crate::Rope;

/// Open file or folder.
#[derive(Debug)]
pub(super) struct OpenHandle {
    pub(super) access: Access,
    /// STATUS packet of the first READ that failed.
    read_failure: Option<Rope>,
    /// Whether the start of the transfer has been reported.
    pub(super) is_reported: bool,
    /// Whether the near half has made the handle of the client.
    pub(super) is_early: bool,
}

/// Access of the client to a handle.
#[derive(Debug)]
pub(super) enum Access {
    /// The client only reads the file.
    File(FileReadAhead),
    /// The client reads the folder.
    Folder(FolderReadAhead),
    /// The client writes to the file, and may read it.
    Writable(Writes),
    /// Folder without read-ahead.
    Relayed,
}

impl OpenHandle {
    pub(super) fn new(access: Access) -> Self {
        Self {
            access,
            read_failure: None,
            is_reported: true,
            is_early: false,
        }
    }

    /// Creates the state of a file that the server has opened before the client requested it.
    pub(super) fn prepared(file: FileReadAhead) -> Self {
        Self {
            is_reported: false,
            ..Self::new(Access::File(file))
        }
    }

    /// Creates the state of a file that the server has not opened yet.
    pub(super) fn early(access: Access) -> Self {
        Self {
            is_reported: false,
            is_early: true,
            ..Self::new(access)
        }
    }

    /// Stores the STATUS packet of a READ that failed.
    pub(super) fn read_failed(&mut self, packet: &Rope) {
        self.read_failure.get_or_insert_with(|| packet.clone());
    }

    /// Returns the STATUS packet of a WRITE or READ that failed.
    pub(super) fn failure(&self) -> Option<&Rope> {
        let write_failure = match &self.access {
            Access::Writable(writes) => writes.failure(),
            _ => None,
        };
        write_failure.or(self.read_failure.as_ref())
    }

    /// Returns whether status pages show the handle.
    pub(super) fn is_transfer(&self) -> bool {
        matches!(self.access, Access::File(_) | Access::Writable(_)) && self.is_reported
    }

    pub(super) fn waiting(&self) -> usize {
        match &self.access {
            Access::File(file) => file.waiting(),
            Access::Folder(folder) => folder.waiting(),
            Access::Writable(_) | Access::Relayed => 0,
        }
    }

    /// Returns the bytes of memory that the read-ahead may take.
    pub(super) fn reserved_bytes(&self) -> u64 {
        match &self.access {
            Access::File(file) => file.reserved_bytes(),
            Access::Folder(folder) => folder.reserved_bytes(),
            Access::Writable(_) | Access::Relayed => 0,
        }
    }

    /// Returns the bytes of read-ahead that the client has not taken.
    pub(super) fn held_bytes(&self) -> u64 {
        match &self.access {
            Access::File(file) => file.held_bytes(),
            Access::Folder(folder) => folder.held_bytes(),
            Access::Writable(_) | Access::Relayed => 0,
        }
    }
}
