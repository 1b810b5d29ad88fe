//! What peers may be called.

/// Whether a peer may have this name.
pub(crate) fn may_be_name(name: &str) -> bool {
    let is_text = !name.is_empty() && !name.chars().any(char::is_control);
    is_text && name.len() <= PEER_NAME_MAX && name != GUEST
}

/// The name of all that have come with an invite and are no peers yet. No peer has it.
pub(super) const GUEST: &str = "(invited)";

/// Longest name of a peer; it is repeated in replies and metrics.
pub(super) const PEER_NAME_MAX: usize = 64;
