//! A running relay: its builder, changes of its settings, and its shutdown.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use link::{Class, Link, PeerId, RecvStream, SendStream};
use net::{
    dial::DialError,
    target::{Endpoint, Host},
};
use optimiser::store::Store;
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
    time::{interval, timeout},
};
use tracing::warn;

use crate::{
    gateway_context::{GatewayContext, ReachError},
    limits::Usage,
    optimise::{self, Stores},
    settings::RelaySettings,
    spool::{self, Spools},
    status::Registry,
    transfer_log::TransferLog,
    wire::Service,
};

/// A running relay with the settings of one moment. A clone is another handle of the same relay.
#[derive(Debug, Clone)]
pub struct Relay(pub(crate) Arc<GatewayContext>);

/// Sessions of a relay, and their shutdown.
#[derive(Debug)]
pub struct Sessions {
    abort: watch::Sender<bool>,
    /// Permits new sessions until it is dropped.
    drain_guard: Option<mpsc::Sender<()>>,
    all_ended: mpsc::Receiver<()>,
}

/// Parts of a relay that is not built yet.
#[derive(Debug)]
pub struct RelayBuilder {
    link: Link,
    settings: RelaySettings,
    registry: Arc<Registry>,
    spool: Option<spool::SpoolSettings>,
    stores: Option<optimise::StoresSettings>,
    own_addresses: Vec<SocketAddr>,
    first_session: u64,
}

impl Relay {
    /// Starts to build a relay over `link`. The peers of the link are the peers of `settings`.
    pub fn builder(link: Link, settings: RelaySettings) -> RelayBuilder {
        RelayBuilder {
            link,
            settings,
            registry: Registry::new(TransferLog::disabled()),
            spool: None,
            stores: None,
            own_addresses: Vec::new(),
            first_session: 0,
        }
    }

    /// Returns the relay with other settings.
    ///
    /// Limits apply to all sessions from now on. Open sessions keep their other settings.
    ///
    /// `peer_names` has the names of the link's peers by their numbers, removed ones included.
    /// `own_addresses` are the TCP listeners of this process, which no peer can reach.
    #[must_use]
    pub fn apply_settings(
        &self,
        settings: RelaySettings,
        peer_names: impl IntoIterator<Item = String>,
        own_addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        self.0.usage.set_limits(settings.limits);
        Self(Arc::new(GatewayContext {
            own: own_addresses.into_iter().collect(),
            peer_names: peer_names.into_iter().collect(),
            settings: Arc::new(settings),
            ..(*self.0).clone()
        }))
    }

    /// Returns the link to the peers.
    pub fn link(&self) -> &Link {
        &self.0.link
    }

    /// Returns the registry of open and finished sessions and transfers.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.0.registry
    }

    /// Returns the clients' use of resources, and its limits.
    pub fn usage(&self) -> &Usage {
        &self.0.usage
    }

    /// Returns the chunk stores, if the settings have a folder for them.
    pub fn stores(&self) -> Option<&Arc<Stores>> {
        self.0.stores.as_ref()
    }

    /// Returns the chunk store for `tenant` of `peer`, and opens it if needed.
    pub fn store(&self, peer: PeerId, tenant: &str) -> Option<Store> {
        self.0.store(peer, tenant)
    }

    /// Whether no further session may start.
    pub fn is_ending(&self) -> bool {
        self.0.drain_guard.upgrade().is_none()
    }

    /// Refuses streams that do not belong to open sessions. Another process has replaced this one,
    /// and the peers use that process.
    pub fn retire(&self) {
        self.0.is_retired.store(true, Relaxed);
    }

    /// Opens a stream to the far end of the service `name`, through the first peer for `host` that
    /// answers.
    ///
    /// `via` names the only permitted peer by its index in the settings.
    ///
    /// # Errors
    /// [`ReachError`] if no peer serves `host`, or no such peer answers.
    pub async fn open(
        &self,
        name: &'static str,
        host: &Host,
        via: Option<usize>,
        class: Class,
    ) -> Result<(PeerId, SendStream, RecvStream), ReachError> {
        let service = |_| (Service::Named(name.to_owned()), ());
        let (peer, (), send, recv) = self.0.reach(host, via, class, service).await?;
        Ok((peer, send, recv))
    }

    /// Connects to a server on behalf of `peer`.
    ///
    /// # Errors
    /// [`DialError`] if the peer may not reach the server, or the server does not answer.
    pub async fn dial(&self, peer: PeerId, target: &Endpoint) -> Result<TcpStream, DialError> {
        self.0.dial(peer, target).await
    }

    /// Resolves when open connections must end: the relay's time for a shutdown is over.
    pub async fn wait_for_abort(&self) {
        self.0.wait_for_abort().await;
    }

    /// Updates rates, and drops chunks that no peer has requested in time, while it is polled.
    pub(crate) async fn run_maintenance(&self) {
        let rates = async {
            let mut ticks = interval(Duration::from_secs(1));
            loop {
                ticks.tick().await;
                self.0.registry.tick();
            }
        };
        tokio::join!(rates, self.0.references.sweep());
    }
}

impl RelayBuilder {
    /// Logs finished transfers to `log`.
    #[must_use]
    pub fn transfer_log(mut self, log: TransferLog) -> Self {
        self.registry = Registry::new(log);
        self
    }

    /// Keeps files that cross the link once for several servers.
    #[must_use]
    pub fn spool(mut self, settings: Option<spool::SpoolSettings>) -> Self {
        self.spool = settings;
        self
    }

    /// Stores chunks of the bytes that cross the link.
    #[must_use]
    pub fn stores(mut self, settings: Option<optimise::StoresSettings>) -> Self {
        self.stores = settings;
        self
    }

    /// Sets the addresses at which this process listens for TCP. No peer can reach them.
    #[must_use]
    pub fn own_addresses(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.own_addresses = addresses.into_iter().collect();
        self
    }

    /// Sets the number of the first session. Sessions of an earlier process with the same key have
    /// lower numbers.
    #[must_use]
    pub fn first_session(mut self, number: u64) -> Self {
        self.first_session = number;
        self
    }

    /// Builds the relay, and its sessions.
    ///
    /// Logs a warning if the system grants smaller socket buffers. Listeners work at once.
    /// [`far::serve`](crate::far::serve) serves peers. It must also run for rates in the status,
    /// and for the end of outstanding references.
    pub fn build(self) -> (Relay, Sessions) {
        warn_about_buffers(&self.link);
        let (abort, abort_seen) = watch::channel(false);
        let (drain_guard, all_ended) = mpsc::channel(1);
        let peers = self.settings.peers.iter();
        let relay = Relay(Arc::new(GatewayContext {
            peer_names: peers.map(|it| it.name.clone()).collect(),
            link: self.link,
            registry: self.registry,
            usage: Usage::new(self.settings.limits),
            pairing: Arc::default(),
            known_servers: Arc::default(),
            peer_versions: Arc::default(),
            server_rates: Arc::default(),
            truncations: Arc::default(),
            spools: self.spool.map(Spools::new),
            stores: self.stores.map(Stores::new),
            references: Arc::default(),
            own: self.own_addresses.into(),
            next_session: Arc::new(AtomicU64::new(self.first_session)),
            is_retired: Arc::new(AtomicBool::new(false)),
            abort: abort_seen,
            drain_guard: drain_guard.downgrade(),
            settings: Arc::new(self.settings),
        }));
        let sessions = Sessions {
            abort,
            drain_guard: Some(drain_guard),
            all_ended,
        };
        (relay, sessions)
    }
}

impl Sessions {
    /// Permits no further session.
    pub fn close(&mut self) {
        self.drain_guard = None;
    }

    /// Waits until all sessions have ended by themselves. No session may start any more.
    pub async fn wait_for_end(&mut self) {
        // Sessions hold senders, and never send.
        let _ = self.all_ended.recv().await;
    }

    /// Ends open sessions now. Returns when they have ended, and at the latest after `time_max`.
    pub async fn abort(&mut self, time_max: Duration) {
        self.close();
        // This fails only without receivers, and sessions hold some.
        let _ = self.abort.send(true);
        let _ = timeout(time_max, self.wait_for_end()).await;
    }
}

/// Warns about small socket buffers. They drop packets at high rates, and two kernel settings limit
/// them.
fn warn_about_buffers(link: &Link) {
    let buffers = link.snapshot().socket_buffers;
    let asked = buffers.asked.bytes();
    if buffers.receive_granted < buffers.asked || buffers.send_granted < buffers.asked {
        warn!(
            asked = %buffers.asked,
            receive_granted = %buffers.receive_granted,
            send_granted = %buffers.send_granted,
            "the kernel granted less socket buffer than asked, which costs throughput; as root: \
             sysctl -w net.core.rmem_max={asked} net.core.wmem_max={asked}"
        );
    }
}
