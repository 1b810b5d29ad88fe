//! Permitted names of peers.

/// Whether a peer may have this name.
pub fn may_be_name(name: &str) -> bool {
    let is_text = !name.is_empty() && !name.chars().any(char::is_control);
    is_text && name.len() <= PEER_NAME_MAX && !name.starts_with(GUEST)
}

/// Start of the name of a guest: a gateway with an invite that is not a peer yet. Names of peers
/// never start like this.
pub(super) const GUEST: &str = "(invite";

/// Longest name of a peer, since replies and metrics repeat it.
pub(super) const PEER_NAME_MAX: usize = 64;
