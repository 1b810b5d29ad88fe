//! Parser of segments: their tables, and the content of a record.
//!
//! The parser uses data of a file only after checking the checksum of the data. The limits of
//! [`format`] bound all memory allocations.

use std::io;

use bytes::Bytes;

use super::{
    files::{StoreFile, read_exact_at},
    format::{
        self, HEADER_BYTES, RECORD_HEADER_BYTES, RECORDS_MAX, RecordPosition, SEGMENT_MAX_BYTES,
        TRAILER_BYTES, footer_bytes,
    },
    identity::StoreId,
};
use crate::chunk::ChunkName;

/// Result of reading a file as a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SegmentContent {
    /// A segment with an intact footer.
    Sealed(Vec<RecordPosition>),
    /// A segment without an intact footer. The variant contains the valid records from the
    /// segment's start up to the first invalid record.
    Unsealed(Vec<RecordPosition>),
    /// A file that is not this store's segment with this number.
    Foreign,
}

/// Reads the record positions of a segment, from its footer or record by record.
///
/// # Errors
/// The error of the file. An unexpected end of the file is not an error.
pub(super) fn read_segment(
    file: &dyn StoreFile,
    id: StoreId,
    number: u64,
) -> io::Result<SegmentContent> {
    let size_bytes = file.size_bytes()?;
    let mut header = [0; HEADER_BYTES];
    if size_bytes > SEGMENT_MAX_BYTES
        || !read_whole(file, &mut header, 0)?
        || header != format::header(id, number)
    {
        return Ok(SegmentContent::Foreign);
    }
    if let Some(entries) = sealed(file, number, size_bytes)? {
        return Ok(SegmentContent::Sealed(entries));
    }
    Ok(SegmentContent::Unsealed(scan(file, number, size_bytes)?))
}

/// Reads the record positions from the footer, if the footer is intact.
fn sealed(
    file: &dyn StoreFile,
    number: u64,
    size_bytes: u64,
) -> io::Result<Option<Vec<RecordPosition>>> {
    let Some(trailer_offset) = size_bytes.checked_sub(TRAILER_BYTES as u64) else {
        return Ok(None);
    };
    let mut trailer = [0; TRAILER_BYTES];
    if !read_whole(file, &mut trailer, trailer_offset)? {
        return Ok(None);
    }
    let records = format::records_of_trailer(number, &trailer);
    let Some(footer_bytes) = records.map(footer_bytes) else {
        return Ok(None);
    };
    let Some(footer_offset) = size_bytes.checked_sub(footer_bytes) else {
        return Ok(None);
    };
    let mut footer = vec![0; footer_bytes as usize];
    if !read_whole(file, &mut footer, footer_offset)? {
        return Ok(None);
    }
    Ok(format::read_footer(&footer, footer_offset))
}

/// Reads the record positions record by record, up to the first invalid record.
fn scan(file: &dyn StoreFile, number: u64, size_bytes: u64) -> io::Result<Vec<RecordPosition>> {
    let mut entries = Vec::new();
    let mut at = HEADER_BYTES as u64;
    let mut header = [0; RECORD_HEADER_BYTES];
    while entries.len() < RECORDS_MAX && read_whole(file, &mut header, at)? {
        let entry = u32::try_from(at)
            .ok()
            .and_then(|offset| format::read_record_header(number, offset, &header));
        let Some(entry) = entry else { break };
        if entry.content_offset() + u64::from(entry.length_bytes) > size_bytes {
            break;
        }
        at = entry.end();
        entries.push(entry);
    }
    Ok(entries)
}

/// Result of reading the record at an offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RecordContent {
    /// Content whose hash equals the name.
    Content(Bytes),
    /// A record with an intact header, but with another name or another length.
    Other,
    /// A damaged record, or no record.
    Damaged,
}

/// Reads the content of the record at `offset`, if the record has this name and this length.
///
/// # Errors
/// The error of the file. An unexpected end of the file is not an error.
pub(super) fn read_record(
    file: &dyn StoreFile,
    number: u64,
    offset: u32,
    name: &ChunkName,
    length: usize,
) -> io::Result<RecordContent> {
    let mut bytes = vec![0; RECORD_HEADER_BYTES + length];
    let is_whole = read_whole(file, &mut bytes, u64::from(offset))?;
    let Some((header, _)) = bytes.split_first_chunk() else {
        return Ok(RecordContent::Damaged);
    };
    Ok(match format::read_record_header(number, offset, header) {
        None => RecordContent::Damaged,
        Some(entry) if entry.name != *name || entry.length_bytes as usize != length => {
            RecordContent::Other
        }
        Some(_) if !is_whole => RecordContent::Damaged,
        Some(_) => {
            let content = Bytes::from(bytes).slice(RECORD_HEADER_BYTES..);
            if ChunkName::of(&content) == *name {
                RecordContent::Content(content)
            } else {
                RecordContent::Damaged
            }
        }
    })
}

/// Reads until `buffer` is full. Returns false if the file ends before the buffer is full.
fn read_whole(file: &dyn StoreFile, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
    match read_exact_at(file, buffer, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
