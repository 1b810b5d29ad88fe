//! Entry point for fuzzing the parser of segments.
//!
//! It parses arbitrary bytes as a segment, once unchanged and once with corrected checksums. A
//! fuzzer cannot guess correct checksums.

use std::io;

use super::{
    files::StoreFile,
    format::{
        self, HEADER_BYTES, RECORD_HEADER_BYTES, RECORDS_MAX, RecordPosition, TABLE_ENTRY_BYTES,
        UNIT_BYTES,
    },
    identity::StoreId,
    segment::{self, RecordContent, SegmentContent},
};

/// Parses `bytes` in four ways, and returns the total number of records found.
///
/// Two ways leave the bytes unchanged: the parser reads them as a segment, and as the bytes after
/// an intact header. Two ways correct the checksums first: the parser reads the bytes as records,
/// and as the table of a footer.
///
/// # Panics
/// If the parser finds a record at an impossible position, or a record whose content does not match
/// its name.
pub fn segment(bytes: &[u8]) -> usize {
    let header = format::header(ID, NUMBER);
    let behind_header = [&header, bytes].concat();
    let mut records = behind_header.clone();
    correct_records(&mut records);
    let mut footer = behind_header.clone();
    correct_footer(&mut footer);
    [bytes.to_vec(), behind_header, records, footer]
        .into_iter()
        .map(|bytes| read(&MemoryFile(bytes)))
        .sum()
}

fn read(file: &MemoryFile) -> usize {
    let contents = segment::read_segment(file, ID, NUMBER).expect("memory can be read");
    let (SegmentContent::Sealed(entries) | SegmentContent::Unsealed(entries)) = contents else {
        return 0;
    };
    assert!(entries.len() <= RECORDS_MAX);
    let mut at = HEADER_BYTES as u64;
    for entry in &entries {
        assert_eq!(u64::from(entry.offset), at);
        at = entry.end();
        let length = entry.length_bytes as usize;
        let found = segment::read_record(file, NUMBER, entry.offset, &entry.name, length)
            .expect("memory can be read");
        if let RecordContent::Content(content) = found {
            assert_eq!(crate::chunk::ChunkName::of(&content), entry.name);
        }
    }
    entries.len()
}

/// In each record, limits the length to its lower two bytes, and corrects the checksum.
fn correct_records(bytes: &mut [u8]) {
    let mut at = HEADER_BYTES;
    while let Some(header) = bytes.get_mut(at..at + RECORD_HEADER_BYTES) {
        let (Some(name), Some(length)) = (header.first_chunk(), header[32..].first_chunk()) else {
            return;
        };
        // A random upper half usually makes a four-byte length too large.
        let [low, high, ..]: [u8; 4] = *length;
        let entry = RecordPosition {
            name: crate::chunk::ChunkName(*name),
            offset: at as u32,
            length_bytes: u16::from_le_bytes([low, high]).into(),
        };
        header.copy_from_slice(&format::record_header(NUMBER, &entry));
        at = entry.end() as usize;
    }
}

/// Interprets the bytes after the header as names and lengths of records. Replaces these bytes by
/// records of zeros, and by a footer for these records.
fn correct_footer(bytes: &mut Vec<u8>) {
    let table = bytes.split_off(HEADER_BYTES);
    let mut entries = Vec::new();
    let mut at = HEADER_BYTES as u32;
    for bytes in table.chunks_exact(TABLE_ENTRY_BYTES) {
        let Some((name, [.., shift, low, high])) = bytes.split_first_chunk() else {
            return;
        };
        let length = u16::from_le_bytes([*low, *high]).into();
        // One offset in 256 is wrong.
        let offset = at + u32::from(*shift == u8::MAX) * UNIT_BYTES;
        let name = crate::chunk::ChunkName(*name);
        let entry = RecordPosition {
            name,
            offset,
            length_bytes: length,
        };
        at = entry.end() as u32;
        entries.push(entry);
    }
    // The bound is enough for all but the largest inputs.
    bytes.resize((at as usize).min(MEMORY_MAX_BYTES), 0);
    bytes.extend_from_slice(&format::footer(NUMBER, &entries));
}

/// A readable file in memory.
struct MemoryFile(Vec<u8>);

impl StoreFile for MemoryFile {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..));
        let rest = rest.unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn truncate(&self, _size_bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

const ID: StoreId = StoreId([7; 16]);
const NUMBER: u64 = 3;

/// Maximum number of zero bytes that replace the records.
const MEMORY_MAX_BYTES: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chunk::ChunkName;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
            segment(&bytes);
        }

        #[test]
        fn an_intact_segment_is_read_whole_and_a_damaged_one_as_far_as_it_is_intact(
            lengths in prop::collection::vec(1_usize..3_000, 1..20),
            is_sealed: bool,
            flip in prop::option::of(any::<prop::sample::Index>()),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let (bytes, entries) = written(&lengths, is_sealed);
            let mut damaged = bytes.clone();
            if let Some(flip) = flip {
                let bit = flip.index(bytes.len() * 8);
                damaged[bit / 8] ^= 1 << (bit % 8);
            }
            if let Some(cut) = cut {
                damaged.truncate(cut.index(bytes.len()));
            }
            let is_damaged = damaged != bytes;
            let file = MemoryFile(damaged);
            read(&file);
            match segment::read_segment(&file, ID, NUMBER).expect("memory can be read") {
                SegmentContent::Sealed(found) => prop_assert!(is_sealed && found == entries),
                SegmentContent::Unsealed(found) => {
                    prop_assert!(!is_sealed || is_damaged);
                    prop_assert!(entries.starts_with(&found));
                    prop_assert!(is_damaged || found == entries);
                }
                SegmentContent::Foreign => prop_assert!(is_damaged),
            }
        }
    }

    #[test]
    fn inputs_reach_what_lies_behind_the_checksums() {
        let (bytes, entries) = written(&[100, 2_000], false);
        // This is the result for the unchanged bytes after their header. The other ways find other
        // records.
        assert!(segment(&bytes[HEADER_BYTES..]) >= 2 * entries.len());
        assert!(segment(&[0; TABLE_ENTRY_BYTES * 5]) >= 5, "a table");
        let mut record = vec![0; RECORD_HEADER_BYTES];
        record[32] = 1;
        assert!(segment(&[record, vec![0; 24]].concat()) >= 1, "a record");
    }

    fn written(lengths: &[usize], is_sealed: bool) -> (Vec<u8>, Vec<RecordPosition>) {
        let mut bytes = format::header(ID, NUMBER).to_vec();
        let mut entries = Vec::new();
        for (n, length) in lengths.iter().enumerate() {
            let content = vec![n as u8; *length];
            let entry = RecordPosition {
                name: ChunkName::of(&content),
                offset: bytes.len() as u32,
                length_bytes: *length as u32,
            };
            bytes.extend_from_slice(&format::record_header(NUMBER, &entry));
            bytes.extend_from_slice(&content);
            bytes.resize(entry.end() as usize, 0);
            entries.push(entry);
        }
        if is_sealed {
            bytes.extend_from_slice(&format::footer(NUMBER, &entries));
        }
        (bytes, entries)
    }
}
