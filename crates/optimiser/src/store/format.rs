//! Encoding of a segment as bytes. Numbers are little-endian, and the numbers in parentheses are
//! lengths in bytes.
//!
//! The header has 64 bytes: magic (8), version (4), zeros (4), id of the store (16), number of the
//! segment (8), zeros (16), checksum (8).
//!
//! Records follow the header. Each record begins at a multiple of 64 bytes. A record consists of
//! the name (32), the length of the content (4), a checksum (4), the content, and zeros. The
//! checksum covers the name, the length and the record's position.
//!
//! The footer also begins at a multiple of 64 bytes. For each record it contains the name (32), the
//! offset (4) and the length (4). The footer ends with magic (8), number of records (4), zeros (4),
//! number of the segment (8), and checksum (8).
//!
//! Since records begin at multiples of 64 bytes, the index needs only 20 bits for a position in a
//! segment. Checksums are XXH3, which detects accidental damage. The name is a BLAKE3 hash of the
//! content, and so verifies the content.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::identity::StoreId;
use crate::chunk::{CHUNK_MAX, ChunkName, NAME_BYTES};

/// Position of a record in its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordPosition {
    pub name: ChunkName,
    /// Offset of the record, a multiple of [`UNIT_BYTES`].
    pub offset: u32,
    /// Length of the content in bytes.
    pub length_bytes: u32,
}

impl RecordPosition {
    /// Returns the offset of the content in the segment.
    pub(super) fn content_offset(&self) -> u64 {
        u64::from(self.offset) + RECORD_HEADER_BYTES as u64
    }

    /// Returns the lowest offset at which the next record can begin.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.offset) + record_bytes(self.length_bytes as usize)
    }
}

/// Returns the size of a record in a segment for content of `length` bytes. The size includes the
/// zeros at the end.
pub(super) fn record_bytes(length: usize) -> u64 {
    let bytes = (RECORD_HEADER_BYTES + length) as u64;
    bytes.next_multiple_of(u64::from(UNIT_BYTES))
}

/// Returns the size of the footer of a segment with `records` records.
pub(super) fn footer_bytes(records: usize) -> u64 {
    (records * TABLE_ENTRY_BYTES + TRAILER_BYTES) as u64
}

pub(super) fn header(id: StoreId, number: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(&id.0);
    bytes[32..40].copy_from_slice(&number.to_le_bytes());
    let checksum = xxh3_64(&bytes[..56]);
    bytes[56..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

pub(super) fn record_header(number: u64, entry: &RecordPosition) -> [u8; RECORD_HEADER_BYTES] {
    let mut bytes = [0; RECORD_HEADER_BYTES];
    bytes[..32].copy_from_slice(&entry.name.0);
    bytes[32..36].copy_from_slice(&entry.length_bytes.to_le_bytes());
    // The same disk blocks may contain a record of an older file. The checksum includes the
    // position, so such a record is invalid here.
    let place = number.wrapping_shl(32) ^ u64::from(entry.offset);
    let checksum = xxh3_64_with_seed(&bytes[..36], place) as u32;
    bytes[36..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Decodes the header of the record at `offset` of the segment `number`. Returns `None` if the
/// bytes are not a record header.
pub(super) fn read_record_header(
    number: u64,
    offset: u32,
    bytes: &[u8; RECORD_HEADER_BYTES],
) -> Option<RecordPosition> {
    let name: &[u8; NAME_BYTES] = bytes.first_chunk()?;
    let entry = RecordPosition {
        name: ChunkName(*name),
        offset,
        length_bytes: number_at(bytes, 32)?,
    };
    let is_one = 0 < entry.length_bytes
        && entry.length_bytes as usize <= CHUNK_MAX
        && record_header(number, &entry) == *bytes;
    #[cfg(fuzz_canary)]
    assert!(
        !is_one || entry.length_bytes != 0x5eed,
        "canary: in the reader of records"
    );
    is_one.then_some(entry)
}

pub(super) fn footer(number: u64, entries: &[RecordPosition]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * TABLE_ENTRY_BYTES + TRAILER_BYTES);
    for entry in entries {
        bytes.extend_from_slice(&entry.name.0);
        bytes.extend_from_slice(&entry.offset.to_le_bytes());
        bytes.extend_from_slice(&entry.length_bytes.to_le_bytes());
    }
    bytes.extend_from_slice(FOOTER_MAGIC);
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&number.to_le_bytes());
    let checksum = xxh3_64(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the number of records in a footer. `trailer` contains the last bytes of the footer.
/// Returns `None` if these bytes are not the end of a footer.
pub(super) fn records_of_trailer(number: u64, trailer: &[u8; TRAILER_BYTES]) -> Option<usize> {
    let records: u32 = number_at(trailer, 8)?;
    let is_one = trailer[..8] == *FOOTER_MAGIC
        && trailer[16..24] == number.to_le_bytes()
        && (1..=RECORDS_MAX).contains(&(records as usize));
    is_one.then_some(records as usize)
}

/// Decodes the table of the footer at `footer_offset`. Returns `None` if the checksum is wrong.
/// Also returns `None` if the records do not fill the segment from its header to its footer.
pub(super) fn read_footer(bytes: &[u8], footer_offset: u64) -> Option<Vec<RecordPosition>> {
    let (table, checksum) = bytes.split_last_chunk::<8>()?;
    if xxh3_64(table) != u64::from_le_bytes(*checksum) {
        return None;
    }
    let (table, _) = table.split_at_checked(bytes.len() - TRAILER_BYTES)?;
    let mut entries = Vec::with_capacity(table.len() / TABLE_ENTRY_BYTES);
    let mut at = HEADER_BYTES as u64;
    for bytes in table.chunks_exact(TABLE_ENTRY_BYTES) {
        let name: &[u8; NAME_BYTES] = bytes.first_chunk()?;
        let entry = RecordPosition {
            name: ChunkName(*name),
            offset: number_at(bytes, 32)?,
            length_bytes: number_at(bytes, 36)?,
        };
        if u64::from(entry.offset) != at || entry.length_bytes as usize > CHUNK_MAX {
            return None;
        }
        at = entry.end();
        entries.push(entry);
    }
    (at == footer_offset).then_some(entries)
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes: &[u8; 4] = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

const MAGIC: &[u8; 8] = b"LHchunks";
const FOOTER_MAGIC: &[u8; 8] = b"LHfooter";
const VERSION: u32 = 1;

pub(super) const HEADER_BYTES: usize = 64;
pub(super) const RECORD_HEADER_BYTES: usize = NAME_BYTES + 8;
pub(super) const TABLE_ENTRY_BYTES: usize = NAME_BYTES + 8;
pub(super) const TRAILER_BYTES: usize = 32;

/// Unit of record offsets, in bytes.
pub(super) const UNIT_BYTES: u32 = 64;

/// Maximum number of bytes of a segment. An offset in units of 64 bytes then fits 20 bits.
pub(super) const SEGMENT_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Maximum number of records of a segment. The number is four times the number of chunks of the
/// usual size (16 KiB) in a segment. The table then has at most 640 KiB. The store reads the
/// complete table into memory.
pub(super) const RECORDS_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_a_record_is_one_in_its_place_only() {
        let entry = RecordPosition {
            name: ChunkName::of(b"content"),
            offset: 640,
            length_bytes: 7,
        };
        let header = record_header(3, &entry);
        assert_eq!(read_record_header(3, 640, &header), Some(entry));
        assert_eq!(read_record_header(3, 704, &header), None);
        assert_eq!(read_record_header(4, 640, &header), None);
    }

    #[test]
    fn the_largest_chunk_and_the_most_records_fit_in_a_segment() {
        assert!(record_bytes(CHUNK_MAX) + footer_bytes(1) < SEGMENT_MAX_BYTES);
        assert!(footer_bytes(RECORDS_MAX) < SEGMENT_MAX_BYTES / 64);
        let last = SEGMENT_MAX_BYTES - u64::from(UNIT_BYTES);
        assert!(last / u64::from(UNIT_BYTES) < 1 << 20);
    }
}
