//! A running relay: builder, change of settings, and shutdown.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use ftp::session::TransferId;
use link::{Link, PeerId, RecvStream, SendStream, StreamClass, StreamKey};
use net::{
    dial::DialError,
    target::{Host, HostPort},
};
use optimiser::store::Store;
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
    time::{interval, timeout},
};
use tracing::warn;

use crate::{
    failed_logins::log_failed_login,
    gateway_context::{GatewayContext, ReachError},
    limits::{ReachedLimit, RelayLimits, Usage},
    optimise::{self, NegotiatedCoding, ReferenceKey, Stores, StreamCoding},
    session_memory::SessionMemory,
    settings::{ListenerCoding, RelaySettings},
    spool::{self, Spools},
    status::Registry,
    transfer_log::TransferLog,
    truncation::SessionKey,
    wire::{CodingOffer, Service, StreamHello, encode},
};

/// Handle of a running relay, with the settings of one moment. A clone is another handle of the
/// same relay.
#[derive(Debug, Clone)]
pub struct Relay(pub(crate) Arc<GatewayContext>);

/// Identifies a coded stream of a service. The pair of session and number is unique for each peer
/// and each value of `is_near`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodedStreamId {
    /// Other gateway.
    pub peer: PeerId,
    /// Whether this gateway is the near gateway of the session.
    pub is_near: bool,
    /// Number of the session, as the near gateway has chosen it.
    pub session: u64,
    /// Number of the stream within the session.
    pub number: u32,
}

/// The running sessions of a relay. This value controls their shutdown.
#[derive(Debug)]
pub struct Sessions {
    abort: watch::Sender<bool>,
    /// Guard that permits new sessions until it is dropped.
    drain_guard: Option<mpsc::Sender<()>>,
    all_ended: mpsc::Receiver<()>,
}

/// Components of a relay that has not been built yet.
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
    /// Creates a builder of a relay over `link`. The peers in `settings` must be the peers of the
    /// link.
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

    /// Returns a handle of the same relay with new settings.
    ///
    /// The new limits on the numbers of sessions, forwards and failed log-ins apply immediately.
    /// Open sessions keep all other settings, including timeouts.
    ///
    /// `peer_names` are the names of the link's peers, sorted by number and including removed
    /// peers. `own_addresses` are the TCP listeners of this process. Peers cannot connect to these
    /// listeners through this gateway.
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

    /// Returns the limits, and the resources that clients use at present.
    pub fn usage(&self) -> &Usage {
        &self.0.usage
    }

    /// Returns the chunk stores. Returns `None` if the settings contain no folder for them.
    pub fn stores(&self) -> Option<&Arc<Stores>> {
        self.0.stores.as_ref()
    }

    /// Returns the chunk store of the tenant `tenant` of `peer`. Opens the store if necessary.
    pub fn store(&self, peer: PeerId, tenant: &str) -> Option<Store> {
        self.0.store(peer, tenant)
    }

    /// Whether the relay accepts no further sessions.
    pub fn is_ending(&self) -> bool {
        self.0.drain_guard.upgrade().is_none()
    }

    /// From now on, refuses streams that do not belong to open sessions. The caller calls this
    /// function after another process has replaced this process, and the peers use the new process.
    pub fn retire(&self) {
        self.0.is_retired.store(true, Relaxed);
    }

    /// Opens a stream to the service `name` at a far gateway. Among the peers that serve `host`,
    /// the function selects the first peer that answers.
    ///
    /// If `via` is given, only the peer with this index in the settings is permitted.
    ///
    /// # Errors
    /// [`ReachError`] if no peer serves `host`, or if no such peer answers.
    pub async fn open(
        &self,
        name: &'static str,
        host: &Host,
        via: Option<usize>,
        class: StreamClass,
    ) -> Result<(PeerId, SendStream, RecvStream), ReachError> {
        let service = |_| (Service::Named(name.to_owned()), ());
        let (peer, (), send, recv) = self.0.reach(host, via, class, service).await?;
        Ok((peer, send, recv))
    }

    /// Opens a stream to the service `name` at `peer`. The stream reaches the same process of the
    /// peer as the existing stream `beside`.
    ///
    /// # Errors
    /// [`ReachError`] if the peer does not answer.
    pub async fn open_beside(
        &self,
        name: &'static str,
        peer: PeerId,
        beside: StreamKey,
        class: StreamClass,
    ) -> Result<(SendStream, RecvStream), ReachError> {
        let (mut send, recv) = self.0.open_beside(peer, beside, class).await?;
        let service = Service::Named(name.to_owned());
        let sent = send.write(encode(&StreamHello { service })).await;
        match sent {
            Ok(()) => Ok((send, recv)),
            Err(_) => Err(self.0.down(peer, None)),
        }
    }

    /// Returns the coding that this gateway offers to `peer` for the clients of a listener, and its
    /// own settings for that coding. Returns `None` if the listener uses no coding.
    pub fn offer_coding(
        &self,
        peer: PeerId,
        listener: &ListenerCoding,
    ) -> Option<(CodingOffer, NegotiatedCoding)> {
        self.0.offer(peer, listener)
    }

    /// Returns the coding that this gateway accepts from an offer of `peer`.
    pub fn accept_coding(&self, peer: PeerId, offer: &CodingOffer) -> NegotiatedCoding {
        self.0.agree(peer, offer)
    }

    /// Returns the coding of one stream of a service. `beside` is a stream of the same session.
    pub fn stream_coding(
        &self,
        negotiated: &NegotiatedCoding,
        stream: CodedStreamId,
        beside: StreamKey,
    ) -> StreamCoding {
        let CodedStreamId {
            peer,
            is_near,
            session,
            number,
        } = stream;
        let session = SessionKey {
            peer,
            is_near,
            session,
        };
        let transfer = TransferId(number);
        let key = ReferenceKey { session, transfer };
        negotiated.stream_coding(key, &self.0.link, beside, &self.0.references)
    }

    /// Returns the name of a peer.
    pub fn peer_name(&self, peer: PeerId) -> &str {
        self.0.peer_name(peer)
    }

    /// Returns the limits on the resources of clients.
    pub fn limits(&self) -> RelayLimits {
        self.0.settings.limits
    }

    /// Returns the memory that all sessions of services share, in addition to the buffers of the
    /// link.
    pub fn session_memory(&self) -> &Arc<SessionMemory> {
        &self.0.session_memory
    }

    /// Counts and logs a log-in that a server has refused. Returns an error when the client has
    /// reached the limit of failed log-ins. `user` is the user name, with escapes for control
    /// characters.
    ///
    /// # Errors
    /// The limit that the client has reached.
    pub fn record_failed_login(
        &self,
        client: SocketAddr,
        server: &str,
        user: &str,
    ) -> Result<(), ReachedLimit> {
        self.0.registry.count_failed_login();
        log_failed_login(client, server, user);
        self.0.usage.record_failed_login(client.ip())
    }

    /// Checks that the client has not reached the limit of failed log-ins.
    ///
    /// # Errors
    /// [`ReachedLimit::FailedLogins`] if the client has reached the limit.
    pub fn check_failed_logins(&self, client: SocketAddr) -> Result<(), ReachedLimit> {
        self.0.usage.check_failed_logins(client.ip())
    }

    /// Connects to a server that `peer` has requested. The peer's allow list applies.
    ///
    /// # Errors
    /// [`DialError`] if the allow list does not permit the server, or if the server does not
    /// answer.
    pub async fn dial(&self, peer: PeerId, target: &HostPort) -> Result<TcpStream, DialError> {
        self.0.dial(peer, target).await
    }

    /// Waits until open connections must end, because the time limit of a shutdown has expired.
    pub async fn wait_for_abort(&self) {
        self.0.wait_for_abort().await;
    }

    /// Updates the measured rates once a second, and drops chunks that no peer has requested in
    /// time. The future never resolves.
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
    /// Sets the log of finished transfers.
    #[must_use]
    pub fn transfer_log(mut self, log: TransferLog) -> Self {
        self.registry = Registry::new(log);
        self
    }

    /// Sets the spools. A spool is a file for one upload to several servers. The file crosses the
    /// link only once.
    #[must_use]
    pub fn spool(mut self, settings: Option<spool::SpoolSettings>) -> Self {
        self.spool = settings;
        self
    }

    /// Sets the chunk stores, which keep chunks of the bytes that cross the link.
    #[must_use]
    pub fn stores(mut self, settings: Option<optimise::StoresSettings>) -> Self {
        self.stores = settings;
        self
    }

    /// Sets the addresses on which this process listens for TCP. Peers cannot connect to these
    /// addresses through this gateway.
    #[must_use]
    pub fn own_addresses(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.own_addresses = addresses.into_iter().collect();
        self
    }

    /// Sets the number of the first session. The number must be above all numbers that an earlier
    /// process with the same key has used.
    #[must_use]
    pub fn first_session(mut self, number: u64) -> Self {
        self.first_session = number;
        self
    }

    /// Builds the relay.
    ///
    /// If the system grants smaller socket buffers than requested, the function logs a warning.
    /// Listeners work immediately. The caller must run [`far::serve`](crate::far::serve), which
    /// serves peers. That function also updates the rates in the status, and drops outstanding
    /// references.
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
            session_memory: Arc::new(SessionMemory::new(self.settings.link.memory_max)),
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
    /// From now on, permits no further session.
    pub fn close(&mut self) {
        self.drain_guard = None;
    }

    /// Waits until all sessions have ended. Before this call, [`close`](Self::close) must have been
    /// called.
    pub async fn wait_for_end(&mut self) {
        // Each session holds a sender and never sends. The call returns after the last sender was
        // dropped.
        let _ = self.all_ended.recv().await;
    }

    /// Aborts all open sessions. Returns when they have ended, or after `time_max`.
    pub async fn abort(&mut self, time_max: Duration) {
        self.close();
        // The call fails only if no receiver exists, and each session holds a receiver.
        let _ = self.abort.send(true);
        let _ = timeout(time_max, self.wait_for_end()).await;
    }
}

/// Logs a warning about small socket buffers. Small buffers drop packets at high rates. Two kernel
/// settings limit the size of the buffers.
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
