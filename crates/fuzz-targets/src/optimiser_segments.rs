//! Fuzz target: the files of a chunk store. Any bytes can be read as a segment without a fault. If
//! a chunk is found, its content matches its name.

/// Runs one input, which is a file, or the content of a file after its header.
pub fn run(data: &[u8]) {
    optimiser::store::fuzzing::segment(data);
}

/// Returns first inputs for the fuzzer: complete and truncated records, tables, and other bytes.
pub fn seeds() -> Vec<Vec<u8>> {
    let record = |content: &[u8]| {
        let name = optimiser::chunk::ChunkName::of(content);
        let mut record = name.0.to_vec();
        record.extend_from_slice(&(content.len() as u32).to_le_bytes());
        // The reader corrects the checksum.
        record.extend_from_slice(&[0; 4]);
        record.extend_from_slice(content);
        // Records begin at multiples of 64 bytes.
        record.resize(record.len().next_multiple_of(64), 0);
        record
    };
    let records = [record(b"content"), record(&[7; 1500]), record(&[9; 64])].concat();
    let cut = records[..records.len() - 20].to_vec();
    vec![records, cut, vec![1; 40 * 5], b"no segment".to_vec()]
}
