//! What peers may be called.

/// Whether a peer may have this name.
pub fn may_be_name(name: &str) -> bool {
    let is_text = !name.is_empty() && !name.chars().any(char::is_control);
    is_text && name.len() <= PEER_NAME_MAX && !name.starts_with(GUEST)
}

/// How the name begins of one that has come with an invite and is no peer yet. That of a peer does not.
pub(super) const GUEST: &str = "(invite";

/// Longest name of a peer; it is repeated in replies and metrics.
pub(super) const PEER_NAME_MAX: usize = 64;
