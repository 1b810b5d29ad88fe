//! The payload of a decrypted packet: any bytes decode to frames or are refused, and frames read
//! back as they were written.

/// One payload.
pub fn run(data: &[u8]) {
    link::fuzzing::decode_frames(data);
}

/// One of each frame, and reports.
pub fn seeds() -> Vec<Vec<u8>> {
    link::fuzzing::payloads()
}
