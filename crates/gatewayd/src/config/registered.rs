//! The peers of the register, and the guests. There are two kinds of guests: gateways with an
//! invite, and removed peers. The gateway still has to inform these removed peers of their removal.

use std::collections::HashSet;

use link::{PeerConfig, PeerId, PublicKey};
use units::BitRate;

use super::{
    PeerOrigin, PeerSettings,
    peer_name::{GUEST, may_be_name},
};
use crate::register::{EnrolledPeer, Register};
use net::target::{AllowEntry, AllowList, HostPort, ServesPattern};

/// Returns the peers that the register adds to the peers of the configuration file.
///
/// `names` and `keys` are the names and the public keys of the file's peers. The caller assigns the
/// numbers of the added peers later.
///
/// # Errors
/// The text of the first mistake in the register.
pub(super) fn peers(
    register: &Register,
    allow: &[AllowEntry],
    names: &HashSet<String>,
    keys: &HashSet<PublicKey>,
) -> Result<Vec<(PeerSettings, PeerConfig)>, String> {
    let (mut names, mut keys) = (names.clone(), keys.clone());
    let mut peers = Vec::new();
    for enrolled in &register.peers {
        // The operator has since added the same peer to the configuration file.
        if keys.contains(&enrolled.public_key) {
            continue;
        }
        let EnrolledPeer { name, endpoint, .. } = enrolled;
        if !may_be_name(name) || !names.insert(name.clone()) {
            return Err(format!(
                "another peer has the name {name:?}, or it is no name"
            ));
        }
        if endpoint
            .as_deref()
            .is_some_and(|it| HostPort::with_port(it).is_none())
        {
            return Err(format!(
                "the endpoint of {name:?} is no address with a port"
            ));
        }
        let serves = enrolled.serves.iter().map(|it| it.parse());
        let serves: Result<Vec<ServesPattern>, _> = serves.collect();
        let serves = serves.map_err(|error| format!("serves of {name:?}: {error}"))?;
        keys.insert(enrolled.public_key);
        peers.push(peer(enrolled.clone(), serves, allow));
    }
    let invited = register.invites.iter().map(|it| it.public_key);
    let invited = invited.filter(|it| keys.insert(*it));
    peers.extend(invited.map(|key| guest(key, GUEST, PeerOrigin::Invite)));
    let dismissed = register.dismissed.iter().map(|it| it.public_key);
    let dismissed = dismissed.filter(|it| keys.insert(*it));
    peers.extend(dismissed.map(|key| guest(key, DISMISSED, PeerOrigin::Dismissed)));
    Ok(peers)
}

fn peer(
    enrolled: EnrolledPeer,
    serves: Vec<ServesPattern>,
    allow: &[AllowEntry],
) -> (PeerSettings, PeerConfig) {
    let peer = PeerSettings {
        name: enrolled.name.clone(),
        origin: PeerOrigin::Register,
        id: PeerId(0),
        serves: Some(serves),
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

/// Creates a guest. A guest serves no servers and may reach no servers.
fn guest(public_key: PublicKey, kind: &str, origin: PeerOrigin) -> (PeerSettings, PeerConfig) {
    let name = format!("{kind} {})", &public_key.to_string()[..8]);
    let peer = PeerSettings {
        name: name.clone(),
        origin,
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

/// First characters of the name of a removed peer. No configured peer can have such a name.
const DISMISSED: &str = "(removed";

/// Rate limit of each guest. The messages of an enrolment have only a few hundred bytes.
const RATE_MAX: BitRate = BitRate::mbit(1);

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use link::Identity;

    use super::*;
    use crate::config::Config;
    use net::target::Host;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn key(seed: u8) -> PublicKey {
        Identity::from_seed([seed; 32]).public_key()
    }

    /// Creates a configuration whose file has the peer "hq" and whose register has the peer
    /// "partner". `of_file` is the line `serves = ...` of "hq". `of_register` lists the servers of
    /// "partner".
    fn config(name: &str, of_file: &str, of_register: &[&str]) -> Result<Config, String> {
        let path = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("room");
        let folder = Folder(path);
        let key_file = folder.0.join("a.key");
        let _ = std::fs::remove_file(&key_file);
        Identity::generate().write_new(&key_file).expect("room");
        let text = format!(
            "[identity]\nkey_file = \"a.key\"\n[[peer]]\nname = \"hq\"\npublic_key = \"{}\"\n{of_file}\n",
            key(1)
        );
        let register = Register {
            peers: vec![EnrolledPeer {
                name: "partner".to_owned(),
                public_key: key(2),
                endpoint: None,
                serves: of_register.iter().map(|it| (*it).to_owned()).collect(),
                since_unix_s: 0,
            }],
            ..Register::default()
        };
        let config = Config::parse_with(&text, &folder.0.join("a.toml"), &register);
        config.map_err(|error| error.to_string())
    }

    #[test]
    fn a_peer_of_the_register_serves_what_the_operator_says_and_stands_in_for_no_other() {
        let all = "";
        let nothing = "serves = []";
        for (of_file, of_register, host, expected) in [
            (all, &[][..], "10.9.9.9", &[0][..]),
            (nothing, &[], "10.9.9.9", &[]),
            (nothing, &["10.9.9.9"], "10.9.9.9", &[1]),
            (nothing, &["10.9.9.9"], "10.9.9.8", &[]),
            (all, &["10.9.0.0/16"], "10.9.9.9", &[1]),
            ("serves = [\"10.9.9.9\"]", &["10.9.9.9"], "10.9.9.9", &[0]),
            (
                "serves = [\"*.example\"]",
                &["*.example"],
                "a.example",
                &[0],
            ),
        ] {
            let config = config("registered", of_file, of_register).expect("it is right");
            let host = Host::parse(host).expect("a host");
            let expected: Vec<_> = expected.iter().map(|number| PeerId(*number)).collect();
            let chosen = config.relay.peers_for(&host, None);
            assert_eq!(chosen, expected, "{of_file} {of_register:?} {host}");
            let by_name = config.relay.peers_for(&host, Some(1));
            assert_eq!(by_name, [PeerId(1)], "a listener may name it");
        }
    }

    #[test]
    fn a_wrong_pattern_of_the_register_is_named() {
        let wrong = config("registered-wrong", "", &["no pattern"]).expect_err("it is wrong");
        assert!(
            wrong.contains("serves of \"partner\"") && wrong.contains("no pattern"),
            "{wrong}"
        );
    }
}
