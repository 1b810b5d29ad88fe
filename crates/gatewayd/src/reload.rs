//! Reloads: a running gateway reads its configuration file again. It applies all changes that are
//! possible without a restart. After an error, it applies no change. It reports which changes need
//! a restart.
//!
//! Present sessions keep their settings. New sessions get the new settings. The module `plan`
//! compares the two configurations.

mod plan;

use std::{fmt, net::SocketAddr, sync::Arc};

use link::{Link, PublicKey};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};
use units::BitRate;

use self::plan::{KnownPeer, ReloadPlan, ReloadPlanError};
use crate::{
    audit,
    config::{Config, ConfigError, FarSsh},
    listeners::{ListenerError, Listeners},
    register::Register,
    running::RunningGateway,
    upgrade::{PeerFiles, Program},
};
use relay::{
    Relay,
    transfer_log::{self, PreparedTransferLog},
};

/// Function that reads the configuration file again.
pub type LoadConfig = Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// Function that sets the log filter of the process until the next reload. Its error describes the
/// mistake in an invalid filter.
pub type SetLogFilter = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Inputs and outputs for the reloads and upgrades of a gateway.
pub struct ReloadChannels {
    /// Orders to reload the configuration. The sender gets no reply.
    pub orders: mpsc::Receiver<()>,
    /// Function that reads the configuration file.
    pub load: LoadConfig,
    /// Function that the gateway calls with each newly applied configuration.
    pub on_applied: Box<dyn Fn(&Config) + Send + Sync>,
    /// Function that changes the log filter. `None` if the filter cannot change.
    pub set_log: Option<SetLogFilter>,
    /// Program that replaces this process at an upgrade. `None` if upgrades are not possible.
    pub program: Option<Program>,
}

impl ReloadChannels {
    /// Creates the channels of a gateway whose configuration never changes. Also returns the sender
    /// of reload orders. Each reload reads the same configuration again.
    pub fn never(config: &Config) -> (Self, mpsc::Sender<()>) {
        let (orders, ordered) = mpsc::channel(1);
        let same = config.clone();
        let reloads = Self {
            orders: ordered,
            load: Arc::new(move || Ok(same.clone())),
            on_applied: Box::new(|_| {}),
            set_log: None,
            program: None,
        };
        (reloads, orders)
    }
}

/// A request for a reload, with the channel for its outcome.
#[derive(Debug)]
pub(crate) struct ReloadRequest {
    cause: ReloadCause,
    answer: oneshot::Sender<ReloadOutcome>,
}

/// Reason for a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadCause {
    /// An operator has ordered the reload.
    Order,
    /// The register has changed. Rate limits that a user has set in the dashboard remain.
    Enrolment,
}

impl ReloadRequest {
    /// Creates a request, and the receiver of its outcome.
    pub(crate) fn new(cause: ReloadCause) -> (Self, oneshot::Receiver<ReloadOutcome>) {
        let (answer, answered) = oneshot::channel();
        (Self { cause, answer }, answered)
    }
}

/// Outcome of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadOutcome {
    /// Names of the changes that the gateway has applied.
    pub taken: Vec<String>,
    /// Names of the changes that need a restart.
    pub needs_restart: Vec<String>,
    /// Reason why the gateway has applied no change.
    pub error: Option<String>,
    /// Whether the configuration file is invalid. A gateway could not start with this file either.
    pub is_wrong: bool,
}

/// Reason why a reload has applied no change.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Plan(#[from] ReloadPlanError),
    #[error(transparent)]
    Listeners(#[from] ListenerError),
    #[error(transparent)]
    TransferLog(#[from] transfer_log::TransferLogError),
}

/// Reloads the configuration, and owns the state that a reload changes.
pub(crate) struct Reloader {
    senders: SettingsSenders,
    listeners: Listeners,
    /// Addresses of the admin interface.
    at_admin: Vec<SocketAddr>,
    /// The peers of the link, indexed by their numbers.
    known: Vec<KnownPeer>,
    reloads: ReloadChannels,
}

/// Channels with the present settings. A reload sends new settings.
pub(crate) struct SettingsSenders {
    pub(crate) current: watch::Sender<Arc<RunningGateway>>,
    /// The present relay. Tasks of the far gateway read it from this channel.
    pub(crate) relay: watch::Sender<Relay>,
    /// Settings for log-ins at SSH servers.
    pub(crate) far_ssh: watch::Sender<FarSsh>,
}

impl Reloader {
    pub(crate) fn new(
        senders: SettingsSenders,
        listeners: Listeners,
        at_admin: Vec<SocketAddr>,
        reloads: ReloadChannels,
    ) -> Self {
        let known = KnownPeer::all(&senders.current.borrow().config);
        Self {
            senders,
            listeners,
            at_admin,
            known,
            reloads,
        }
    }

    /// Executes reload orders from the channel and from `requests`. If the program's file has been
    /// replaced, an order from the channel means an upgrade, and the function returns.
    pub(crate) async fn serve(&mut self, requests: &mut mpsc::Receiver<ReloadRequest>) {
        loop {
            tokio::select! {
                Some(()) = self.reloads.orders.recv() => {
                    if self.program().is_some_and(Program::is_replaced) {
                        return;
                    }
                    let outcome = self.reload(ReloadCause::Order).await;
                    audit::log_signal("reload", &outcome.summary());
                }
                Some(request) = requests.recv() => {
                    let outcome = self.reload(request.cause).await;
                    // The client of the request may have disconnected.
                    let _ = request.answer.send(outcome);
                }
                else => std::future::pending().await,
            }
        }
    }

    /// Waits for an order after another process has replaced this process. The caller passes the
    /// order on to that process.
    pub(crate) async fn wait_for_order(&mut self) {
        if self.reloads.orders.recv().await.is_none() {
            std::future::pending().await
        }
    }

    /// Returns the present configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.senders.current.borrow().config.clone()
    }

    pub(crate) fn program(&self) -> Option<&Program> {
        self.reloads.program.as_ref()
    }

    pub(crate) fn listeners(&mut self) -> &mut Listeners {
        &mut self.listeners
    }

    pub(crate) fn running(&self) -> Arc<RunningGateway> {
        self.senders.current.borrow().clone()
    }

    /// Closes the listeners.
    pub(crate) async fn close(&mut self) {
        self.listeners.close().await;
    }

    /// Returns the link and its peers. The caller uses them after another process has replaced this
    /// process.
    pub(crate) fn remaining_peers(&self) -> RemainingPeers {
        RemainingPeers {
            link: self.senders.current.borrow().relay.link().clone(),
            rate_max: self.config().relay.link.rate_max,
            known: self.known.clone(),
        }
    }

    /// Returns the files that list the peers. If the process that replaces this process fails, this
    /// process reads removals of peers from these files.
    pub(crate) fn peer_files(&self) -> PeerFiles {
        let register = Register::path(&self.config().key_file);
        PeerFiles::new(self.reloads.load.clone(), register)
    }

    async fn reload(&mut self, cause: ReloadCause) -> ReloadOutcome {
        let outcome = match self.apply(cause).await {
            Ok((applied, needs_restart)) => ReloadOutcome {
                taken: applied,
                needs_restart,
                error: None,
                ..ReloadOutcome::EMPTY
            },
            Err(error) => ReloadOutcome {
                error: Some(error.to_string()),
                is_wrong: matches!(error, ReloadError::Config(_)),
                ..ReloadOutcome::EMPTY
            },
        };
        match &outcome.error {
            None => info!(taken = ?outcome.taken, "configuration read again"),
            Some(error) => warn!(error, "configuration not applied"),
        }
        if !outcome.needs_restart.is_empty() {
            warn!(keys = ?outcome.needs_restart, "changes that need a restart");
        }
        outcome
    }

    async fn apply(
        &mut self,
        cause: ReloadCause,
    ) -> Result<(Vec<String>, Vec<String>), ReloadError> {
        let before = self.senders.current.borrow().clone();
        let fresh = (self.reloads.load)().map_err(ConfigError::with_gateway_user)?;
        let ReloadPlan {
            config,
            known,
            applied,
            needs_restart,
        } = plan::plan(&before.config, fresh, &self.known)?;
        let log = PreparedTransferLog::open(config.transfer_log.as_ref())?;
        let prepared = self.listeners.prepare(&config)?;
        // The following steps cannot fail.
        let names = known.iter().map(|known| known.link.name.clone());
        let peers = known.iter().map(|known| known.link.clone());
        let relay = &before.relay;
        relay
            .link()
            .set_peers(peers.collect(), config.relay.link.rate_max);
        relay.registry().transfer_log().continue_in(log);
        let own_addresses = prepared.addresses().chain(self.at_admin.clone());
        let relay = relay.apply_settings(config.relay.clone(), names, own_addresses);
        let running = Arc::new(RunningGateway {
            ssh: prepared.ssh_status(&config),
            config: Arc::new(config),
            relay: relay.clone(),
            reloads_ordered: before.reloads_ordered + u64::from(cause == ReloadCause::Order),
            older: before.older.clone(),
        });
        self.known = known;
        self.senders.relay.send_replace(relay);
        let far_ssh = running.config.far_ssh.clone();
        self.senders.far_ssh.send_replace(far_ssh);
        self.senders.current.send_replace(running.clone());
        self.listeners.open(prepared, &running).await;
        if cause == ReloadCause::Order {
            (self.reloads.on_applied)(&running.config);
        }
        Ok((applied, needs_restart))
    }
}

/// The peers of an old process after another process has replaced it. Peers can be removed, but no
/// peers are added.
pub(crate) struct RemainingPeers {
    link: Link,
    rate_max: Option<BitRate>,
    known: Vec<KnownPeer>,
}

impl RemainingPeers {
    /// Removes all peers and keys for which `may_stay` returns false. The link then closes all
    /// streams of these peers.
    pub(crate) fn keep(&mut self, may_stay: &dyn Fn(&PublicKey) -> bool) {
        let mut dismissed = Vec::new();
        for known in &mut self.known {
            let count = known.link.public_keys.len();
            known.link.public_keys.retain(may_stay);
            if known.link.public_keys.len() < count {
                dismissed.push(known.link.name.clone());
            }
        }
        if !dismissed.is_empty() {
            info!(peers = ?dismissed, "keys of peers were removed");
            let peers = self.known.iter().map(|known| known.link.clone());
            self.link.set_peers(peers.collect(), self.rate_max);
        }
    }
}

impl ReloadOutcome {
    /// Returns the outcome as one line of text.
    pub(crate) fn summary(&self) -> String {
        match &self.error {
            Some(error) => format!("nothing applied: {error}"),
            None => self.taken.join(", "),
        }
    }

    const EMPTY: Self = Self {
        taken: Vec::new(),
        needs_restart: Vec::new(),
        error: None,
        is_wrong: false,
    };
}

impl fmt::Display for ReloadOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            return writeln!(f, "nothing applied: {error}");
        }
        if self.taken.is_empty() {
            writeln!(f, "nothing has changed that a reload applies")?;
        }
        for change in &self.taken {
            writeln!(f, "applied: {change}")?;
        }
        for change in &self.needs_restart {
            writeln!(f, "needs a restart: {change}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ReloadChannels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadChannels").finish_non_exhaustive()
    }
}

/// Returns the names of the changes that a reload to `fresh` applies, and the names of the changes
/// that need a restart.
#[cfg(test)]
pub(crate) fn changes(running: &Config, fresh: Config) -> (Vec<String>, Vec<String>) {
    let known = KnownPeer::all(running);
    let plan = plan::plan(running, fresh, &known).expect("a plan");
    (plan.applied, plan.needs_restart)
}
