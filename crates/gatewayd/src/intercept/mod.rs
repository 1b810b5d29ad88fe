//! Transparent listeners. Clients connect to the servers' own addresses, and their connections pass
//! through this machine. The gateway intercepts these connections while the peer is up. While the
//! peer is down, the connections go directly to the servers.
//!
//! This module installs and removes the kernel's configuration for each transparent listener. The
//! configuration has a table of nftables rules (`ruleset`) and policy routing (`routing`). The
//! module runs the programs `nft` and `ip` instead of using a netlink library, because a few calls
//! per second are enough. Administrators can inspect the entries with the same programs. `nft`
//! applies all changes of a call or none. The module `near` serves the intercepted connections.

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

/// The interception of a running gateway. When this value is dropped, the rules and the routing are
/// removed from the kernel.
#[derive(Debug)]
pub(crate) struct Interception {
    rulesets: Vec<Ruleset>,
    /// The thread that informs the kernel about peers, and the channel that ends this thread.
    follower: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Interception {
    /// Installs the rules and the routing of the transparent listeners in `config`. Replaces rules
    /// that a killed gateway has left. The kernel intercepts connections as soon as the peer is up.
    ///
    /// # Errors
    /// [`InterceptError`] names the missing program, permission or kernel feature. After an error,
    /// no rules remain installed.
    pub(crate) fn start(config: &Config, link: &Link) -> Result<Self, InterceptError> {
        let mut interception = Self::install(config, &[])?;
        interception.resume(link);
        Ok(interception)
    }

    /// Installs the rules and the routing, but does not start the thread that updates them.
    ///
    /// The peers in `up` count as up for a few seconds. The old process, which this process
    /// replaces, has reported these peers.
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

    /// Starts the thread that informs the kernel which peers are up.
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

    /// Stops the thread that updates the kernel. The kernel's entries remain valid for a few
    /// seconds. In this time, another process can take over the updates.
    pub(crate) fn pause(&mut self) {
        if let Some((stop, thread)) = self.follower.take() {
            // The thread may already have ended.
            let _ = stop.send(());
            join(thread);
        }
    }

    /// Stops the updates, and leaves the kernel tables in `kept` to another process. The tables
    /// that are not in `kept` are removed when this value is dropped.
    pub(crate) fn leave(&mut self, kept: &[String]) {
        self.pause();
        self.rulesets.retain(|rules| !kept.contains(&rules.table()));
    }

    /// Ends the interception of new connections. Connections that are already intercepted continue.
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

/// Returns the names of the kernel tables that a gateway with this configuration installs.
pub(crate) fn tables(config: &Config) -> Vec<String> {
    rulesets(config).map(|rules| rules.table()).collect()
}

/// Removes the rules and the routing that a killed gateway with this configuration has left in the
/// kernel. Returns one line of text for each transparent listener.
///
/// # Errors
/// [`InterceptError`] names the missing program, permission or kernel feature, or reports that the
/// gateway still runs.
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
    // Entries that another process of this gateway has installed stay in force without
    // interruption.
    if up.is_empty() || !routing::is_installed(rules)? {
        routing::install(rules)?;
    }
    program::nft(&(rules.install() + &rules.refresh(|peer| up.contains(&peer))))
}

fn uninstall(rules: &Ruleset) -> Result<(), InterceptError> {
    // One of the programs may be missing. The changes of the other program must be removed
    // nevertheless.
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

/// Interval of keep-alive packets to idle peers. With this interval, the gateway detects within a
/// second that a peer has failed. New clients then reach the servers directly. The packets use 3
/// kbit/s for each peer.
const KEEP_ALIVE: Duration = Duration::from_millis(200);
