//! Inspection of a store without opening it: counts of its content, and a search for damage. A
//! process may use the store at the same time.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{
    files::{RealFileSystem, StoreFileSystem},
    identity::{self, StoreIdentity},
    live_segments,
    segment::{self, RecordContent, SegmentContent},
};
use crate::chunk::ChunkName;

/// Counts of a store's content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreContent {
    /// Number of segments.
    pub segments: u64,
    /// Number of segments without an intact footer. In a store that is in use, only the newest
    /// segment lacks a footer.
    pub unsealed: u64,
    /// Number of files that have the name of a segment, but are not segments of this store.
    pub foreign: u64,
    /// Number of chunks in the segments. A chunk in two segments counts twice.
    pub chunks: u64,
    /// Content bytes of the chunks.
    pub content_bytes: u64,
    /// Total size of the segment files in bytes.
    pub disk_bytes: u64,
}

/// Result of reading and checking all chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// Counts of the store's content.
    pub listing: StoreContent,
    /// Number of damaged chunks.
    pub damaged: u64,
    /// The first thousand damaged chunks that were found.
    pub damage: Vec<DamagedChunk>,
}

/// A damaged chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedChunk {
    /// Path of the segment's file.
    pub segment: PathBuf,
    /// Offset of the chunk's record in the segment, in bytes.
    pub offset_bytes: u64,
    /// Name of the chunk.
    pub name: ChunkName,
}

/// Reason why a store cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreReadError {
    /// The identity is missing or damaged. A gateway would start with an empty store in this
    /// folder.
    #[error("{folder:?} has no chunk store")]
    None {
        /// Folder of the store.
        folder: PathBuf,
    },
    /// A file of the store cannot be read.
    #[error("the chunk store {folder:?}")]
    Folder {
        /// Folder of the store.
        folder: PathBuf,
        /// Error of the file system.
        #[source]
        source: io::Error,
    },
}

/// Counts the content of the store in a folder from the tables of its segments.
///
/// # Errors
/// [`StoreReadError`] if the folder has no store, or a file cannot be read.
pub fn list(folder: &Path) -> Result<StoreContent, StoreReadError> {
    let mut listing = StoreContent::default();
    walk(folder, &mut listing, &mut |_, _| {})?;
    Ok(listing)
}

/// Reads all chunks of the store in a folder, and compares their content with their names.
///
/// Calls `progress` after each segment, with the number of bytes read and the total number of
/// bytes.
///
/// # Errors
/// [`StoreReadError`] if the folder has no store, or a file cannot be read.
pub fn verify(
    folder: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verification, StoreReadError> {
    let mut verification = Verification::default();
    let mut listing = StoreContent::default();
    let mut check = |segment: &OpenSegment<'_>, total_bytes: u64| {
        for entry in segment.entries {
            let (name, length) = (&entry.name, entry.length_bytes as usize);
            let found =
                segment::read_record(segment.file, segment.number, entry.offset, name, length);
            if matches!(found, Ok(RecordContent::Content(_))) {
                continue;
            }
            verification.damaged += 1;
            if verification.damage.len() < DAMAGE_MAX {
                verification.damage.push(DamagedChunk {
                    segment: live_segments::path(folder, segment.number),
                    offset_bytes: entry.offset.into(),
                    name: *name,
                });
            }
        }
        progress(segment.bytes_before + segment.size_bytes, total_bytes);
    };
    walk(folder, &mut listing, &mut check)?;
    verification.listing = listing;
    Ok(verification)
}

/// An open segment, as the visitor function receives it.
struct OpenSegment<'a> {
    number: u64,
    file: &'a dyn super::StoreFile,
    entries: &'a [super::format::RecordPosition],
    size_bytes: u64,
    /// Total bytes of the segments that were visited before.
    bytes_before: u64,
}

/// Calls `visit` for each segment, starting with the oldest segment.
fn walk(
    folder: &Path,
    listing: &mut StoreContent,
    visit: &mut dyn FnMut(&OpenSegment<'_>, u64),
) -> Result<(), StoreReadError> {
    let files = RealFileSystem;
    let failed = |source| StoreReadError::Folder {
        folder: folder.to_owned(),
        source,
    };
    let none = || StoreReadError::None {
        folder: folder.to_owned(),
    };
    let identity = identity::read(&files, folder).map_err(failed)?;
    let StoreIdentity { id, .. } = identity.ok_or_else(none)?;
    let listed = files.list(folder).map_err(failed)?;
    let mut segments: Vec<(u64, u64)> = listed
        .iter()
        .filter_map(|listed| Some((live_segments::number_of(&listed.name)?, listed.size_bytes)))
        .collect();
    segments.sort_unstable();
    let total_bytes = segments.iter().map(|(_, size_bytes)| size_bytes).sum();
    for (number, size_bytes) in segments {
        let bytes_before = listing.disk_bytes;
        let opened = files.open(&live_segments::path(folder, number));
        let file = match opened {
            // The gateway has removed the segment meanwhile, to make room.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(failed)?,
        };
        listing.disk_bytes += size_bytes;
        let entries = match segment::read_segment(&*file, id, number).map_err(failed)? {
            SegmentContent::Foreign => {
                listing.foreign += 1;
                continue;
            }
            SegmentContent::Sealed(entries) => entries,
            SegmentContent::Unsealed(entries) => {
                listing.unsealed += 1;
                entries
            }
        };
        listing.segments += 1;
        listing.chunks += entries.len() as u64;
        let lengths = entries.iter().map(|entry| u64::from(entry.length_bytes));
        listing.content_bytes += lengths.sum::<u64>();
        let segment = OpenSegment {
            number,
            file: &*file,
            entries: &entries,
            size_bytes,
            bytes_before,
        };
        visit(&segment, total_bytes);
    }
    Ok(())
}

/// Maximum number of damaged chunks in the result.
const DAMAGE_MAX: usize = 1000;
