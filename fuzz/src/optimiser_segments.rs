//! The files of a chunk store: any bytes are read as a segment without harm, and a chunk that is found is what its name
//! says.

/// One file, or what is behind its header.
pub fn run(data: &[u8]) {
    optimiser::store::fuzzing::segment(data);
}

/// Records, whole and cut; tables; and what is neither.
pub fn seeds() -> Vec<Vec<u8>> {
    let record = |content: &[u8]| {
        let name = optimiser::chunk::Name::of(content);
        let mut record = name.0.to_vec();
        record.extend_from_slice(&(content.len() as u32).to_le_bytes());
        // The checksum is made right by what reads it.
        record.extend_from_slice(&[0; 4]);
        record.extend_from_slice(content);
        // Records begin at multiples of so many bytes.
        record.resize(record.len().next_multiple_of(64), 0);
        record
    };
    let records = [record(b"content"), record(&[7; 1500]), record(&[9; 64])].concat();
    let cut = records[..records.len() - 20].to_vec();
    vec![records, cut, vec![1; 40 * 5], b"no segment".to_vec()]
}
