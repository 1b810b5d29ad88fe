//! State that all sessions of a running gateway share.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use link::{
    Link, PeerId, PeerState, RecvStream, SendStream, StreamClass, StreamKey, StreamOpenError,
};
use optimiser::store::Store;
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
};

use crate::{
    drain::ServerRates,
    known_servers::KnownServers,
    limits::Usage,
    optimise::{ChunkOwner, NegotiatedCoding, ReferenceKey, ReferenceStore, Stores, StreamCoding},
    pairing::StreamPairing,
    peer_versions::PeerVersions,
    session_memory::SessionMemory,
    settings::{ListenerCoding, RelaySettings},
    spool::Spools,
    status::Registry,
    time,
    truncation::Truncations,
    wire::{CodingOffer, Service, StoreTerms, StreamHello, encode},
};
use net::{
    dial::{self, DialError},
    target::{AllowList, Host, HostPort},
};

/// State that all sessions of a running gateway share. A reload creates another context with new
/// settings and the same other components. A session keeps the context with which it started.
#[derive(Debug, Clone)]
pub(crate) struct GatewayContext {
    pub(crate) settings: Arc<RelaySettings>,
    /// Names of the link's peers, including removed peers.
    pub(crate) peer_names: Arc<[String]>,
    pub(crate) link: Link,
    pub(crate) registry: Arc<Registry>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) pairing: Arc<StreamPairing>,
    pub(crate) known_servers: Arc<KnownServers>,
    pub(crate) peer_versions: Arc<PeerVersions>,
    /// Rate at which each server accepted its latest upload.
    pub(crate) server_rates: Arc<ServerRates>,
    pub(crate) truncations: Arc<Truncations>,
    pub(crate) spools: Option<Arc<Spools>>,
    pub(crate) stores: Option<Arc<Stores>>,
    pub(crate) references: Arc<ReferenceStore>,
    pub(crate) session_memory: Arc<SessionMemory>,
    /// TCP addresses on which this gateway itself listens.
    pub(crate) own: Arc<[SocketAddr]>,
    pub(crate) next_session: Arc<AtomicU64>,
    /// Whether another process has replaced this process, and the peers use the new process.
    pub(crate) is_retired: Arc<AtomicBool>,
    /// Becomes true when a shutdown must no longer wait for open connections. Sessions must then
    /// end immediately.
    pub(crate) abort: watch::Receiver<bool>,
    /// Guard that every session holds. The daemon waits until all guards are dropped.
    pub(crate) drain_guard: mpsc::WeakSender<()>,
}

/// Reason why no stream could be opened. The error text becomes part of a reply.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// No peer serves the requested host.
    #[error("no peer serves {0}")]
    NoPeer(Host),
    /// The peer that serves the host does not answer.
    #[error("peer {name} ({endpoint}) does not answer; its last answer: {last_answer}")]
    PeerDown {
        /// Name of the peer.
        name: String,
        /// Endpoint of the peer, or a text which states that the endpoint is unknown.
        endpoint: String,
        /// Time of the peer's latest answer, as text.
        last_answer: String,
    },
    /// The peer has removed this gateway.
    #[error(
        "this gateway is no longer a peer of {name} ({endpoint}): the operator there has removed it"
    )]
    Dismissed {
        /// Name of the peer.
        name: String,
        /// Endpoint of the peer, or a text which states that the endpoint is unknown.
        endpoint: String,
    },
    /// No peer that serves the host has answered within the time limit of this request.
    #[error("no peer for {0} answers at once")]
    NotAtOnce(Host),
    /// The peer permits no further streams.
    #[error("peer {0}: too many transfers at once")]
    TooMany(String),
    /// This gateway is shutting down.
    #[error("this gateway is shutting down")]
    Closed,
}

impl GatewayContext {
    /// Waits until open connections must end because of a shutdown.
    pub(crate) async fn wait_for_abort(&self) {
        let mut abort = self.abort.clone();
        // A dropped sender has the same meaning as an order to abort.
        let _ = abort.wait_for(|abort| *abort).await;
    }

    /// Returns a number for a new session. The number is unique within this gateway.
    pub(crate) fn session_number(&self) -> u64 {
        self.next_session.fetch_add(1, Relaxed)
    }

    pub(crate) fn peer_name(&self, peer: PeerId) -> &str {
        self.peer_names.get(peer.0).map_or("?", String::as_str)
    }

    /// Connects to a server that `peer` has requested. The peer's allow list applies.
    pub(crate) async fn dial(
        &self,
        peer: PeerId,
        target: &HostPort,
    ) -> Result<TcpStream, DialError> {
        let none = AllowList::default();
        let allow = self.settings.peer(peer).map_or(&none, |p| &p.allow);
        dial::dial(target, allow, &self.own).await
    }

    /// Opens a stream to a peer that serves `host`. If a peer does not answer, the function tries
    /// the next peer.
    ///
    /// `service` creates the first message of the stream, and a value that the function returns.
    pub(crate) async fn reach<T>(
        &self,
        host: &Host,
        via: Option<usize>,
        class: StreamClass,
        service: impl Fn(PeerId) -> (Service, T),
    ) -> Result<(PeerId, T, SendStream, RecvStream), ReachError> {
        let mut peers = self.settings.peers_for(host, via);
        if peers.len() > 1 {
            // A peer that is known to be silent is tried after the peers that are up.
            let link = self.link.snapshot();
            let up = |peer: &PeerId| {
                link.peers
                    .get(peer.0)
                    .is_some_and(|p| matches!(p.state, PeerState::Up { .. }))
            };
            peers.sort_by_key(|peer| !up(peer));
        }
        let mut reason = ReachError::NoPeer(host.clone());
        for peer in peers {
            match self.open(peer, class).await {
                Ok((mut send, recv)) => {
                    let (service, made) = service(peer);
                    match send.write(encode(&StreamHello { service })).await {
                        Ok(()) => return Ok((peer, made, send, recv)),
                        Err(_) => reason = self.down(peer, None),
                    }
                }
                Err(error) => reason = error,
            }
        }
        Err(reason)
    }

    /// Opens a stream to the peer `peer`.
    pub(crate) async fn open(
        &self,
        peer: PeerId,
        class: StreamClass,
    ) -> Result<(SendStream, RecvStream), ReachError> {
        let opened = self.link.open(peer, class).await;
        opened.map_err(|error| self.not_opened(peer, error))
    }

    /// Opens a stream to `peer`. The stream reaches the same process of the peer as the existing
    /// stream `beside`.
    pub(crate) async fn open_beside(
        &self,
        peer: PeerId,
        beside: StreamKey,
        class: StreamClass,
    ) -> Result<(SendStream, RecvStream), ReachError> {
        let opened = self.link.open_beside(peer, beside, class).await;
        opened.map_err(|error| self.not_opened(peer, error))
    }

    fn not_opened(&self, peer: PeerId, error: StreamOpenError) -> ReachError {
        match error {
            StreamOpenError::PeerDown { last_answer, .. } => self.down(peer, last_answer),
            StreamOpenError::TooManyStreams { .. } => {
                ReachError::TooMany(self.peer_name(peer).to_owned())
            }
            _ => ReachError::Closed,
        }
    }

    /// Returns the coding (compression and deduplication) that this gateway offers for the clients
    /// of a listener. Also returns this gateway's own settings for that coding. Returns `None` if
    /// the listener uses no coding.
    ///
    /// A later call may return another offer, because a store may become available.
    pub(crate) fn offer(
        &self,
        peer: PeerId,
        listener: &ListenerCoding,
    ) -> Option<(CodingOffer, NegotiatedCoding)> {
        let tenant = listener.tenant.as_deref().unwrap_or_default();
        let store = match listener.deduplicates || listener.caches {
            true => self.store(peer, tenant),
            false => None,
        };
        if !listener.compresses && store.is_none() {
            return None;
        }
        let compresses = self.settings.compresses(peer, listener.compresses);
        let negotiated = NegotiatedCoding::offered(compresses, store, listener.deduplicates);
        let store = negotiated.cutting().map(|cutting| StoreTerms {
            tenant: tenant.to_owned(),
            downloads: listener.caches,
            cutting,
        });
        let coding = CodingOffer {
            compresses: listener.compresses,
            store,
        };
        Some((coding, negotiated))
    }

    /// Returns the coding that this gateway accepts from the peer's offer.
    pub(crate) fn agree(&self, peer: PeerId, offer: &CodingOffer) -> NegotiatedCoding {
        let terms = offer.store.as_ref();
        let store = terms.and_then(|terms| self.store(peer, &terms.tenant));
        NegotiatedCoding::accepted(offer, self.settings.compresses(peer, true), store)
    }

    /// Returns the coding of a data connection. `beside` is a stream of the same session.
    pub(crate) fn stream_coding(
        &self,
        negotiated: Option<&NegotiatedCoding>,
        key: ReferenceKey,
        beside: StreamKey,
    ) -> Option<StreamCoding> {
        Some(negotiated?.stream_coding(key, &self.link, beside, &self.references))
    }

    /// Returns the chunk store of the tenant `tenant` of `peer`. Returns `None` if no store is
    /// configured or available.
    pub(crate) fn store(&self, peer: PeerId, tenant: &str) -> Option<Store> {
        let (of_peer, key) = self.settings.peer_and_key(peer)?;
        let has_tenant = tenant.is_empty() || of_peer.tenants.iter().any(|it| it == tenant);
        let stores = self.stores.as_ref();
        let stores = stores.filter(|_| has_tenant && of_peer.deduplicates)?;
        let owner = ChunkOwner {
            peer: &of_peer.name,
            key,
            tenant,
        };
        // The first call opens files, and therefore blocks.
        tokio::task::block_in_place(|| stores.get(owner))
    }

    /// Returns the reason why `peer` does not answer at present. Returns `None` if the peer
    /// answers.
    pub(crate) fn silence(&self, peer: PeerId) -> Option<ReachError> {
        let state = self.link.snapshot().peers.get(peer.0).map(|p| p.state);
        if matches!(state, Some(PeerState::Up { .. })) {
            None
        } else {
            Some(self.down(peer, None))
        }
    }

    pub(crate) fn down(
        &self,
        peer: PeerId,
        last_answer: Option<std::time::SystemTime>,
    ) -> ReachError {
        let configured = self.settings.endpoint_of(peer).map(str::to_owned);
        let snapshot = self.link.snapshot();
        let seen = snapshot.peers.get(peer.0);
        let endpoint = configured
            .or_else(|| seen.and_then(|p| p.endpoint).map(|e| e.to_string()))
            .unwrap_or_else(|| "no endpoint".to_owned());
        let last_answer = last_answer.or_else(|| seen.and_then(|p| p.last_answer));
        let name = self.peer_name(peer).to_owned();
        if seen.is_some_and(|it| it.state == PeerState::Dismissed) {
            return ReachError::Dismissed { name, endpoint };
        }
        ReachError::PeerDown {
            name,
            endpoint,
            last_answer: time::or_never(last_answer),
        }
    }
}
