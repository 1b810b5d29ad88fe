//! Settings of a relay: the peers and the link to them, the listeners for clients, and limits. All
//! values have been checked.

use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    time::Duration,
};

use ftp::{
    logon::FTP_PORT,
    session::{SessionMode, far::DataOpener, near::ClientTlsMode},
};
use link::{Identity, LinkConfig, PeerConfig, PeerId, Policy, PublicKey};
use net::{
    target::{AllowList, Endpoint, Host, Network, ServesPattern},
    tls::{self, CertSource, ServerTls},
};

use units::ByteCount;

use crate::{limits::RelayLimits, wire::CodingOffer};

/// Settings of a relay, without listeners.
#[derive(Debug, Clone, PartialEq)]
pub struct RelaySettings {
    /// Settings of the link: identity, peers, policy, memory.
    pub link: LinkConfig,
    /// The relay's own settings of each peer of `link`, in the same order.
    pub peers: Vec<PeerSettings>,
    /// Limits on the resources that clients use.
    pub limits: RelayLimits,
}

/// A peer, seen from the gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerSettings {
    /// Name of the peer at this gateway.
    pub name: String,
    /// Source of the statement that it is a peer.
    pub origin: PeerOrigin,
    /// The peer's number in the link. It is its position in the configuration file at the start of
    /// the gateway. Later peers get the following numbers.
    pub id: PeerId,
    /// Servers that are reached through it. `None` for all servers.
    pub serves: Option<Vec<ServesPattern>>,
    /// Servers that the gateway connects to for this peer: its own `allow`, or the `allow` of
    /// `[far]`.
    pub allow: AllowList,
    /// Whether bytes to this peer may be compressed.
    pub compresses: bool,
    /// Whether chunks that cross the link to or from this peer are stored, if a folder is
    /// configured.
    pub deduplicates: bool,
    /// Tenants of this peer, whose chunks are kept apart.
    pub tenants: Vec<String>,
}

/// Source of the statement that a gateway is a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerOrigin {
    /// The operator, in the configuration file.
    File,
    /// The register. The peer came by an invite, or was added by a command.
    Register,
    /// An invite. The gateway may become a peer, and may do nothing else.
    Invite,
    /// The register. The gateway was a peer, and learns that it is none any more.
    Dismissed,
}

impl PeerSettings {
    /// Returns whether the gateway is no peer, but may become a peer by an invite, or was a peer
    /// before.
    pub fn is_guest(&self) -> bool {
        matches!(self.origin, PeerOrigin::Invite | PeerOrigin::Dismissed)
    }
}

/// One FTP listener.
#[derive(Debug, Clone, PartialEq)]
pub struct FtpListener {
    /// Address for clients.
    pub listen: SocketAddr,
    /// The server. `None` if the client names it in `USER name@host[:port]`, or if the address of
    /// an intercepted connection names it.
    pub target: Option<Endpoint>,
    /// Accepts connections that clients make to the servers themselves.
    pub transparent: bool,
    /// Networks of permitted clients. `None` for loopback and private ranges.
    pub clients: Option<Vec<Network>>,
    /// Servers that clients may name. `None` for all servers that a peer serves.
    pub allow: Option<AllowList>,
    /// The peer to use, an index into [`RelaySettings::peers`]. `None` to choose by `serves`.
    pub via: Option<usize>,
    /// Ports for data listeners. `None` for ports that the system chooses.
    pub passive_ports: Option<RangeInclusive<u16>>,
    /// Whether the gateways save round trips, or only relay.
    pub mode: SessionMode,
    /// Which side opens the data connections between far gateway and server.
    pub server_data: DataOpener,
    /// Address to announce in `227`. `None` for the address that the client connected to.
    pub external_address: Option<IpAddr>,
    /// TLS with the clients.
    pub tls: ListenerTls,
    /// Requirements for that TLS.
    pub tls_rules: tls::TlsRules,
    /// TLS between the far gateway and the server. `None` for no TLS.
    pub server_tls: Option<ServerTls>,
    /// Whether data may be compressed on the link.
    pub compresses: bool,
    /// Whether chunks of uploads may be stored, and referred to.
    pub deduplicates: bool,
    /// The same for downloads.
    pub caches: bool,
    /// The tenant that owns the data, if any.
    pub tenant: Option<String>,
}

/// TLS between the clients of a listener and the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenerTls {
    /// No TLS; `AUTH TLS` is refused.
    Off,
    /// From `AUTH TLS` on, for clients that request it.
    Explicit(CertSource),
    /// TLS from the first byte.
    Implicit(CertSource),
}

/// An FTP listener that cannot read its traffic. TLS between client and server covers everything,
/// including data connections. The client connects to the data ports that the server announces.
#[derive(Debug, Clone, PartialEq)]
pub struct PassThrough {
    /// Address for clients.
    pub listen: SocketAddr,
    /// The server.
    pub target: Endpoint,
    /// Networks of permitted clients. `None` for loopback and private ranges.
    pub clients: Option<Vec<Network>>,
    /// The peer to use. `None` to choose by `serves`.
    pub via: Option<usize>,
    /// The server's data ports. The gateway listens on each, and forwards to the same port of the
    /// server.
    pub data_ports: RangeInclusive<u16>,
}

/// One listener for any TCP service.
#[derive(Debug, Clone, PartialEq)]
pub struct Forward {
    /// Address for clients.
    pub listen: SocketAddr,
    /// The address that the far gateway connects to.
    pub target: Endpoint,
    /// Networks of permitted clients. `None` for loopback and private ranges.
    pub clients: Option<Vec<Network>>,
    /// The peer to use. `None` to choose by `serves`.
    pub via: Option<usize>,
    /// Whether the bytes may be compressed on the link.
    pub compresses: bool,
}

impl RelaySettings {
    /// Creates the settings of a relay with these peers: fair to other traffic, with usual limits.
    /// The peers may not reach any server through it.
    pub fn new(identity: Identity, peers: Vec<PeerConfig>) -> Self {
        let memory_max = MEMORY_MAX.max(memory_least(peers.len()));
        let of_relay = peers.iter().enumerate();
        Self {
            peers: of_relay
                .map(|(number, of_link)| PeerSettings {
                    name: of_link.name.clone(),
                    origin: PeerOrigin::File,
                    id: PeerId(number),
                    serves: None,
                    allow: AllowList::default(),
                    compresses: true,
                    deduplicates: true,
                    tenants: Vec::new(),
                })
                .collect(),
            limits: RelayLimits::fitting(link::streams_at_once(memory_max, peers.len())),
            link: LinkConfig {
                identity,
                peers,
                policy: Policy::Fair,
                rate_max: None,
                memory_max,
                idle_timeout: IDLE_TIMEOUT,
                memory_file: None,
            },
        }
    }

    /// Returns the peers that serve `host`, in the order in which they are tried.
    pub fn peers_for(&self, host: &Host, via: Option<usize>) -> Vec<PeerId> {
        let indices = match via {
            Some(index) => vec![index],
            None => self.serving(host),
        };
        let peers = indices.into_iter().filter_map(|at| self.peers.get(at));
        peers.map(|peer| peer.id).collect()
    }

    /// Returns the indices of the peers that serve `host` best. A peer of the register never
    /// replaces a peer of the file.
    fn serving(&self, host: &Host) -> Vec<usize> {
        let patterns = self.peers.iter().map(|peer| peer.serves.as_deref());
        let mut best = net::target::choose(host, patterns);
        let is_of_file = |at: &usize| self.peers[*at].origin == PeerOrigin::File;
        if best.iter().any(is_of_file) {
            best.retain(is_of_file);
        }
        best
    }

    /// Returns the settings of a peer. `None` if this configuration does not have it.
    pub fn peer(&self, id: PeerId) -> Option<&PeerSettings> {
        self.peers.iter().find(|peer| peer.id == id)
    }

    /// Whether bytes of a listener with this setting are compressed on the way to `peer`.
    pub fn compresses(&self, peer: PeerId, door_compresses: bool) -> bool {
        door_compresses && self.peer(peer).is_some_and(|peer| peer.compresses)
    }

    /// Returns the part of a peer's offer for a forward that this gateway supports, too.
    pub fn coding_with(&self, peer: PeerId, offer: &CodingOffer) -> CodingOffer {
        CodingOffer {
            compresses: self.compresses(peer, offer.compresses),
            store: None,
        }
    }

    /// Returns a peer, and its first key.
    pub fn peer_and_key(&self, id: PeerId) -> Option<(&PeerSettings, &PublicKey)> {
        let mut peers = self.peers.iter().zip(&self.link.peers);
        let (peer, of_link) = peers.find(|(peer, _)| peer.id == id)?;
        Some((peer, of_link.public_keys.first()?))
    }

    /// Returns the configured endpoint of a peer.
    pub fn endpoint_of(&self, id: PeerId) -> Option<&str> {
        let mut peers = self.peers.iter().zip(&self.link.peers);
        let (_, of_link) = peers.find(|(peer, _)| peer.id == id)?;
        of_link.endpoint.as_deref()
    }
}

impl FtpListener {
    /// Creates a listener for programs in this process.
    ///
    /// Clients name their servers, which the peer `via` reaches. `server_tls` determines the TLS
    /// with these servers. The clients need no TLS.
    pub fn within_process(listen: SocketAddr, via: usize, server_tls: Option<ServerTls>) -> Self {
        Self {
            listen,
            target: None,
            transparent: false,
            clients: None,
            allow: None,
            via: Some(via),
            passive_ports: None,
            mode: SessionMode::default(),
            server_data: DataOpener::default(),
            external_address: None,
            tls: ListenerTls::Off,
            tls_rules: tls::TlsRules::default(),
            server_tls,
            compresses: true,
            deduplicates: true,
            caches: true,
            tenant: None,
        }
    }

    /// Returns the server for a client that connected to `local`. `None` if the client has to name
    /// it.
    pub fn target_of(&self, local: SocketAddr) -> Option<Endpoint> {
        let original = Endpoint {
            host: Host::Ip(local.ip()),
            port: local.port(),
        };
        let is_server = self.transparent && local.port() == FTP_PORT;
        self.target.clone().or(is_server.then_some(original))
    }

    /// Returns the setting of TLS with the clients, for the session's state machine.
    pub fn client_tls(&self) -> ClientTlsMode {
        let is_required = self.tls_rules.is_required;
        match &self.tls {
            ListenerTls::Implicit(_) => ClientTlsMode::Implicit { is_required },
            ListenerTls::Explicit(_) => ClientTlsMode::Explicit { is_required },
            ListenerTls::Off => ClientTlsMode::Off,
        }
    }

    /// Whether a client may name this server.
    pub fn may_name(&self, server: &Endpoint) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.lists(server))
    }

    /// Whether a client at `ip` may use this listener.
    pub fn admits(&self, ip: IpAddr) -> bool {
        admits(self.clients.as_deref(), ip)
    }
}

impl PassThrough {
    /// Whether a client at `ip` may use this listener.
    pub fn admits(&self, ip: IpAddr) -> bool {
        admits(self.clients.as_deref(), ip)
    }
}

impl Forward {
    /// Whether a client at `ip` may use this listener.
    pub fn admits(&self, ip: IpAddr) -> bool {
        admits(self.clients.as_deref(), ip)
    }
}

/// Returns the memory that the link needs for this number of peers.
pub fn memory_least(peers: usize) -> ByteCount {
    ByteCount::mebibytes(MEMORY_PER_PEER_MIB * peers.max(1) as u64)
}

/// Usual memory of the link. It fills 1 Gbit/s at 600 ms and 64 % loss (650 MB, docs/protocol.md),
/// with room for a second peer.
pub const MEMORY_MAX: ByteCount = ByteCount::gibibytes(1);

/// Memory below which a connection cannot keep its windows and buffers.
pub const MEMORY_PER_PEER_MIB: u64 = 16;

/// Usual time of silence after which a session ends: longer than a router's restart.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

fn admits(clients: Option<&[Network]>, ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    match clients {
        Some(networks) => networks.iter().any(|n| n.contains(ip)),
        None => match ip {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
            IpAddr::V6(v6) => {
                v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local()
            }
        },
    }
}
