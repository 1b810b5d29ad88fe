//! Check of a host key by the settings of the far gateway, for `setup` and `doctor`.

use std::{io, path::Path};

use net::target::HostPort;

use crate::{
    inspection::ServerHostKey,
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
    /// The settings permit only another key, by its fingerprint.
    NotPinned,
}

impl FarSsh {
    /// Checks the host key of a server. With `trust_on_first_use`, an unknown key stays unknown
    /// until the first log-in.
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
