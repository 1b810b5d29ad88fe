//! Check of the host key of an SSH server, before any credential leaves this machine.

use std::path::{Path, PathBuf};

use net::target::{Host, HostPort};
use russh::keys::{Algorithm, HashAlg, PublicKey};
use ssh::{HostKeyVerdict, KnownHostKeys, accept_host_key};

use super::{HostKeyRule, KnownHosts};
use crate::server::HostKeyRejection;

/// Check of the host key of one server.
#[derive(Debug)]
pub(super) enum HostKeyCheck {
    Known {
        rule: KnownHosts,
        server: HostPort,
        keys: KnownHostKeys,
    },
    Pinned {
        pinned: String,
        server: String,
    },
    Trusted,
}

impl HostKeyCheck {
    /// Prepares the check of the host key of the server at `host` and `port`. Reads the files of
    /// known hosts.
    ///
    /// # Errors
    /// [`HostKeyRejection`] if a file cannot be read.
    pub(super) async fn prepare(
        rule: &HostKeyRule,
        host: &str,
        port: u16,
    ) -> Result<Self, HostKeyRejection> {
        let rule = match rule {
            HostKeyRule::Trusted => return Ok(Self::Trusted),
            HostKeyRule::Pinned(pinned) => {
                return Ok(Self::Pinned {
                    pinned: pinned.clone(),
                    server: format!("{host}:{port}"),
                });
            }
            HostKeyRule::Known(rule) => rule.clone(),
        };
        let server = match &rule.alias {
            // OpenSSH writes no port for an alias.
            Some(alias) => named(alias, SSH_PORT)?,
            None => named(host, port)?,
        };
        let read = move || {
            let keys = KnownHostKeys::read(&rule.files, &server);
            let keys = keys.map_err(|(file, source)| HostKeyRejection::File {
                server: shown(&server),
                file,
                source,
            })?;
            Ok(Self::Known { rule, server, keys })
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.expect("reading files does not panic")
    }

    /// Returns the sets of host key algorithms that the mover offers, one set for each attempt.
    pub(super) fn offers(&self) -> Vec<Vec<Algorithm>> {
        let all = KnownHostKeys::default().algorithms();
        match self {
            Self::Known { keys, .. } => vec![keys.algorithms()],
            Self::Trusted => vec![all],
            // The pinned key may be of any kind, so there is one attempt for each kind.
            Self::Pinned { .. } => {
                let of = |is_kind: &dyn Fn(&Algorithm) -> bool| {
                    all.iter().filter(|it| is_kind(it)).cloned().collect()
                };
                let is_rsa = |it: &Algorithm| matches!(it, Algorithm::Rsa { .. });
                let is_ecdsa = |it: &Algorithm| matches!(it, Algorithm::Ecdsa { .. });
                vec![
                    of(&|it| !is_ecdsa(it) && !is_rsa(it)),
                    of(&is_ecdsa),
                    of(&is_rsa),
                ]
            }
        }
    }

    /// Checks the key that the server presents.
    ///
    /// # Errors
    /// [`HostKeyRejection`] if the key is not trusted.
    pub(super) fn check(&self, key: &PublicKey) -> Result<(), HostKeyRejection> {
        let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
        let (rule, server, keys) = match self {
            Self::Trusted => return Ok(()),
            Self::Pinned { pinned, .. } if *pinned == fingerprint => return Ok(()),
            Self::Pinned { pinned, server } => {
                return Err(HostKeyRejection::NotPinned {
                    server: server.clone(),
                    fingerprint,
                    pinned: pinned.clone(),
                });
            }
            Self::Known { rule, server, keys } => (rule, server, keys),
        };
        let name = shown(server);
        let (verdict, file) = keys.check(key);
        let first = rule.files.first().map(PathBuf::as_path);
        let file = file.or(first).unwrap_or(Path::new("known_hosts"));
        let (verdict, file) = match verdict {
            HostKeyVerdict::Unknown if rule.accepts(&fingerprint) => {
                match accept_host_key(file, server, key) {
                    Ok(verdict) => {
                        tracing::warn!(
                            server = name,
                            fingerprint,
                            "trusting the host key on first use"
                        );
                        (verdict, file)
                    }
                    Err(error) => {
                        tracing::warn!(
                            server = name,
                            fingerprint,
                            file = %file.display(),
                            %error,
                            "the accepted host key cannot be stored"
                        );
                        return Ok(());
                    }
                }
            }
            verdict => (verdict, file),
        };
        let algorithm = key.algorithm().to_string();
        let file = file.to_owned();
        match verdict {
            HostKeyVerdict::Known => Ok(()),
            HostKeyVerdict::Changed { line } => Err(HostKeyRejection::Changed {
                server: name,
                fingerprint,
                algorithm,
                file,
                line,
            }),
            HostKeyVerdict::Revoked { line } => Err(HostKeyRejection::Revoked {
                server: name,
                fingerprint,
                file,
                line,
            }),
            HostKeyVerdict::Unknown | HostKeyVerdict::NotPinned => Err(HostKeyRejection::Unknown {
                server: name,
                fingerprint,
                algorithm,
                file,
            }),
        }
    }
}

fn named(host: &str, port: u16) -> Result<HostPort, HostKeyRejection> {
    let parsed = Host::parse(host);
    let host = parsed.map_err(|_| HostKeyRejection::Name(host.to_owned()))?;
    Ok(HostPort { host, port })
}

/// Returns the name of the server in the form of a file of known hosts.
fn shown(server: &HostPort) -> String {
    let host = match &server.host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    };
    match server.port {
        SSH_PORT => host,
        port => format!("[{host}]:{port}"),
    }
}

/// Port of SSH servers (RFC 4253 section 4.1).
const SSH_PORT: u16 = 22;

#[cfg(test)]
mod tests {
    use russh::keys::{PrivateKey, key::safe_rng};

    use super::*;

    fn key() -> PublicKey {
        let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).expect("a key");
        key.public_key().clone()
    }

    async fn check(rule: &HostKeyRule, key: &PublicKey) -> Result<(), HostKeyRejection> {
        HostKeyCheck::prepare(rule, "files.example", 2222)
            .await?
            .check(key)
    }

    #[tokio::test]
    async fn a_new_key_is_accepted_once_and_a_changed_key_never() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("known_hosts");
        let rule = |accepts_new| {
            HostKeyRule::Known(KnownHosts {
                files: vec![file.clone()],
                alias: None,
                accepts_new,
                confirmed: None,
            })
        };
        let (first, second) = (key(), key());
        let unknown = check(&rule(false), &first)
            .await
            .expect_err("unknown")
            .to_string();
        let fingerprint = first.fingerprint(HashAlg::Sha256).to_string();
        assert!(unknown.contains(&fingerprint), "{unknown}");
        assert!(unknown.contains("[files.example]:2222"), "{unknown}");
        assert!(!file.exists());
        check(&rule(true), &first).await.expect("accepted");
        check(&rule(false), &first).await.expect("known");
        for accepts_new in [false, true] {
            let changed = check(&rule(accepts_new), &second)
                .await
                .expect_err("changed");
            let text = changed.to_string();
            assert!(text.contains("has changed"), "{text}");
            assert!(text.contains("line 1"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_confirmed_key_is_added_and_another_key_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("known_hosts");
        let (right, other) = (key(), key());
        let rule = HostKeyRule::Known(KnownHosts {
            files: vec![file.clone()],
            confirmed: Some(right.fingerprint(HashAlg::Sha256).to_string()),
            ..KnownHosts::default()
        });
        check(&rule, &other).await.expect_err("not confirmed");
        assert!(!file.exists());
        check(&rule, &right).await.expect("confirmed");
        check(&rule, &other).await.expect_err("changed");
    }

    #[tokio::test]
    async fn a_pin_permits_its_key_alone() {
        let (key, other) = (key(), key());
        let rule = HostKeyRule::Pinned(key.fingerprint(HashAlg::Sha256).to_string());
        check(&rule, &key).await.expect("pinned");
        check(&rule, &other).await.expect_err("another key");
        let offers = HostKeyCheck::prepare(&rule, "h", 22)
            .await
            .expect("no file")
            .offers();
        assert_eq!(offers.len(), 3);
        assert!(offers.iter().all(|it| !it.is_empty()));
    }
}
