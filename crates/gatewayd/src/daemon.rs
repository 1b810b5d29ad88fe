//! The whole life of a gateway process, from its start to its end.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the sockets and the clock of the daemon"
)]

use std::{
    collections::HashSet,
    fmt,
    future::Future,
    io,
    net::{TcpListener, UdpSocket},
    os::{fd::AsFd, unix::net::UnixListener},
    sync::Arc,
    time::{Duration, SystemTime},
};

use link::{Link, LinkError, PeerSnapshot, PeerState};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{interval, sleep, timeout},
};
use tracing::{info, warn};

use crate::{
    admin::{self, HttpsListener},
    config::{Config, PeerOrigin, PeerSettings},
    enrolment::far::Enrolments,
    intercept::{self, InterceptError, Interception},
    listeners::{Listeners, PreparedListeners},
    reload::{self, Reloader},
    running::RunningGateway,
    upgrade::{self, HandoverInput, OlderProcesses, Predecessor, Successor},
};
pub use crate::{
    bound_sockets::{BindError, BoundSockets},
    listeners::ListenerError,
    reload::ReloadChannels,
};
use net::tls::CertError;
use relay::{
    Relay, far,
    status::{OlderProcess, Registry, TransferStatus},
    time,
    transfer_log::{self, TransferLog},
};

/// Error: a gateway could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The link could not be started.
    #[error("the link did not start")]
    Link(#[from] LinkError),
    /// The link has ended without a shutdown.
    #[error("the link has ended unexpectedly")]
    LinkEnded,
    /// The interception of connections to servers could not be installed.
    #[error("no interception")]
    Intercept(#[from] InterceptError),
    /// The listeners cannot be opened.
    #[error(transparent)]
    Listeners(#[from] ListenerError),
    /// The dashboard cannot use TLS.
    #[error("[admin.https] has no TLS")]
    Https(#[from] CertError),
    /// The transfer log cannot be written.
    #[error("no transfer log")]
    TransferLog(#[from] transfer_log::TransferLogError),
    /// A bound socket could not be used.
    #[error("a socket could not be used")]
    Socket(#[from] io::Error),
}

/// Transfers and streams that a shutdown has aborted.
#[derive(Debug, Default)]
pub struct AbortedConnections {
    /// Transfers and forwards that were still open when the shutdown aborted them.
    pub transfers: Vec<TransferStatus>,
    /// Number of link streams that were still open when the shutdown aborted them.
    pub streams: usize,
}

/// Connection to a service manager such as systemd.
pub struct ServiceManager {
    /// Maximum time between two reports of [`GatewayState::Working`]. `None` if the service manager
    /// does not check for these reports.
    pub watchdog_timeout: Option<Duration>,
    /// Function that reports a state to the service manager.
    pub report: Box<dyn Fn(GatewayState) + Send + Sync>,
}

/// State that a gateway reports to its service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayState {
    /// The gateway serves clients.
    Up,
    /// A check has just shown that the gateway's tasks and its link work.
    Working,
    /// The gateway waits for open sessions to end.
    Ending,
    /// The process with this process ID has replaced the gateway.
    Succeeded(u32),
}

impl ServiceManager {
    /// Creates a [`ServiceManager`] that discards all reports.
    pub fn none() -> Self {
        Self {
            watchdog_timeout: None,
            report: Box::new(|_| {}),
        }
    }
}

impl fmt::Debug for ServiceManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceManager")
            .field("watchdog_timeout", &self.watchdog_timeout)
            .finish_non_exhaustive()
    }
}

/// Runs a gateway until `shutdown` resolves.
///
/// The gateway then stops accepting clients. Sessions may finish within the configuration's
/// `drain_max`. The function returns the connections that it has aborted after this time.
///
/// While it runs, the gateway applies the reloads from `reloads` and reports its state to
/// `service_manager`. After an upgrade, this process ends with its last session.
///
/// # Errors
/// [`RunError`] if the gateway cannot start, or if its link ends before `shutdown`.
pub async fn run(
    config: Config,
    mut bound: BoundSockets,
    reloads: ReloadChannels,
    service_manager: ServiceManager,
    shutdown: impl Future<Output = ()>,
) -> Result<AbortedConnections, RunError> {
    let mut predecessor = bound.predecessor.take();
    let sockets = HandoverSockets::from_bound(&bound)?;
    let admin = bound.admin.take().map(tokio_listener).transpose()?;
    let https = bound.admin_https.take().map(tokio_listener).transpose()?;
    let socket = bound.admin_socket.take().map(tokio_unix_listener);
    let socket = socket.transpose()?;
    let at_admin = admin.iter().chain(&https).map(|l| l.local_addr());
    let at_admin: Vec<_> = at_admin.collect::<Result<_, _>>()?;
    let prepared = PreparedListeners::new(&config, &mut bound);
    let prepared = Predecessor::report_failure(&mut predecessor, prepared)?;
    let https = https.zip(config.admin_https.as_ref());
    let https = https.map(|(listener, settings)| HttpsListener::new(listener, settings));
    let https = https.transpose().map_err(RunError::Https);
    let https = Predecessor::report_failure(&mut predecessor, https)?;
    let log = transfer_log::PreparedTransferLog::open(config.transfer_log.as_ref());
    let log = Predecessor::report_failure(&mut predecessor, log)?;
    let older = predecessor.as_mut().map(Predecessor::take_older_sockets);
    let older = OlderProcesses::new(older.unwrap_or_default())?;
    let (predecessor, link_handover) = match predecessor {
        Some(predecessor) => {
            let tables = intercept::tables(&config);
            predecessor.report_ready(tables).await?.unzip()
        }
        None => (None, None),
    };
    let link = Link::start_behind(bound.link, config.relay.link.clone(), link_handover)?;
    let mut interception = match &predecessor {
        None => Interception::start(&config, &link)?,
        Some(predecessor) => {
            let mut interception =
                Interception::install(&config, &peers_named(&config, &predecessor.peers_up))?;
            connect(&link, &config, &predecessor.peers_up).await;
            interception.resume(&link);
            interception
        }
    };
    let (relay, mut sessions) = Relay::builder(link.clone(), config.relay.clone())
        .transfer_log(TransferLog::start(log)?)
        .spool(config.spool.clone())
        .stores(config.store.clone())
        .own_addresses(prepared.addresses().chain(at_admin.clone()))
        .first_session(first_session())
        .build();
    let registry = relay.registry().clone();
    let (far_ssh, far_ssh_receiver) = watch::channel(config.far_ssh.clone());
    let running = Arc::new(RunningGateway {
        ssh: prepared.ssh_status(&config),
        config: Arc::new(config),
        relay: relay.clone(),
        reloads_ordered: 0,
        older: older.clone(),
    });
    let mut listeners = Listeners::default();
    listeners.open(prepared, &running).await;
    let (current, current_receiver) = watch::channel(running.clone());
    let (relay_sender, relay_receiver) = watch::channel(relay.clone());
    let (reload_sender, mut reload_receiver) = mpsc::channel(1);
    let (upgrade_sender, mut upgrade_receiver) = mpsc::channel(1);
    let enrolments = Arc::new(Enrolments::new(
        current_receiver.clone(),
        reload_sender.clone(),
    ));
    if let Some(predecessor) = &predecessor {
        listeners.inherit(&predecessor.pass_through);
    }
    let set_log = reloads.set_log.clone();
    let senders = reload::SettingsSenders {
        current,
        relay: relay_sender,
        far_ssh,
    };
    let mut reloader = Reloader::new(senders, listeners, at_admin, reloads);
    let mut side_tasks = JoinSet::new();
    let for_admin = current_receiver.clone();
    let has_admin = admin.is_some() || https.is_some() || socket.is_some();
    let has_socket = socket.is_some();
    let admin_listeners = admin::AdminListeners {
        tcp: admin,
        https,
        socket,
    };
    let admin = has_admin.then(|| {
        side_tasks.spawn(async move {
            let orders = admin::OrderSenders {
                reloads: reload_sender,
                upgrades: upgrade_sender,
                set_log,
            };
            if let Err(error) = admin::serve(admin_listeners, for_admin, orders).await {
                warn!(%error, "the status pages have ended");
            }
        })
    });
    side_tasks.spawn(dismiss(current_receiver.clone()));
    let follow_older = side_tasks.spawn(
        older.follow(current_receiver.clone(), |running: &RunningGateway| {
            &running.config
        }),
    );
    let mut accepting = JoinSet::new();
    let ssh_services = ssh::far_services_following(far_ssh_receiver);
    accepting.spawn(far::serve(relay_receiver, Some(enrolments), ssh_services));
    info!(link = %link.local_addr(), "gateway up");
    if let Some(predecessor) = predecessor {
        predecessor.report_up().await?;
    }
    let service_manager = Arc::new(service_manager);
    (service_manager.report)(GatewayState::Up);
    let health_task = service_manager.watchdog_timeout.map(|watchdog_timeout| {
        let life = report_health(link.clone(), service_manager.clone(), watchdog_timeout);
        side_tasks.spawn(life)
    });
    tokio::pin!(shutdown);
    let succeeded = {
        let orders = OrderReceivers {
            reloads: &mut reload_receiver,
            upgrades: &mut upgrade_receiver,
        };
        tokio::select! {
            () = &mut shutdown => None,
            succeeded = serve(&mut reloader, orders, &sockets, &mut interception, &service_manager) => Some(succeeded),
            // This task ends only if the link accepts no further streams.
            _ = accepting.join_next() => {
                drop(reloader);
                sessions.abort(ABORT_TIMEOUT).await;
                return Err(RunError::LinkEnded);
            }
        }
    };
    // From here on, requests fail immediately. If a reload request is already in the channel, the
    // process that replaces this process receives the request.
    let is_asked = reload_receiver.try_recv().is_ok();
    drop((reload_receiver, upgrade_receiver, sockets));
    let mut socket_left = None;
    let mut drain = Some(reloader.config().drain_max);
    if let Some((mut successor, requester)) = succeeded {
        interception.leave(&successor.tables);
        // From now on the other process reports to the service manager.
        for task in admin.into_iter().chain(health_task).chain([follow_older]) {
            task.abort();
        }
        let mut remaining = reloader.remaining_peers();
        let report = older_process_report(registry.clone());
        let (orders, files) = (successor.orders.take(), reloader.peer_files());
        side_tasks.spawn(async move {
            if let Some(orders) = orders {
                let keep = |keys: &HashSet<_>| remaining.keep(&|key| keys.contains(key));
                orders.run(report, keep).await;
            }
            files.follow(|may_stay| remaining.keep(may_stay)).await;
        });
        reloader.listeners().hand_over().await;
        link.retire();
        let open = registry.sessions_open();
        info!(
            pid = successor.pid(),
            sessions = open,
            "another process has replaced this one"
        );
        if let Some(requester) = requester {
            // The client of the order may have disconnected.
            let _ = requester.send(successor.outcome(open));
        }
        if is_asked {
            successor.pass_on_order();
        }
        drain = reloader.config().upgrade_drain_max;
        if let Some(stores) = relay.stores() {
            tokio::task::block_in_place(|| stores.retire());
        }
        let drained = async {
            // Some peers may not have detected the other process yet. They and the operator can
            // still use this process.
            let _ = timeout(RETIRE_TIMEOUT, async {
                loop {
                    reloader.wait_for_order().await;
                    successor.pass_on_order();
                }
            })
            .await;
            relay.retire();
            sessions.close();
            sessions.wait_for_end().await;
            // Bytes of ended sessions are still in flight on the link.
            link.shutdown(FOR_EVER).await;
        };
        tokio::select! {
            () = &mut shutdown => drain = Some(reloader.config().drain_max),
            () = drained => drain = Some(Duration::ZERO),
            () = sleep_or_never(drain) => drain = Some(Duration::ZERO),
        }
    } else {
        socket_left = has_socket.then(|| running.config.admin_socket.clone());
        (service_manager.report)(GatewayState::Ending);
        interception.end();
        reloader.close().await;
        sessions.close();
    }
    let drain = drain.unwrap_or_default();
    info!(drain_s = drain.as_secs_f64(), "shutting down");
    let mut aborted = AbortedConnections::default();
    if timeout(drain, sessions.wait_for_end()).await.is_err() {
        aborted.transfers = registry.open_transfers();
        sessions.abort(ABORT_TIMEOUT).await;
    }
    drop(interception);
    registry.transfer_log().flush(ABORT_TIMEOUT).await;
    // A slow disk must not delay the end of this process.
    let closed = timeout(CLOSE_TIMEOUT, link.shutdown(drain.min(ABORT_TIMEOUT))).await;
    aborted.streams = closed.unwrap_or_default();
    accepting.shutdown().await;
    side_tasks.shutdown().await;
    if let Some(path) = socket_left {
        // No process listens at this socket any more.
        let _ = std::fs::remove_file(path);
    }
    Ok(aborted)
}

/// Channels on which a running gateway receives orders.
struct OrderReceivers<'a> {
    reloads: &'a mut mpsc::Receiver<reload::ReloadRequest>,
    upgrades: &'a mut mpsc::Receiver<upgrade::UpgradeRequest>,
}

/// Executes orders until another process has replaced this process. Returns that process, and the
/// channel for the reply to the upgrade order.
async fn serve(
    reloader: &mut Reloader,
    orders: OrderReceivers<'_>,
    sockets: &HandoverSockets,
    interception: &mut Interception,
    service_manager: &ServiceManager,
) -> (Successor, Option<upgrade::UpgradeRequest>) {
    loop {
        let requester = tokio::select! {
            () = reloader.serve(orders.reloads) => None,
            Some(requester) = orders.upgrades.recv() => Some(requester),
        };
        info!("starting a process to replace this one");
        let running = reloader.running();
        let program = reloader.program().cloned();
        let listeners = reloader.listeners();
        let admin = sockets.admin.as_ref().map(|socket| {
            let name = upgrade::admin_name(running.config.admin_listen);
            (name, socket.as_fd())
        });
        let https = running
            .config
            .admin_https
            .as_ref()
            .zip(sockets.https.as_ref());
        let https = https.map(|(config, socket)| {
            let name = upgrade::admin_https_name(config.listen);
            (name, socket.as_fd())
        });
        let socket = sockets.socket.as_ref().map(|socket| {
            let name = upgrade::admin_socket_name(&running.config.admin_socket);
            (name, socket.as_fd())
        });
        let input = HandoverInput {
            program: program.as_ref(),
            link_socket: sockets.link.as_fd(),
            listeners: listeners
                .named_sockets()
                .into_iter()
                .chain(admin)
                .chain(https)
                .chain(socket)
                .collect(),
            link: running.relay.link(),
            older: &running.older,
            peers_up: peers_up(running.relay.link()),
            pass_through: listeners.pass_through_clients(),
        };
        let result = match upgrade::hand_over(input, interception).await {
            Ok(mut successor) => {
                (service_manager.report)(GatewayState::Succeeded(successor.pid()));
                match successor.report_done() {
                    Ok(()) => Ok(successor),
                    Err(error) => {
                        (service_manager.report)(GatewayState::Succeeded(std::process::id()));
                        successor.abandon(running.relay.link(), interception);
                        Err(error)
                    }
                }
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(successor) => return (successor, requester),
            Err(error) => {
                warn!(%error, "no other process has replaced this one");
                let sessions = running.relay.registry().sessions_open();
                if let Some(requester) = requester {
                    // The client of the order may have disconnected.
                    let _ = requester.send(upgrade::UpgradeOutcome::failed(&error, sessions));
                }
            }
        }
    }
}

/// Sockets, other than the listeners, that an upgrade passes to the new process.
struct HandoverSockets {
    link: UdpSocket,
    admin: Option<TcpListener>,
    https: Option<TcpListener>,
    socket: Option<UnixListener>,
}

impl HandoverSockets {
    fn from_bound(bound: &BoundSockets) -> io::Result<Self> {
        let copy = |listener: &Option<TcpListener>| {
            let copied = listener.as_ref().map(TcpListener::try_clone);
            copied.transpose()
        };
        Ok(Self {
            link: bound.link.try_clone()?,
            admin: copy(&bound.admin)?,
            https: copy(&bound.admin_https)?,
            socket: {
                let socket = bound.admin_socket.as_ref().map(UnixListener::try_clone);
                socket.transpose()?
            },
        })
    }
}

fn is_up(peer: &PeerSnapshot) -> bool {
    !peer.is_guest && matches!(peer.state, PeerState::Up { .. })
}

fn peers_up(link: &Link) -> Vec<String> {
    let peers = link.snapshot().peers.into_iter();
    peers.filter(is_up).map(|peer| peer.name).collect()
}

/// Returns the numbers of the peers with these names.
fn peers_named(config: &Config, names: &[String]) -> Vec<usize> {
    let peers = config.relay.peers.iter().enumerate();
    let named = peers.filter(|(_, peer)| names.contains(&peer.name));
    named.map(|(number, _)| number).collect()
}

/// Waits at most [`CONNECT_TIMEOUT`] for connections to the named peers that have an endpoint.
async fn connect(link: &Link, config: &Config, names: &[String]) {
    let configured = config.relay.link.peers.iter();
    let wanted = configured.filter(|it| it.endpoint.is_some() && names.contains(&it.name));
    let wanted: Vec<_> = wanted.map(|peer| &peer.name).collect();
    let connected = async {
        loop {
            let up = peers_up(link);
            if wanted.iter().all(|name| up.contains(name)) {
                return;
            }
            sleep(CONNECT_LOOK).await;
        }
    };
    if timeout(CONNECT_TIMEOUT, connected).await.is_err() {
        warn!("not all peers that the earlier process was connected to have answered");
    }
}

/// Resolves after the given time. With `None`, never resolves.
async fn sleep_or_never(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

fn tokio_listener(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

fn tokio_unix_listener(listener: UnixListener) -> io::Result<tokio::net::UnixListener> {
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}

/// Reports at regular intervals that the gateway works, unless the link's thread hangs.
async fn report_health(
    link: Link,
    service_manager: Arc<ServiceManager>,
    watchdog_timeout: Duration,
) {
    // The gateway reports twice within the timeout, so that a late report does no harm.
    let mut times = interval(watchdog_timeout / 2);
    loop {
        times.tick().await;
        if link.works(watchdog_timeout / 2).await {
            (service_manager.report)(GatewayState::Working);
        } else {
            warn!("the link's thread does not answer");
        }
    }
}

/// Returns a function that reports this process's state after another process has replaced it.
fn older_process_report(registry: Arc<Registry>) -> impl Fn() -> OlderProcess {
    let since_unix_s = time::unix_s(SystemTime::now());
    move || OlderProcess {
        pid: std::process::id(),
        version: crate::VERSION.to_owned(),
        since_unix_s,
        sessions_open: registry.sessions_open(),
        transfers_open: registry.open_transfers().len() as u64,
    }
}

/// Informs removed peers of their removal as soon as they connect.
async fn dismiss(current: watch::Receiver<Arc<RunningGateway>>) {
    let mut ticks = interval(DISMISS_EVERY);
    loop {
        ticks.tick().await;
        let running = current.borrow().clone();
        let link = running.relay.link();
        let is_dismissed = |peer: &&PeerSettings| peer.origin == PeerOrigin::Dismissed;
        let mut dismissed = running
            .config
            .relay
            .peers
            .iter()
            .filter(is_dismissed)
            .peekable();
        if dismissed.peek().is_none() {
            continue;
        }
        let peers = link.snapshot().peers;
        for peer in dismissed {
            let state = peers.get(peer.id.0).map(|it| it.state);
            if matches!(state, Some(PeerState::Up { .. } | PeerState::Silent { .. })) {
                link.dismiss(peer.id);
            }
        }
    }
}

/// Returns the first session number. The number derives from the clock, so session numbers never
/// repeat after a restart.
fn first_session() -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    now.as_millis() as u64 * 1_000
}

/// Interval at which the gateway searches for removed peers that have connected.
const DISMISS_EVERY: Duration = Duration::from_millis(500);
/// Time for aborted sessions to inform their clients, and for the link's streams to end.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for peers to connect to the new process, even on a path with a long round-trip time.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Stand-in for unlimited time: ten years.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Maximum time that a new process waits for its link to connect. After this time, the new process
/// accepts clients.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECT_LOOK: Duration = Duration::from_millis(5);
/// Maximum time for the link to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
