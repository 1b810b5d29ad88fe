//! Credit of the far half before the first READ of a file.

/// Returns the credit of the far half before the first READ, for a window of this many bytes.
pub(super) fn first_credit_bytes(window_bytes: u64, had_siblings: bool) -> u64 {
    window_bytes.min(match had_siblings {
        true => SIBLING_CREDIT_MAX,
        false => FIRST_CREDIT_MAX,
    })
}

/// Maximum credit of the far half before the first READ, in bytes. The first READ may have an
/// offset at which the read-ahead is useless. The credit is sufficient for a round-trip time of
/// 200 ms at 670 Mbit/s.
pub(super) const FIRST_CREDIT_MAX: u64 = 16 << 20;

/// Maximum credit before the first READ of a handle with siblings, in bytes. Such a handle often
/// starts at another offset.
pub(super) const SIBLING_CREDIT_MAX: u64 = 1 << 20;
