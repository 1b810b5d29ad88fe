//! Settings of a relay: the peers and the link to them, the listeners for clients, and limits. All
//! values are already checked.

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
    target::{AllowList, Host, HostPort, Network, ServesPattern},
    tls::{self, CertSource, ServerTls},
};

use units::ByteCount;

use crate::{limits::RelayLimits, wire::CodingOffer};

/// Settings of a relay, except for its listeners.
#[derive(Debug, Clone, PartialEq)]
pub struct RelaySettings {
    /// Settings of the link: identity, peers, policy, memory.
    pub link: LinkConfig,
    /// Relay settings of each peer, in the order of the peers in `link`.
    pub peers: Vec<PeerSettings>,
    /// Limits on the resources that clients may use.
    pub limits: RelayLimits,
}

/// Settings of a peer.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerSettings {
    /// Name of the peer at this gateway.
    pub name: String,
    /// Origin of the peer: the configuration file, the register or an invite.
    pub origin: PeerOrigin,
    /// Number of the peer in the link. For peers in the configuration file at the gateway's start,
    /// the number is their position in the file. Later peers receive the following numbers.
    pub id: PeerId,
    /// Servers that the gateway reaches through this peer. `None` stands for all servers.
    pub serves: Option<Vec<ServesPattern>>,
    /// Servers to which the gateway connects for this peer: the `allow` of the peer, or the `allow`
    /// of `[far]`.
    pub allow: AllowList,
    /// Whether the gateway may compress bytes to this peer.
    pub compresses: bool,
    /// Whether the gateway stores chunks that it sends to or receives from this peer. A store
    /// folder must be configured.
    pub deduplicates: bool,
    /// Tenants of this peer. The gateway stores the chunks of each tenant separately.
    pub tenants: Vec<String>,
}

/// Origin of a peer: the configuration file, the register or an invite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerOrigin {
    /// The operator has added the peer to the configuration file.
    File,
    /// The register of peers contains the peer. An invite or a command has added the peer to the
    /// register.
    Register,
    /// The other gateway may use an invite in order to become a peer, but has no other permission.
    Invite,
    /// The register contains the other gateway as a removed peer. This gateway reports the removal
    /// to the other gateway.
    Dismissed,
}

impl PeerSettings {
    /// Whether the other gateway is a guest. A guest is not a peer, but may become a peer by an
    /// invite, or was a peer before.
    pub fn is_guest(&self) -> bool {
        matches!(self.origin, PeerOrigin::Invite | PeerOrigin::Dismissed)
    }
}

/// Settings of one FTP listener.
#[derive(Debug, Clone, PartialEq)]
pub struct FtpListener {
    /// Address on which the gateway listens for clients.
    pub listen: SocketAddr,
    /// Server of all clients. `None` if each client names its server in `USER name@host[:port]`, or
    /// if the listener intercepts connections to servers.
    pub target: Option<HostPort>,
    /// Whether the listener intercepts connections that clients open to the servers' own addresses.
    pub transparent: bool,
    /// Networks of the permitted clients. `None` stands for loopback, private and link-local
    /// addresses.
    pub clients: Option<Vec<Network>>,
    /// Servers that clients may name. `None` stands for all servers that a peer serves.
    pub allow: Option<AllowList>,
    /// Index of the peer in [`RelaySettings::peers`]. If the value is `None`, the `serves` settings
    /// of the peers select the peer.
    pub via: Option<usize>,
    /// Ports for passive data connections of clients. `None` stands for ports that the system
    /// chooses.
    pub passive_ports: Option<RangeInclusive<u16>>,
    /// Session mode: fast (fewer round trips) or strict (only relaying).
    pub mode: SessionMode,
    /// Host that opens data connections between far gateway and server.
    pub server_data: DataOpener,
    /// IP address in the gateway's `227` replies. `None` stands for the local address of the
    /// control connection.
    pub external_address: Option<IpAddr>,
    /// TLS between the clients and the gateway.
    pub tls: ListenerTls,
    /// Rules for the TLS connections of clients.
    pub tls_rules: tls::TlsRules,
    /// TLS between the far gateway and the server. `None` disables TLS.
    pub server_tls: Option<ServerTls>,
    /// Coding of files and listings on the link.
    pub coding: ListenerCoding,
}

/// Coding (compression and deduplication) that a listener permits on the link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListenerCoding {
    /// Whether the gateways may compress data on the link.
    pub compresses: bool,
    /// Whether the gateways may deduplicate uploads. If so, they store the chunks of uploads and
    /// send references to these chunks.
    pub deduplicates: bool,
    /// Whether the gateways may deduplicate downloads. If so, they store the chunks of downloads
    /// and send references to these chunks.
    pub caches: bool,
    /// Tenant that owns the transferred data. `None` if the data belong to no tenant.
    pub tenant: Option<String>,
}

/// TLS between the clients of a listener and the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenerTls {
    /// No TLS. The gateway refuses `AUTH TLS`.
    Off,
    /// TLS starts after `AUTH TLS`, for clients that send this command.
    Explicit(CertSource),
    /// TLS starts with the first byte.
    Implicit(CertSource),
}

/// Settings of an FTP listener without decryption. TLS between client and server encrypts the
/// control connection and all data connections. The client connects to the data ports that the
/// server announces.
#[derive(Debug, Clone, PartialEq)]
pub struct PassThrough {
    /// Address on which the gateway listens for clients.
    pub listen: SocketAddr,
    /// Address of the server.
    pub target: HostPort,
    /// Networks of the permitted clients. `None` stands for loopback, private and link-local
    /// addresses.
    pub clients: Option<Vec<Network>>,
    /// Index of the peer. If the value is `None`, the `serves` settings of the peers select the
    /// peer.
    pub via: Option<usize>,
    /// Data ports of the server. The gateway listens on each port, and forwards connections to the
    /// same port of the server.
    pub data_ports: RangeInclusive<u16>,
}

/// Settings of a listener for any TCP service.
#[derive(Debug, Clone, PartialEq)]
pub struct Forward {
    /// Address on which the gateway listens for clients.
    pub listen: SocketAddr,
    /// Address to which the far gateway connects.
    pub target: HostPort,
    /// Networks of the permitted clients. `None` stands for loopback, private and link-local
    /// addresses.
    pub clients: Option<Vec<Network>>,
    /// Index of the peer. If the value is `None`, the `serves` settings of the peers select the
    /// peer.
    pub via: Option<usize>,
    /// Whether the gateways may compress the bytes on the link.
    pub compresses: bool,
}

impl RelaySettings {
    /// Creates default settings of a relay with these peers. The relay is fair to other traffic.
    /// The peers have no permission to reach servers through the relay.
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

    /// Returns the peers that serve `host`, in the order in which the gateway tries them.
    pub fn peers_for(&self, host: &Host, via: Option<usize>) -> Vec<PeerId> {
        let indices = match via {
            Some(index) => vec![index],
            None => self.serving(host),
        };
        let peers = indices.into_iter().filter_map(|at| self.peers.get(at));
        peers.map(|peer| peer.id).collect()
    }

    /// Returns the indices of the peers whose `serves` patterns match `host` best. If a peer of the
    /// configuration file matches, peers of the register are excluded.
    fn serving(&self, host: &Host) -> Vec<usize> {
        let patterns = self.peers.iter().map(|peer| peer.serves.as_deref());
        let mut best = net::target::choose(host, patterns);
        let is_of_file = |at: &usize| self.peers[*at].origin == PeerOrigin::File;
        if best.iter().any(is_of_file) {
            best.retain(is_of_file);
        }
        best
    }

    /// Returns the settings of a peer. Returns `None` if these settings do not contain the peer.
    pub fn peer(&self, id: PeerId) -> Option<&PeerSettings> {
        self.peers.iter().find(|peer| peer.id == id)
    }

    /// Whether the gateway compresses bytes to `peer`. `listener_compresses` is the setting of
    /// the listener.
    pub fn compresses(&self, peer: PeerId, listener_compresses: bool) -> bool {
        listener_compresses && self.peer(peer).is_some_and(|peer| peer.compresses)
    }

    /// Returns the coding that this gateway accepts from a peer's offer for a forward.
    pub fn coding_with(&self, peer: PeerId, offer: &CodingOffer) -> CodingOffer {
        CodingOffer {
            compresses: self.compresses(peer, offer.compresses),
            store: None,
        }
    }

    /// Returns the settings of a peer, and its first public key.
    pub fn peer_and_key(&self, id: PeerId) -> Option<(&PeerSettings, &PublicKey)> {
        let mut peers = self.peers.iter().zip(&self.link.peers);
        let (peer, of_link) = peers.find(|(peer, _)| peer.id == id)?;
        Some((peer, of_link.public_keys.first()?))
    }

    /// Returns the configured endpoint of a peer. Returns `None` if none is configured.
    pub fn endpoint_of(&self, id: PeerId) -> Option<&str> {
        let mut peers = self.peers.iter().zip(&self.link.peers);
        let (_, of_link) = peers.find(|(peer, _)| peer.id == id)?;
        of_link.endpoint.as_deref()
    }
}

impl FtpListener {
    /// Creates the settings of a listener for programs in this process.
    ///
    /// Clients name their servers, and the gateway reaches these servers through the peer `via`.
    /// `server_tls` sets TLS between the far gateway and the servers. Clients use no TLS.
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
            coding: ListenerCoding {
                compresses: true,
                deduplicates: true,
                caches: true,
                tenant: None,
            },
        }
    }

    /// Returns the server of a client that connected to the address `local`. Returns `None` if the
    /// client must name its server.
    pub fn target_of(&self, local: SocketAddr) -> Option<HostPort> {
        let original = HostPort {
            host: Host::Ip(local.ip()),
            port: local.port(),
        };
        let is_server = self.transparent && local.port() == FTP_PORT;
        self.target.clone().or(is_server.then_some(original))
    }

    /// Returns the TLS mode of clients, for the state machine of a session.
    pub fn client_tls(&self) -> ClientTlsMode {
        let is_required = self.tls_rules.is_required;
        match &self.tls {
            ListenerTls::Implicit(_) => ClientTlsMode::Implicit { is_required },
            ListenerTls::Explicit(_) => ClientTlsMode::Explicit { is_required },
            ListenerTls::Off => ClientTlsMode::Off,
        }
    }

    /// Whether clients may name this server.
    pub fn may_name(&self, server: &HostPort) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.lists(server))
    }

    /// Whether clients with the address `ip` may use this listener.
    pub fn admits(&self, ip: IpAddr) -> bool {
        admits(self.clients.as_deref(), ip)
    }
}

impl PassThrough {
    /// Whether clients with the address `ip` may use this listener.
    pub fn admits(&self, ip: IpAddr) -> bool {
        admits(self.clients.as_deref(), ip)
    }
}

impl Forward {
    /// Whether clients with the address `ip` may use this listener.
    pub fn admits(&self, ip: IpAddr) -> bool {
        admits(self.clients.as_deref(), ip)
    }
}

/// Returns the minimum memory that the link needs for this number of peers.
pub fn memory_least(peers: usize) -> ByteCount {
    ByteCount::mebibytes(MEMORY_PER_PEER_MIB * peers.max(1) as u64)
}

/// Default memory of the link. With 1 Gbit/s, 600 ms and 64 % loss, the link needs 650 MB
/// (docs/protocol.md). The remaining memory is for a second peer.
pub const MEMORY_MAX: ByteCount = ByteCount::gibibytes(1);

/// Minimum memory for each peer, in MiB. With less memory, a connection could not hold its windows
/// and buffers.
pub const MEMORY_PER_PEER_MIB: u64 = 16;

/// Default timeout: if no packet arrives from a peer for this time, the gateway abandons the
/// streams to the peer. The restart of a router takes less time.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Whether a listener with the permitted networks `clients` serves clients with the address `ip`.
/// `None` stands for loopback, private and link-local addresses.
pub fn admits(clients: Option<&[Network]>, ip: IpAddr) -> bool {
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
