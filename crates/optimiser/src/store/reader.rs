//! Reader of a store. It finds chunks on the disk through the index and the segments.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use bytes::Bytes;

use super::{
    counts::EventCounters,
    files::StoreFileSystem,
    format::SEGMENT_MAX_BYTES,
    index::{ChunkIndex, RecordLocation},
    live_segments::LiveSegments,
    segment::{self, RecordContent},
};
use crate::chunk::ChunkName;

pub(super) struct StoreReader {
    pub files: Arc<dyn StoreFileSystem>,
    pub folder: PathBuf,
    pub index: ChunkIndex,
    pub segments: LiveSegments,
    pub counters: EventCounters,
    /// Reason why the store currently cannot write chunks. `None` while the store can write chunks.
    pub trouble: Mutex<Option<String>>,
}

impl StoreReader {
    /// Reads a chunk. Removes index entries that turn out to be wrong.
    pub(super) fn get(&self, name: &ChunkName, length: usize) -> Option<Bytes> {
        for location in self.index.find(name) {
            match self.read(name, length, location) {
                Ok(Some(RecordContent::Content(content))) => return Some(content),
                // The record contains another chunk whose name has the same tag.
                Ok(Some(RecordContent::Other)) => {}
                Ok(Some(RecordContent::Damaged)) => {
                    self.counters.damaged.add(1);
                    self.index.remove(name, location);
                }
                // The segment was removed meanwhile.
                Ok(None) => self.index.remove(name, location),
                Err(error) if is_passing(&error) => {}
                Err(_) => {
                    self.counters.damaged.add(1);
                    self.index.remove(name, location);
                }
            }
        }
        None
    }

    fn read(
        &self,
        name: &ChunkName,
        length: usize,
        at: RecordLocation,
    ) -> io::Result<Option<RecordContent>> {
        let Some(number) = self.segments.number(at.segment) else {
            return Ok(None);
        };
        let file = match self.segments.file(&*self.files, &self.folder, number) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        segment::read_record(&*file, number, at.offset, name, length).map(Some)
    }

    pub(super) fn forget(&self, name: &ChunkName) {
        for location in self.index.find(name) {
            self.index.remove(name, location);
        }
    }
}

/// Returns whether an error is temporary and not caused by the file. Examples are too many open
/// files, and too little memory.
pub(super) fn is_passing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::OutOfMemory
        || matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// Error numbers for too many open files in a process (`EMFILE`) and in the system (`ENFILE`).
/// Linux and most other systems use these numbers.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

// Offsets in a segment fit 32 bits.
const _: () = assert!(SEGMENT_MAX_BYTES < u32::MAX as u64);
