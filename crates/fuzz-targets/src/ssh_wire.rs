//! Fuzz target: streams between the two halves of SSH sessions, and the first packets of SSH
//! clients. Any bytes are either decoded as messages or refused. Decoding an encoded message must
//! return the same message. The size of the received pieces must not change the result.

/// Runs one input.
pub fn run(input: &[u8]) {
    play(input);
    ssh::fuzzing::has_client_gcm(input);
}

/// Returns the number of valid messages in the input.
pub(crate) fn play(input: &[u8]) -> usize {
    ssh::fuzzing::read_stream(input)
}

/// Returns inputs with messages of each type, and the first packets of a client.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = ssh::fuzzing::streams();
    seeds.push(ssh::fuzzing::greeting());
    seeds
}
