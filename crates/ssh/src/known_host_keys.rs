//! Host keys of one server in the files of a user: `~/.ssh/known_hosts` and the system's file.

use std::{
    io,
    path::{Path, PathBuf},
};

use net::target::HostPort;
use russh::keys::{Algorithm, PublicKey};

use crate::{
    host_key_check::{self, HostKeyVerdict},
    known_hosts::{self, ServerKeys, Verdict},
};

/// Host keys of one server, from several files in the format of OpenSSH.
#[derive(Debug, Default)]
pub struct KnownHostKeys {
    files: Vec<(PathBuf, ServerKeys)>,
}

impl KnownHostKeys {
    /// Reads the entries for `server`. Missing files have no entries.
    ///
    /// # Errors
    /// The path of a file that cannot be read, and the error of the system.
    pub fn read(files: &[PathBuf], server: &HostPort) -> Result<Self, (PathBuf, io::Error)> {
        let read = |path: &PathBuf| match ServerKeys::read(path, server) {
            Ok(keys) => Ok((path.clone(), keys)),
            Err(error) => Err((path.clone(), error)),
        };
        let files = files.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { files })
    }

    /// Checks a host key. Also returns the file that contains the line in the verdict.
    ///
    /// A file that revokes the key takes precedence over all other files. A file that contains the
    /// key takes precedence over files that contain other keys of the server.
    pub fn check(&self, key: &PublicKey) -> (HostKeyVerdict, Option<&Path>) {
        let precedence = |verdict: &Verdict| match verdict {
            Verdict::Revoked(_) => 0,
            Verdict::Known => 1,
            Verdict::Changed(_) => 2,
            Verdict::Unknown => 3,
        };
        let files = self.files.iter();
        let verdicts = files.map(|(path, keys)| (keys.check(key), path.as_path()));
        match verdicts.min_by_key(|(verdict, _)| precedence(verdict)) {
            None | Some((Verdict::Unknown, _)) => (HostKeyVerdict::Unknown, None),
            Some((verdict, path)) => (verdict.into(), Some(path)),
        }
    }

    /// Returns the host key algorithms that a client offers. If there are known keys, only their
    /// algorithms are offered. Otherwise, a server with an additional key would look like a changed
    /// host key.
    pub fn algorithms(&self) -> Vec<Algorithm> {
        let mut all = ServerKeys::default();
        for (_, keys) in &self.files {
            all.add_known(keys);
        }
        host_key_check::offers(false, &all).remove(0)
    }
}

/// Adds the host key of a server to a file in the format of OpenSSH. Existing entries stay
/// unchanged. Returns [`HostKeyVerdict::Known`] if the file now contains the key.
///
/// # Errors
/// The error of the system if the file cannot be read or written.
pub fn accept_host_key(
    path: &Path,
    server: &HostPort,
    key: &PublicKey,
) -> io::Result<HostKeyVerdict> {
    known_hosts::append(path, server, key).map(HostKeyVerdict::from)
}

/// Returns whether the key is of the kind that the algorithm uses. Without this check, a server
/// could present one key and sign with another key (GHSA-66vf-xq4p-pg7q).
pub fn is_of_algorithm(key: &PublicKey, algorithm: &Algorithm) -> bool {
    host_key_check::is_same_kind(&key.algorithm(), algorithm)
}

#[cfg(test)]
mod tests {
    use russh::keys::{PrivateKey, key::safe_rng};

    use super::*;

    #[test]
    fn a_revoked_key_is_refused_and_a_known_key_is_found_in_any_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = ["user", "system"].map(|it| folder.path().join(it));
        let server = HostPort::parse_ssh("files.example").expect("a server");
        let key = || PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).expect("a key");
        let [key, other] = [key(), key()].map(|it| it.public_key().clone());
        let check = || {
            KnownHostKeys::read(&files, &server)
                .expect("files")
                .check(&key)
                .0
        };
        assert_eq!(check(), HostKeyVerdict::Unknown);
        accept_host_key(&files[1], &server, &other).expect("written");
        assert_eq!(check(), HostKeyVerdict::Changed { line: 1 });
        let line = format!("\n{}\n", known_hosts::entry(&server, &key));
        std::fs::write(&files[0], &line).expect("written");
        assert_eq!(check(), HostKeyVerdict::Known);
        let line = format!("@revoked {}\n", known_hosts::entry(&server, &key));
        std::fs::write(&files[1], line).expect("written");
        assert_eq!(check(), HostKeyVerdict::Revoked { line: 1 });
        let keys = KnownHostKeys::read(&files, &server).expect("files");
        assert_eq!(keys.algorithms(), [Algorithm::Ed25519]);
    }
}
