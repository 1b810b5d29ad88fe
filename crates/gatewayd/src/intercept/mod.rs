//! Transparent listeners. Clients connect to the servers themselves, and their connections cross
//! this machine. The gateway intercepts these connections while the peer is up. They pass directly
//! while the peer is down.
//!
//! This module installs and removes the kernel's configuration: a table of nftables rules
//! (`ruleset`) and policy routing (`routing`) for each transparent listener. The programs `nft` and
//! `ip` do the work. An administrator finds the same entries as after manual commands, and `nft`
//! applies all changes or none. A few calls each second do not justify a netlink library. The
//! intercepted connections themselves belong to `near`.

mod follow;
mod program;
mod routing;
mod ruleset;

use std::{
    net::TcpListener,
    sync::mpsc::{Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use link::Link;
use tracing::{info, warn};

pub use self::program::InterceptError;
use self::ruleset::Ruleset;
use crate::config::{Config, FtpListener};

/// The interception of a running gateway. Dropping it removes the rules and the routing.
#[derive(Debug)]
pub(crate) struct Interception {
    rulesets: Vec<Ruleset>,
    /// The thread that follows the peers, and the channel that ends it.
    follower: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Interception {
    /// Installs the rules and routing of `config`'s transparent listeners, and replaces rules that
    /// a killed gateway has left. Connections are intercepted as soon as their peer is up.
    ///
    /// # Errors
    /// [`InterceptError`] names the missing part. No rules stay installed then.
    pub(crate) fn start(config: &Config, link: &Link) -> Result<Self, InterceptError> {
        let mut interception = Self::install(config, &[])?;
        interception.resume(link);
        Ok(interception)
    }

    /// Installs the rules and routing, but does not follow the peers yet.
    ///
    /// The peers `up` count as up for the moment, according to the process that this one replaces.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub(crate) fn install(config: &Config, up: &[usize]) -> Result<Self, InterceptError> {
        let mut interception = Self {
            rulesets: Vec::new(),
            follower: None,
        };
        for rules in rulesets(config) {
            interception.rulesets.push(rules.clone());
            install(&rules, up)?;
            info!(table = rules.table(), listen = %rules.listen(), "interception installed");
        }
        Ok(interception)
    }

    /// Starts to follow the peers.
    pub(crate) fn resume(&mut self, link: &Link) {
        if self.rulesets.is_empty() || self.follower.is_some() {
            return;
        }
        link.set_keep_alive(KEEP_ALIVE);
        let (stop, stopped) = channel();
        let (rulesets, link) = (self.rulesets.clone(), link.clone());
        let thread = thread::spawn(move || follow::follow(&rulesets, &link, &stopped));
        self.follower = Some((stop, thread));
    }

    /// Stops following the peers, without other changes. The kernel's entries hold for seconds, in
    /// which another process continues to follow the peers.
    pub(crate) fn pause(&mut self) {
        if let Some((stop, thread)) = self.follower.take() {
            // The follower may have ended.
            let _ = stop.send(());
            join(thread);
        }
    }

    /// Leaves the tables `kept` in the kernel to another process. The others are removed with the
    /// connections that they intercept.
    pub(crate) fn leave(&mut self, kept: &[String]) {
        self.pause();
        self.rulesets.retain(|rules| !kept.contains(&rules.table()));
    }

    /// Lets new connections pass. Intercepted connections continue.
    pub(crate) fn end(&mut self) {
        if let Some((stop, thread)) = self.follower.take() {
            drop(stop);
            join(thread);
        }
    }
}

fn join(follower: JoinHandle<()>) {
    if follower.join().is_err() {
        warn!("the follower of peers has panicked");
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        self.end();
        for rules in &self.rulesets {
            if let Err(error) = uninstall(rules) {
                warn!(%error, table = rules.table(), "interception not removed");
            }
        }
    }
}

/// Returns the kernel tables of a gateway with this configuration.
pub(crate) fn tables(config: &Config) -> Vec<String> {
    rulesets(config).map(|rules| rules.table()).collect()
}

/// Removes the rules and routing that a killed gateway with this configuration has left. Returns a
/// line about each listener.
///
/// # Errors
/// [`InterceptError`] names the missing part, or reports that the gateway still runs.
pub fn remove(config: &Config) -> Result<Vec<String>, InterceptError> {
    let mut lines = Vec::new();
    for rules in rulesets(config) {
        if is_running(&rules) {
            return Err(InterceptError::Running(rules.listen()));
        }
        uninstall(&rules)?;
        let (table, number) = (rules.table(), rules.mark());
        lines.push(format!(
            "table inet {table}, routing table {number} and its rules: none left"
        ));
    }
    Ok(lines)
}

fn rulesets(config: &Config) -> impl Iterator<Item = Ruleset> {
    let is_transparent = |listener: &&FtpListener| listener.transparent;
    let listeners = config.ftp.iter().filter(is_transparent);
    listeners.map(|listener| Ruleset::new(config, listener))
}

fn install(rules: &Ruleset, up: &[usize]) -> Result<(), InterceptError> {
    // Entries of another process of this gateway stay in force without a gap.
    if up.is_empty() || !routing::is_installed(rules)? {
        routing::install(rules)?;
    }
    program::nft(&(rules.install() + &rules.refresh(|peer| up.contains(&peer))))
}

fn uninstall(rules: &Ruleset) -> Result<(), InterceptError> {
    // One of the programs may be missing. The changes of the other must be removed nevertheless.
    let removed = program::nft(&rules.remove());
    routing::remove(rules)?;
    removed
}

#[allow(
    clippy::disallowed_methods,
    reason = "asks the kernel whether somebody listens"
)]
fn is_running(rules: &Ruleset) -> bool {
    let bound = TcpListener::bind(rules.listen());
    bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
}

/// Interval of keep-alive packets to idle peers. It detects the death of a peer in time for clients
/// that connect a second later. It costs 3 kbit/s for each peer.
const KEEP_ALIVE: Duration = Duration::from_millis(200);
