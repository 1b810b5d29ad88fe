//! Check of a host key against the settings of the far gateway, for `setup` and `doctor`.

use std::{io, path::Path};

use net::target::HostPort;
use russh::{Preferred, keys::Algorithm};

use crate::{
    inspection::{HostKeyOffer, ServerHostKey},
    known_hosts::{self, ServerKeys, Verdict},
    settings::FarSsh,
};

/// Result of the check of a host key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKeyVerdict {
    /// The far gateway logs in at a server with this key.
    Known,
    /// `known_hosts` contains no key of the server.
    Unknown,
    /// `known_hosts` contains another key of the server.
    Changed {
        /// Number of the line with the other key, counted from 1.
        line: usize,
    },
    /// `known_hosts` revokes the key.
    Revoked {
        /// Number of the line that revokes the key, counted from 1.
        line: usize,
    },
    /// The settings permit only one fingerprint, and it is not the fingerprint of this key.
    NotPinned,
}

impl FarSsh {
    /// Checks the host key of a server. Even with `trust_on_first_use`, an unknown key stays
    /// unknown until the first log-in.
    ///
    /// # Errors
    /// The error of the system if `known_hosts` cannot be read.
    pub fn verdict(&self, server: &HostPort, key: &ServerHostKey) -> io::Result<HostKeyVerdict> {
        if let Some(pin) = &self.host_key {
            return Ok(match *pin == key.fingerprint() {
                true => HostKeyVerdict::Known,
                false => HostKeyVerdict::NotPinned,
            });
        }
        let Some(path) = &self.known_hosts else {
            return Ok(HostKeyVerdict::Unknown);
        };
        let keys = ServerKeys::read(path, server)?;
        Ok(keys.check(key.public_key()).into())
    }
}

impl FarSsh {
    /// Returns the sets of host key algorithms that the far gateway offers to a server, one set for
    /// each attempt.
    ///
    /// # Errors
    /// The error of the system if `known_hosts` cannot be read.
    pub fn offers(&self, server: &HostPort) -> io::Result<Vec<HostKeyOffer>> {
        let keys = match (&self.host_key, &self.known_hosts) {
            (None, Some(path)) => ServerKeys::read(path, server)?,
            _ => ServerKeys::default(),
        };
        let offers = offers(self.host_key.is_some(), &keys).into_iter();
        Ok(offers.map(HostKeyOffer::from).collect())
    }
}

/// Returns the sets of host key algorithms for a server with these known keys, one set for each
/// attempt.
///
/// If there are known keys, only their algorithms are offered. Otherwise, a server with an
/// additional key would look like a changed host key. A pinned key may be of any kind, so there is
/// one attempt for each kind.
pub(crate) fn offers(is_pinned: bool, keys: &ServerKeys) -> Vec<Vec<Algorithm>> {
    let all = safe_algorithms();
    if is_pinned {
        let of_family = |number| {
            let algorithms = all.iter().filter(|it| family(it) == number);
            algorithms.cloned().collect()
        };
        return [0, 1, 2].map(of_family).to_vec();
    }
    let is_known = |algorithm: &&Algorithm| {
        let mut known = keys.known();
        known.any(|key| is_same_kind(&key.algorithm(), algorithm))
    };
    let known: Vec<_> = all.iter().filter(is_known).cloned().collect();
    vec![if known.is_empty() { all } else { known }]
}

/// Returns the host key algorithms in the order of preference. RSA signatures with SHA-1 are not
/// safe, so they are left out.
pub(crate) fn safe_algorithms() -> Vec<Algorithm> {
    let is_safe = |it: &&Algorithm| !matches!(it, Algorithm::Rsa { hash: None });
    let all = Preferred::DEFAULT.key;
    all.iter().filter(is_safe).cloned().collect()
}

/// Whether both algorithms use keys of the same kind. The hash function of RSA does not matter.
pub(crate) fn is_same_kind(a: &Algorithm, b: &Algorithm) -> bool {
    match (a, b) {
        (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }) => true,
        (a, b) => a == b,
    }
}

fn family(algorithm: &Algorithm) -> usize {
    match algorithm {
        Algorithm::Ecdsa { .. } => 1,
        Algorithm::Rsa { .. } => 2,
        _ => 0,
    }
}

/// Adds the host key of a server to a file in the format of OpenSSH. Existing entries stay
/// unchanged. Returns [`HostKeyVerdict::Known`] if the file now contains the key.
///
/// # Errors
/// The error of the system if the file cannot be read or written.
pub fn add_known_host(
    path: &Path,
    server: &HostPort,
    key: &ServerHostKey,
) -> io::Result<HostKeyVerdict> {
    known_hosts::append(path, server, key.public_key()).map(HostKeyVerdict::from)
}

impl From<Verdict> for HostKeyVerdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Known => Self::Known,
            Verdict::Unknown => Self::Unknown,
            Verdict::Changed(line) => Self::Changed { line },
            Verdict::Revoked(line) => Self::Revoked { line },
        }
    }
}

#[cfg(test)]
mod tests {
    use russh::keys::{Algorithm, PrivateKey, key::safe_rng};

    use super::*;

    fn new_key() -> ServerHostKey {
        let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).expect("a key");
        ServerHostKey::from(key.public_key().clone())
    }

    #[test]
    fn an_added_key_is_known_and_another_key_has_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("known_hosts");
        let far = FarSsh {
            known_hosts: Some(path.clone()),
            ..FarSsh::default()
        };
        let server = HostPort::parse_ssh("10.20.0.5").expect("a host");
        let (key, other) = (new_key(), new_key());
        let verdict = |key| far.verdict(&server, key).expect("no error of the system");
        assert_eq!(verdict(&key), HostKeyVerdict::Unknown);
        let added = add_known_host(&path, &server, &key).expect("room");
        assert_eq!(added, HostKeyVerdict::Known);
        assert_eq!(verdict(&key), HostKeyVerdict::Known);
        let changed = HostKeyVerdict::Changed { line: 1 };
        assert_eq!(verdict(&other), changed);
        let refused = add_known_host(&path, &server, &other).expect("room");
        assert_eq!(refused, changed);
    }

    #[test]
    fn only_the_kinds_of_known_keys_are_offered() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("known_hosts");
        let server = HostPort::parse_ssh("10.20.0.5").expect("a host");
        let far = FarSsh {
            known_hosts: Some(path.clone()),
            ..FarSsh::default()
        };
        let count = |far: &FarSsh| far.offers(&server).expect("a file").len();
        let all = HostKeyOffer::from(safe_algorithms());
        assert_eq!(far.offers(&server).expect("no file"), [all]);
        add_known_host(&path, &server, &new_key()).expect("room");
        let ed25519 = HostKeyOffer::from(vec![Algorithm::Ed25519]);
        assert_eq!(far.offers(&server).expect("a file"), [ed25519]);
        let pinned = FarSsh {
            host_key: Some(new_key().fingerprint()),
            ..FarSsh::default()
        };
        assert_eq!((count(&far), count(&pinned)), (1, 3));
    }

    #[test]
    fn a_pin_permits_its_key_alone() {
        let (key, other) = (new_key(), new_key());
        let far = FarSsh {
            host_key: Some(key.fingerprint()),
            ..FarSsh::default()
        };
        let server = HostPort::parse_ssh("10.20.0.5").expect("a host");
        let verdict = |key| far.verdict(&server, key).expect("no file is read");
        assert_eq!(verdict(&key), HostKeyVerdict::Known);
        assert_eq!(verdict(&other), HostKeyVerdict::NotPinned);
    }
}
