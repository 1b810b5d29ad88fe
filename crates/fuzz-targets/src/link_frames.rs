//! Fuzz target: the payload of a decrypted packet. Any bytes are either decoded as frames or
//! refused. Decoding encoded frames must return the same frames.

/// Runs one input, which is the payload of a packet.
pub fn run(data: &[u8]) {
    link::fuzzing::decode_frames(data);
}

/// Returns first inputs for the fuzzer: one frame of each type, and reports.
pub fn seeds() -> Vec<Vec<u8>> {
    link::fuzzing::payloads()
}
