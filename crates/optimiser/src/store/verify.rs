//! Reads a store without opening it, also while a process has it: what is in it, and what of it is damaged.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{
    files::{Files, RealFiles},
    identity::{self, Identity},
    live,
    segment::{self, Contents, Found},
};
use crate::chunk::Name;

/// What is in a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    pub segments: u64,
    /// Of these, those without an intact footer: in use at most the last one.
    pub unsealed: u64,
    /// Files that are named as segments and are none of this store.
    pub foreign: u64,
    /// Chunks in the segments. One that is there twice counts twice.
    pub chunks: u64,
    /// Bytes of the content of these.
    pub content_bytes: u64,
    /// Bytes of the files.
    pub disk_bytes: u64,
}

/// What reading everything found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    pub listing: Listing,
    /// Chunks that are damaged.
    pub damaged: u64,
    /// The first thousand of these.
    pub damage: Vec<Damage>,
}

/// A damaged chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    pub segment: PathBuf,
    /// Where its record begins, in bytes.
    pub offset: u64,
    pub name: Name,
}

/// Why a store cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no identity, or a damaged one. A gateway would begin anew there.
    #[error("{folder:?} has no chunk store")]
    None { folder: PathBuf },
    #[error("the chunk store {folder:?}")]
    Folder {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Counts what is in the store in a folder, by its tables.
///
/// # Errors
/// [`ReadError`].
pub fn list(folder: &Path) -> Result<Listing, ReadError> {
    let mut listing = Listing::default();
    walk(folder, &mut listing, &mut |_, _| {})?;
    Ok(listing)
}

/// Reads all content of the store in a folder and compares it with its names. `progress` hears after each segment
/// how many bytes have been read, and how many there were in the beginning.
///
/// # Errors
/// [`ReadError`].
pub fn verify(
    folder: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verification, ReadError> {
    let mut verification = Verification::default();
    let mut listing = Listing::default();
    let mut check = |segment: &Segment<'_>, total_bytes: u64| {
        for entry in segment.entries {
            let (name, length) = (&entry.name, entry.length as usize);
            let found = segment::content(segment.file, segment.number, entry.offset, name, length);
            if matches!(found, Ok(Found::Content(_))) {
                continue;
            }
            verification.damaged += 1;
            if verification.damage.len() < DAMAGE_MAX {
                verification.damage.push(Damage {
                    segment: live::path(folder, segment.number),
                    offset: entry.offset.into(),
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

/// A segment that is being visited.
struct Segment<'a> {
    number: u64,
    file: &'a dyn super::File,
    entries: &'a [super::format::Entry],
    size_bytes: u64,
    /// Bytes of the segments before it.
    bytes_before: u64,
}

/// Goes from segment to segment, the oldest first.
fn walk(
    folder: &Path,
    listing: &mut Listing,
    visit: &mut dyn FnMut(&Segment<'_>, u64),
) -> Result<(), ReadError> {
    let files = RealFiles;
    let failed = |source| ReadError::Folder {
        folder: folder.to_owned(),
        source,
    };
    let none = || ReadError::None {
        folder: folder.to_owned(),
    };
    let identity = identity::read(&files, folder).map_err(failed)?;
    let Identity { id, .. } = identity.ok_or_else(none)?;
    let listed = files.list(folder).map_err(failed)?;
    let mut segments: Vec<(u64, u64)> = listed
        .iter()
        .filter_map(|listed| Some((live::number_of(&listed.name)?, listed.size_bytes)))
        .collect();
    segments.sort_unstable();
    let total_bytes = segments.iter().map(|(_, size_bytes)| size_bytes).sum();
    for (number, size_bytes) in segments {
        let bytes_before = listing.disk_bytes;
        let opened = files.open(&live::path(folder, number));
        let file = match opened {
            // Removed meanwhile, to make room.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(failed)?,
        };
        listing.disk_bytes += size_bytes;
        let entries = match segment::contents(&*file, id, number).map_err(failed)? {
            Contents::Foreign => {
                listing.foreign += 1;
                continue;
            }
            Contents::Sealed(entries) => entries,
            Contents::Unsealed(entries) => {
                listing.unsealed += 1;
                entries
            }
        };
        listing.segments += 1;
        listing.chunks += entries.len() as u64;
        let lengths = entries.iter().map(|entry| u64::from(entry.length));
        listing.content_bytes += lengths.sum::<u64>();
        let segment = Segment {
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

/// Most damaged chunks that are told one by one.
const DAMAGE_MAX: usize = 1000;
