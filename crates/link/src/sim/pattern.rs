//! Byte pattern that all transfers of the simulation carry.

use bytes::Bytes;

/// Returns at most `len_max` bytes of the pattern, starting at `offset`.
pub(super) fn pattern(offset: u64, len_max: usize) -> Bytes {
    let start = (offset % PATTERN_BYTES as u64) as usize;
    let end = (start + len_max).min(PATTERN_BYTES);
    Bytes::from_static(&pattern_buffer()[start..end])
}

/// Panics if `data` differs from the pattern at `offset`.
pub(super) fn assert_pattern(data: &[u8], offset: u64) {
    let mut at = 0;
    while at < data.len() {
        let expected = pattern(offset + at as u64, data.len() - at);
        assert!(
            data[at..at + expected.len()] == expected,
            "wrong bytes at offset {offset}"
        );
        at += expected.len();
    }
}

fn pattern_buffer() -> &'static [u8] {
    static PATTERN: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut state = 1u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..PATTERN_BYTES).map(next).collect()
    })
}

/// Period of the pattern in bytes. The period is a prime number, so that a shift by whole slots
/// changes the bytes.
const PATTERN_BYTES: usize = 1_000_003;
