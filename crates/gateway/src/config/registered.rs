//! The peers of the register, and those who come with an invite.

use std::collections::HashSet;

use link::{PeerConfig, PeerId, PublicKey};
use units::BitRate;

use super::{
    Origin, Peer,
    peer_name::{GUEST, may_be_name},
};
use crate::{
    register::{Enrolled, Register},
    target::{AllowEntry, AllowList, Endpoint},
};

/// The peers that the register adds to those of the file, whose names and keys are given. The numbers of the
/// peers are still to be given.
///
/// # Errors
/// What is wrong with the register.
pub(super) fn peers(
    register: &Register,
    allow: &[AllowEntry],
    names: &HashSet<String>,
    keys: &HashSet<PublicKey>,
) -> Result<Vec<(Peer, PeerConfig)>, String> {
    let (mut names, mut keys) = (names.clone(), keys.clone());
    let mut peers = Vec::new();
    for enrolled in &register.peers {
        // The operator has put it into the file since then.
        if keys.contains(&enrolled.public_key) {
            continue;
        }
        let Enrolled { name, endpoint, .. } = enrolled;
        if !may_be_name(name) || !names.insert(name.clone()) {
            return Err(format!(
                "another peer has the name {name:?}, or it is no name"
            ));
        }
        if endpoint
            .as_deref()
            .is_some_and(|it| Endpoint::with_port(it).is_none())
        {
            return Err(format!(
                "the endpoint of {name:?} is no address with a port"
            ));
        }
        keys.insert(enrolled.public_key);
        peers.push(peer(enrolled.clone(), allow));
    }
    let invited = register.invites.iter().map(|it| it.public_key);
    let invited = invited.filter(|it| keys.insert(*it));
    peers.extend(invited.map(guest));
    Ok(peers)
}

fn peer(enrolled: Enrolled, allow: &[AllowEntry]) -> (Peer, PeerConfig) {
    let peer = Peer {
        name: enrolled.name.clone(),
        origin: Origin::Register,
        id: PeerId(0),
        serves: None,
        allow: AllowList(allow.to_vec()),
        compresses: true,
        deduplicates: true,
        tenants: Vec::new(),
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
fn guest(public_key: PublicKey) -> (Peer, PeerConfig) {
    let name = format!("{GUEST} {})", &public_key.to_string()[..8]);
    let peer = Peer {
        name: name.clone(),
        origin: Origin::Invite,
        id: PeerId(0),
        serves: Some(Vec::new()),
        allow: AllowList(Vec::new()),
        compresses: false,
        deduplicates: false,
        tenants: Vec::new(),
    };
    let of_link = PeerConfig {
        name,
        public_keys: vec![public_key],
        endpoint: None,
        rate_max: Some(RATE_MAX),
        is_guest: true,
    };
    (peer, of_link)
}

/// An invite is a few hundred bytes.
const RATE_MAX: BitRate = BitRate::mbit(1);
