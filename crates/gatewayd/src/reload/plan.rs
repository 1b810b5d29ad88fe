//! Comparison of the running configuration with a new configuration. The result contains the
//! changes to apply now, the changes that need a restart, and the number of each peer in the link.

use link::{PeerConfig, PeerId, PublicKey};
use units::ByteCount;

use crate::config::{Config, Forward, FtpListener, PassThrough, SshListener};
use relay::settings::memory_least;

/// A configuration to apply, with the changes that it makes.
pub(super) struct ReloadPlan {
    /// The new configuration. If the change of a key needs a restart, the key has its running
    /// value.
    pub(super) config: Config,
    pub(super) known: Vec<KnownPeer>,
    pub(super) applied: Vec<String>,
    pub(super) needs_restart: Vec<String>,
}

/// A present or removed peer of the link.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KnownPeer {
    /// The peer's settings in the link. A removed peer has no keys.
    pub(super) link: PeerConfig,
    /// Keys of the peer. If the peer is removed, these are its keys before the removal.
    keys: Vec<PublicKey>,
}

/// Reason why a configuration cannot be applied now. A restart with this configuration would work.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReloadPlanError {
    #[error("[link] memory_max is {have} until a restart, and the peers need at least {least}")]
    Memory { have: ByteCount, least: ByteCount },
    #[error("the link has known {PEERS_MAX} peers since its start: a restart is due")]
    TooManyPeers,
}

impl KnownPeer {
    /// Returns the peers in the configuration with which the gateway was started.
    pub(super) fn all(config: &Config) -> Vec<Self> {
        let peers = config.relay.link.peers.iter();
        peers.map(|peer| Self::new(peer.clone())).collect()
    }

    fn new(link: PeerConfig) -> Self {
        let keys = link.public_keys.clone();
        Self { link, keys }
    }

    fn may_have(&self, keys: &[PublicKey]) -> bool {
        self.keys.iter().all(|key| keys.contains(key))
    }
}

/// Returns the plan for a change from the configuration `running` to `fresh`.
pub(super) fn plan(
    running: &Config,
    mut fresh: Config,
    known: &[KnownPeer],
) -> Result<ReloadPlan, ReloadPlanError> {
    let mut needs_restart = keep_what_cannot_change(running, &mut fresh);
    let known = number_peers(running, &mut fresh, known)?;
    keep_transparent(running, &mut fresh, &mut needs_restart);
    let counted = fresh.relay.peers.iter().filter(|it| !it.is_guest()).count();
    let least = memory_least(counted);
    if fresh.relay.link.memory_max < least {
        let have = fresh.relay.link.memory_max;
        return Err(ReloadPlanError::Memory { have, least });
    }
    let applied = changes(running, &fresh);
    Ok(ReloadPlan {
        config: fresh,
        known,
        applied,
        needs_restart,
    })
}

/// Reverts each change in `fresh` that needs a restart: the key gets its running value. Returns the
/// names of the reverted keys.
fn keep_what_cannot_change(running: &Config, fresh: &mut Config) -> Vec<String> {
    let mut names = Vec::new();
    let mut keep = |name: &str, is_same: bool| {
        if !is_same {
            names.push(name.to_owned());
        }
    };
    let (old, new) = (&running.relay.link, &fresh.relay.link);
    let is_same_key = running.key_file == fresh.key_file
        && old.identity.public_key() == new.identity.public_key();
    keep("[identity] key_file", is_same_key);
    keep("[link] listen", running.link_listen == fresh.link_listen);
    keep("[link] policy, rate_reserved", old.policy == new.policy);
    keep("[link] memory_max", old.memory_max == new.memory_max);
    keep("[link] idle_timeout", old.idle_timeout == new.idle_timeout);
    keep("[admin] listen", running.admin_listen == fresh.admin_listen);
    if old.memory_max != new.memory_max {
        // The limits depend on `memory_max`, whose running value stays in force.
        keep(
            "[limits], with memory_max",
            running.relay.limits == fresh.relay.limits,
        );
        fresh.relay.limits = running.relay.limits;
    }
    keep("[admin] socket", running.admin_socket == fresh.admin_socket);
    fresh.admin_socket.clone_from(&running.admin_socket);
    fresh.admin_socket_explicit = running.admin_socket_explicit;
    keep("[admin] hosts", running.admin_hosts == fresh.admin_hosts);
    fresh.admin_hosts.clone_from(&running.admin_hosts);
    match (&running.admin_https, &mut fresh.admin_https) {
        (Some(old), Some(new)) => {
            let name = "[admin.https] listen, certificate, key";
            let is_same = old.listen == new.listen && old.certificate == new.certificate;
            keep(name, is_same);
            new.listen = old.listen;
            new.certificate.clone_from(&old.certificate);
        }
        (old, new) => {
            keep("[admin.https]", old == new);
            new.clone_from(old);
        }
    }
    keep("[spool]", running.spool == fresh.spool);
    keep("[store]", running.store == fresh.store);
    keep("[log] format", running.log_format == fresh.log_format);
    fresh.log_format = running.log_format;
    fresh.spool.clone_from(&running.spool);
    fresh.store.clone_from(&running.store);
    fresh.key_file.clone_from(&running.key_file);
    fresh.link_listen = running.link_listen;
    fresh.admin_listen = running.admin_listen;
    fresh.admin_explicit = running.admin_explicit;
    fresh.relay.link = link::LinkConfig {
        peers: std::mem::take(&mut fresh.relay.link.peers),
        rate_max: fresh.relay.link.rate_max,
        ..running.relay.link.clone()
    };
    names
}

/// Assigns each peer of `fresh` its number in the link, and returns all peers of the link.
///
/// A peer keeps its number if it has its former name and at least one of its former keys. Otherwise
/// it counts as another peer. Sessions of the former peer therefore never act for the new peer.
fn number_peers(
    running: &Config,
    fresh: &mut Config,
    known: &[KnownPeer],
) -> Result<Vec<KnownPeer>, ReloadPlanError> {
    let mut all = known.to_vec();
    for known in &mut all {
        known.link.public_keys.clear();
    }
    for (peer, of_link) in fresh
        .relay
        .peers
        .iter_mut()
        .zip(&mut fresh.relay.link.peers)
    {
        let name = &peer.name;
        let present = running.relay.peers.iter().find(|peer| {
            let keeps_one = |key| known[peer.id.0].keys.contains(key);
            peer.name == *name && of_link.public_keys.iter().any(keeps_one)
        });
        // A removed peer that returns gets its former number, unless the number could belong to
        // another gateway.
        let former = known.iter().position(|known| {
            known.link.is_removed()
                && known.link.name == *name
                && known.may_have(&of_link.public_keys)
        });
        let number = present.map(|peer| peer.id.0).or(former);
        peer.id = PeerId(number.unwrap_or(all.len()));
        let now_known = KnownPeer::new(of_link.clone());
        match number {
            Some(number) => all[number] = now_known,
            None => all.push(now_known),
        }
    }
    if all.len() > PEERS_MAX {
        return Err(ReloadPlanError::TooManyPeers);
    }
    Ok(all)
}

/// Keeps the transparent listeners with which the gateway has started, because their rules are in
/// the kernel. If a listener's peer is removed, the listener is removed, too. That peer is not up,
/// so the kernel redirects no client to the listener.
fn keep_transparent(running: &Config, fresh: &mut Config, needs_restart: &mut Vec<String>) {
    let described = |config: &Config| -> Vec<_> {
        let listeners = config.ftp.iter().filter(|listener| listener.transparent);
        let described = listeners.map(|listener| {
            let servers = config.intercepted(listener).to_string();
            (ftp_listener(config, listener), servers)
        });
        described.collect()
    };
    if described(running) != described(fresh) {
        needs_restart.push("[[ftp]] with transparent = true, or the servers behind it".to_owned());
    }
    let mut kept = Vec::new();
    for listener in running.ftp.iter().filter(|listener| listener.transparent) {
        let via = match via_name(running, listener.via) {
            None => None,
            Some(name) => {
                let Some(at) = fresh.relay.peers.iter().position(|peer| peer.name == name) else {
                    continue;
                };
                Some(at)
            }
        };
        kept.push(FtpListener {
            via,
            ..listener.clone()
        });
    }
    fresh.ftp.retain(|listener| !listener.transparent);
    fresh.ftp.extend(kept);
}

/// Returns the names of all changed keys and sections.
fn changes(running: &Config, fresh: &Config) -> Vec<String> {
    let mut names = Vec::new();
    let mut changed = |name: &str, is_same: bool| {
        if !is_same {
            names.push(name.to_owned());
        }
    };
    changed(
        "[link] rate_max",
        running.relay.link.rate_max == fresh.relay.link.rate_max,
    );
    changed("[link] drain_max", running.drain_max == fresh.drain_max);
    changed(
        "[link] upgrade_drain_max",
        running.upgrade_drain_max == fresh.upgrade_drain_max,
    );
    changed("[limits]", running.relay.limits == fresh.relay.limits);
    changed("[far.ssh]", running.far_ssh == fresh.far_ssh);
    changed("[log] level", running.log_level == fresh.log_level);
    changed(
        "[log] transfer_log",
        running.transfer_log == fresh.transfer_log,
    );
    changed(
        "[admin] token_file",
        running.admin_token == fresh.admin_token,
    );
    changed(
        "[admin.https] client_ca",
        running.admin_https == fresh.admin_https,
    );
    names.extend(differences("[[peer]]", &peers(running), &peers(fresh)));
    let ftp = |config: &Config| -> Vec<_> {
        let listeners = config.ftp.iter();
        let listeners =
            listeners.map(|listener| (listener.listen.to_string(), ftp_listener(config, listener)));
        listeners.collect()
    };
    names.extend(differences("[[ftp]]", &ftp(running), &ftp(fresh)));
    let passed = |config: &Config| -> Vec<_> {
        let listeners = config.pass_through.iter().map(|listener| {
            let via = via_name(config, listener.via).map(str::to_owned);
            let listener = PassThrough {
                via: None,
                ..listener.clone()
            };
            (listener.listen.to_string(), (listener, via))
        });
        listeners.collect()
    };
    names.extend(differences("[[ftp]]", &passed(running), &passed(fresh)));
    let ssh = |config: &Config| -> Vec<_> {
        let listeners = config.ssh.iter().map(|listener| {
            let via = via_name(config, listener.via).map(str::to_owned);
            let listener = SshListener {
                via: None,
                ..listener.clone()
            };
            (listener.listen.to_string(), (listener, via))
        });
        listeners.collect()
    };
    names.extend(differences("[[ssh]]", &ssh(running), &ssh(fresh)));
    let forwards = |config: &Config| -> Vec<_> {
        let forwards = config.forwards.iter().map(|forward| {
            let via = via_name(config, forward.via).map(str::to_owned);
            let forward = Forward {
                via: None,
                ..forward.clone()
            };
            (forward.listen.to_string(), (forward, via))
        });
        forwards.collect()
    };
    let (old, new) = (forwards(running), forwards(fresh));
    names.extend(differences("[[forward]]", &old, &new));
    names
}

/// Returns the name of each peer with all its settings.
fn peers(config: &Config) -> Vec<(String, (crate::config::PeerSettings, PeerConfig))> {
    let peers = config.relay.peers.iter().zip(&config.relay.link.peers);
    let peers = peers.map(|(peer, of_link)| {
        let peer = crate::config::PeerSettings {
            id: PeerId(0),
            ..peer.clone()
        };
        (format!("{:?}", peer.name), (peer, of_link.clone()))
    });
    peers.collect()
}

/// Returns a listener, and the name of its peer. The listener's peer number is cleared, because the
/// numbers differ between configurations.
fn ftp_listener(config: &Config, listener: &FtpListener) -> (FtpListener, Option<String>) {
    let via = via_name(config, listener.via).map(str::to_owned);
    let listener = FtpListener {
        via: None,
        ..listener.clone()
    };
    (listener, via)
}

fn via_name(config: &Config, via: Option<usize>) -> Option<&str> {
    Some(config.relay.peers.get(via?)?.name.as_str())
}

/// Returns a text for each item that was added, removed or changed. Items with the same name are
/// compared.
fn differences<T: PartialEq>(
    kind: &str,
    running: &[(String, T)],
    fresh: &[(String, T)],
) -> Vec<String> {
    let mut names = Vec::new();
    // Several items may have the same name, such as an address whose port the system chooses.
    let mut left: Vec<_> = running.iter().collect();
    for (name, value) in fresh {
        match left.iter().position(|(other, _)| other == name) {
            None => names.push(format!("{kind} {name} added")),
            Some(at) => {
                if left.remove(at).1 != *value {
                    names.push(format!("{kind} {name} changed"));
                }
            }
        }
    }
    names.extend(
        left.iter()
            .map(|(name, _)| format!("{kind} {name} removed")),
    );
    names
}

/// Maximum number of peers since the start, including removed peers. Each peer uses some memory
/// until a restart.
const PEERS_MAX: usize = 4096;
