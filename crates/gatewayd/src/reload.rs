//! Reloading: a running gateway reads its configuration again and takes on what can change, all of it or
//! nothing. What takes a restart is said by name.
//!
//! Sessions keep the settings that they began with, new ones have the new ones. How the settings of one
//! configuration become those of another is in `plan`.

mod plan;

use std::{fmt, net::SocketAddr, sync::Arc};

use link::{Link, PublicKey};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};
use units::BitRate;

use self::plan::{Known, Plan, PlanError};
use crate::{
    audit,
    config::{Config, ConfigError},
    doors::{DoorError, Doors},
    register::Register,
    running::Running,
    upgrade::{PeerFiles, Program},
};
use relay::{
    Relay,
    transfer_log::{self, Opened},
};

/// Reads the configuration again.
pub type Load = Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// Has the process log what a filter lets through until the next reload, or says what is wrong with the filter.
pub type SetLog = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// What a gateway hears of changes of its configuration, and tells of them.
pub struct Reloads {
    /// Orders to read the configuration again, without an answer.
    pub orders: mpsc::Receiver<()>,
    pub load: Load,
    /// Hears of each configuration that was taken on.
    pub taken: Box<dyn Fn(&Config) + Send + Sync>,
    /// Changes what is logged; `None`: nobody may.
    pub set_log: Option<SetLog>,
    /// What is started to take this process's place; `None`: nothing can.
    pub program: Option<Program>,
}

impl Reloads {
    /// Those of a gateway that keeps its configuration. It runs as long as the sender is kept.
    pub fn never(config: &Config) -> (Self, mpsc::Sender<()>) {
        let (orders, ordered) = mpsc::channel(1);
        let same = config.clone();
        let reloads = Self {
            orders: ordered,
            load: Arc::new(move || Ok(same.clone())),
            taken: Box::new(|_| {}),
            set_log: None,
            program: None,
        };
        (reloads, orders)
    }
}

/// An order with an answer.
#[derive(Debug)]
pub(crate) struct Request {
    cause: Cause,
    answer: oneshot::Sender<Outcome>,
}

/// Why the configuration is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An operator orders it.
    Order,
    /// The register has changed: what was set by hand for the moment stays.
    Enrolment,
}

impl Request {
    /// An order, and where its answer comes.
    pub(crate) fn new(cause: Cause) -> (Self, oneshot::Receiver<Outcome>) {
        let (answer, answered) = oneshot::channel();
        (Self { cause, answer }, answered)
    }
}

/// What has become of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The changes that were taken on, each by name.
    pub taken: Vec<String>,
    /// The changes that take a restart, each by name.
    pub needs_restart: Vec<String>,
    /// Why nothing was taken on.
    pub error: Option<String>,
    /// The configuration is wrong by itself, and would be at a start.
    pub is_wrong: bool,
}

/// Why nothing was taken on.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Doors(#[from] DoorError),
    #[error(transparent)]
    TransferLog(#[from] transfer_log::OpenError),
}

/// The part of a running gateway that changes at a reload.
pub(crate) struct Reloader {
    current: watch::Sender<Arc<Running>>,
    /// The same for the far gateway's part.
    relay: watch::Sender<Relay>,
    doors: Doors,
    /// Where the admin interface listens.
    at_admin: Vec<SocketAddr>,
    /// The link's peers, by their numbers.
    known: Vec<Known>,
    reloads: Reloads,
}

impl Reloader {
    pub(crate) fn new(
        current: watch::Sender<Arc<Running>>,
        relay: watch::Sender<Relay>,
        doors: Doors,
        at_admin: Vec<SocketAddr>,
        reloads: Reloads,
    ) -> Self {
        let known = Known::all(&current.borrow().config);
        Self {
            current,
            relay,
            doors,
            at_admin,
            known,
            reloads,
        }
    }

    /// Carries out the orders that come, and those that are `asked` for, until the program's file is found to be another one at
    /// an order: then an upgrade is due.
    pub(crate) async fn serve(&mut self, asked: &mut mpsc::Receiver<Request>) {
        loop {
            tokio::select! {
                Some(()) = self.reloads.orders.recv() => {
                    if self.program().is_some_and(Program::is_replaced) {
                        return;
                    }
                    let outcome = self.reload(Cause::Order).await;
                    audit::signalled("reload", &outcome.summary());
                }
                Some(request) = asked.recv() => {
                    let outcome = self.reload(request.cause).await;
                    // Whoever asked may be gone.
                    let _ = request.answer.send(outcome);
                }
                else => std::future::pending().await,
            }
        }
    }

    /// Waits for an order that this process does not carry out: another one has taken its place.
    pub(crate) async fn order(&mut self) {
        if self.reloads.orders.recv().await.is_none() {
            std::future::pending().await
        }
    }

    /// The present configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.current.borrow().config.clone()
    }

    pub(crate) fn program(&self) -> Option<&Program> {
        self.reloads.program.as_ref()
    }

    pub(crate) fn doors(&mut self) -> &mut Doors {
        &mut self.doors
    }

    pub(crate) fn running(&self) -> Arc<Running> {
        self.current.borrow().clone()
    }

    /// Closes the front doors.
    pub(crate) async fn close(&mut self) {
        self.doors.close().await;
    }

    /// The link and its peers, once another process has taken this one's place.
    pub(crate) fn remaining_peers(&self) -> RemainingPeers {
        RemainingPeers {
            link: self.current.borrow().relay.link().clone(),
            rate_max: self.config().relay.link.rate_max,
            known: self.known.clone(),
        }
    }

    /// The files by which this process finds removed peers if the other one dies.
    pub(crate) fn peer_files(&self) -> PeerFiles {
        let register = Register::path(&self.config().key_file);
        PeerFiles::new(self.reloads.load.clone(), register)
    }

    async fn reload(&mut self, cause: Cause) -> Outcome {
        let outcome = match self.take_on(cause).await {
            Ok((taken, needs_restart)) => Outcome {
                taken,
                needs_restart,
                error: None,
                ..Outcome::EMPTY
            },
            Err(error) => Outcome {
                error: Some(error.to_string()),
                is_wrong: matches!(error, ReloadError::Config(_)),
                ..Outcome::EMPTY
            },
        };
        match &outcome.error {
            None => info!(taken = ?outcome.taken, "configuration read again"),
            Some(error) => warn!(error, "configuration not taken on"),
        }
        if !outcome.needs_restart.is_empty() {
            warn!(keys = ?outcome.needs_restart, "changes that take a restart");
        }
        outcome
    }

    async fn take_on(&mut self, cause: Cause) -> Result<(Vec<String>, Vec<String>), ReloadError> {
        let before = self.current.borrow().clone();
        let fresh = (self.reloads.load)()?;
        let Plan {
            config,
            known,
            taken,
            needs_restart,
        } = plan::plan(&before.config, fresh, &self.known)?;
        let log = Opened::open(config.transfer_log.as_ref())?;
        let parts = self.doors.prepare(&config)?;
        // From here on nothing fails.
        let names = known.iter().map(|known| known.link.name.clone());
        let peers = known.iter().map(|known| known.link.clone());
        let relay = &before.relay;
        relay
            .link()
            .set_peers(peers.collect(), config.relay.link.rate_max);
        relay.registry().transfer_log().go_on_in(log);
        let own_addresses = parts.addresses().chain(self.at_admin.clone());
        let relay = relay.take_on(config.relay.clone(), names, own_addresses);
        let running = Arc::new(Running {
            config: Arc::new(config),
            relay: relay.clone(),
            reloads_ordered: before.reloads_ordered + u64::from(cause == Cause::Order),
            older: before.older.clone(),
        });
        self.known = known;
        self.relay.send_replace(relay);
        self.current.send_replace(running.clone());
        self.doors.open(parts, &running).await;
        if cause == Cause::Order {
            (self.reloads.taken)(&running.config);
        }
        Ok((taken, needs_restart))
    }
}

/// The peers of a process whose place another one has taken. None comes any more, and those that are removed go.
pub(crate) struct RemainingPeers {
    link: Link,
    rate_max: Option<BitRate>,
    known: Vec<Known>,
}

impl RemainingPeers {
    /// Dismisses all peers and keys that may not stay, with all that they have open.
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

impl Outcome {
    /// What has become of it, in a line.
    pub(crate) fn summary(&self) -> String {
        match &self.error {
            Some(error) => format!("nothing taken on: {error}"),
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

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            return writeln!(f, "nothing taken on: {error}");
        }
        if self.taken.is_empty() {
            writeln!(f, "nothing has changed that can be taken on")?;
        }
        for change in &self.taken {
            writeln!(f, "taken on: {change}")?;
        }
        for change in &self.needs_restart {
            writeln!(f, "needs a restart: {change}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").finish_non_exhaustive()
    }
}
