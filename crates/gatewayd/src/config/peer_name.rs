//! Rules for names of peers.

/// Whether this text is permitted as the name of a peer.
pub fn may_be_name(name: &str) -> bool {
    let is_text = !name.is_empty() && !name.chars().any(char::is_control);
    is_text && name.len() <= PEER_NAME_MAX && !name.starts_with(GUEST)
}

/// First characters of the name of a guest. A guest is a gateway that has an invite but is not a
/// peer yet. No peer can have a name that starts with these characters.
pub(super) const GUEST: &str = "(invite";

/// Maximum length of a peer's name. Replies and metrics repeat the name.
pub(super) const PEER_NAME_MAX: usize = 64;
