//! The peers of the register, and the one that all who come with an invite are.

use std::{collections::HashSet, path::Path};

use link::{PeerConfig, PeerId, PublicKey};
use units::BitRate;

use super::{
    Origin, Peer,
    peer_name::{GUEST, may_be_name},
};
use crate::{
    register::{Enrolled, Register},
    target::{AllowEntry, AllowList},
};

/// The peers that the register beside the key adds to those of the file, whose names and keys are given. The numbers of the
/// peers are still to be given.
///
/// # Errors
/// What is wrong with the register.
pub(super) fn peers(
    key_file: &Path,
    allow: &[AllowEntry],
    names: &HashSet<String>,
    keys: &HashSet<PublicKey>,
) -> Result<Vec<(Peer, PeerConfig)>, String> {
    let path = Register::path(key_file);
    let register = Register::read(&path).map_err(|error| format!("{error:#}"))?;
    let (mut names, mut keys) = (names.clone(), keys.clone());
    let mut peers = Vec::new();
    for enrolled in register.peers {
        // The operator has put it into the file since then.
        if keys.contains(&enrolled.public_key) {
            continue;
        }
        let Enrolled { name, .. } = &enrolled;
        if !may_be_name(name) || !names.insert(name.clone()) {
            let path = path.display();
            return Err(format!(
                "{path}: another peer has the name {name:?}, or it is no name"
            ));
        }
        keys.insert(enrolled.public_key);
        peers.push(peer(enrolled, allow));
    }
    let invited = register.invites.iter().map(|it| it.public_key);
    let invited: Vec<_> = invited.filter(|it| keys.insert(*it)).collect();
    if !invited.is_empty() {
        peers.push(guest(invited));
    }
    Ok(peers)
}

fn peer(enrolled: Enrolled, allow: &[AllowEntry]) -> (Peer, PeerConfig) {
    let peer = Peer {
        name: enrolled.name.clone(),
        origin: Origin::Register,
        id: PeerId(0),
        serves: None,
        allow: AllowList(allow.to_vec()),
    };
    let of_link = PeerConfig {
        name: enrolled.name,
        public_keys: vec![enrolled.public_key],
        endpoint: enrolled.endpoint,
        rate_max: None,
        is_guest: false,
    };
    (peer, of_link)
}

/// Serves nobody, and may reach nothing.
fn guest(public_keys: Vec<PublicKey>) -> (Peer, PeerConfig) {
    let peer = Peer {
        name: GUEST.to_owned(),
        origin: Origin::Invite,
        id: PeerId(0),
        serves: Some(Vec::new()),
        allow: AllowList(Vec::new()),
    };
    let of_link = PeerConfig {
        name: GUEST.to_owned(),
        public_keys,
        endpoint: None,
        rate_max: Some(RATE_MAX),
        is_guest: true,
    };
    (peer, of_link)
}

/// An invite is a few hundred bytes.
const RATE_MAX: BitRate = BitRate::mbit(1);
