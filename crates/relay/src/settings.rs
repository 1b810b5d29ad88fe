//! Settings of a relay: the peers and the link to them, the doors for clients, and limits. All are checked already.

use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    time::Duration,
};

use ftp::{
    logon::FTP_PORT,
    session::{Mode, far::DataWay, near::ClientTls},
};
use link::{Identity, LinkConfig, PeerConfig, PeerId, Policy, PublicKey};
use net::{
    target::{AllowList, Endpoint, Host, Network, ServesPattern},
    tls::{self, CertSource, ServerTls},
};

use units::ByteCount;

use crate::{limits::Limits, wire::Coding};

/// Settings of a relay, doors excepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Settings of the link: identity, peers, policy, memory.
    pub link: LinkConfig,
    /// The relay's own settings of each peer of `link`, in the same order.
    pub peers: Vec<Peer>,
    /// Limits on what clients use.
    pub limits: Limits,
}

/// A peer, seen from the gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Peer {
    pub name: String,
    /// Who says that it is one.
    pub origin: Origin,
    /// Its number in the link: its place in the file that the gateway was started with, and later ones are
    /// counted on.
    pub id: PeerId,
    /// Which servers are reached through it; `None`: any.
    pub serves: Option<Vec<ServesPattern>>,
    /// Servers that the gateway dials for this peer: its own `allow`, or that of `[far]`.
    pub allow: AllowList,
    /// What goes to this peer may be compressed.
    pub compresses: bool,
    /// Chunks are kept that cross the link to or from this peer, where there is a folder for them.
    pub deduplicates: bool,
    /// Tenants of this peer, whose chunks are kept apart.
    pub tenants: Vec<String>,
}

/// Who says that a gateway is a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The operator, in the file.
    File,
    /// The register: it came by an invite, or was added by a command.
    Register,
    /// An invite: it may become one, and nothing else.
    Invite,
    /// The register: it was one, and hears that it is none any more.
    Dismissed,
}

impl Peer {
    /// Whether it is no peer: it may become one by an invite, or it was one.
    pub fn is_guest(&self) -> bool {
        matches!(self.origin, Origin::Invite | Origin::Dismissed)
    }
}

/// One FTP front door.
#[derive(Debug, Clone, PartialEq)]
pub struct FtpDoor {
    /// Address for clients.
    pub listen: SocketAddr,
    /// The server; `None`: named by the client in `USER name@host[:port]`, or by the address that an
    /// intercepted client connects to.
    pub target: Option<Endpoint>,
    /// Takes connections that clients make to the servers themselves.
    pub transparent: bool,
    /// Who may connect; `None`: loopback and private ranges.
    pub clients: Option<Vec<Network>>,
    /// Servers that clients may name; `None`: all that a peer serves.
    pub allow: Option<AllowList>,
    /// The peer to go through, an index into [`Settings::peers`]; `None`: chosen by `serves`.
    pub via: Option<usize>,
    /// Ports to listen on for data; `None`: whatever the system gives.
    pub passive_ports: Option<RangeInclusive<u16>>,
    /// What the gateways may do besides relaying.
    pub mode: Mode,
    /// Which side opens the data connections between far gateway and server.
    pub server_data: DataWay,
    /// Address to announce in `227` instead of the one the client connected to.
    pub external_address: Option<IpAddr>,
    /// TLS with the clients.
    pub tls: DoorTls,
    /// What that TLS must be.
    pub tls_rules: tls::Rules,
    /// TLS between the far gateway and the server; `None`: none.
    pub server_tls: Option<ServerTls>,
    /// Data may be compressed on the link.
    pub compresses: bool,
    /// Chunks of uploads may be kept, and referred to.
    pub deduplicates: bool,
    /// The same of downloads.
    pub caches: bool,
    /// Whose data it is, if not that of all.
    pub tenant: Option<String>,
}

/// TLS between the clients of a front door and the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DoorTls {
    /// No TLS; `AUTH TLS` is refused.
    Off,
    /// From `AUTH TLS` on, for clients that ask for it.
    Explicit(CertSource),
    /// TLS from the first byte.
    Implicit(CertSource),
}

/// An FTP front door that cannot read what passes it: all of it is TLS between the client and the server,
/// also on the data connections, for which the client takes the ports that the server announces.
#[derive(Debug, Clone, PartialEq)]
pub struct PassThrough {
    /// Address for clients.
    pub listen: SocketAddr,
    pub target: Endpoint,
    /// Who may connect; `None`: loopback and private ranges.
    pub clients: Option<Vec<Network>>,
    /// The peer to go through; `None`: chosen by `serves`.
    pub via: Option<usize>,
    /// The server's ports for data: on each the gateway listens and leads to the same port there.
    pub data_ports: RangeInclusive<u16>,
}

/// One front door for any TCP service.
#[derive(Debug, Clone, PartialEq)]
pub struct Forward {
    /// Address for clients.
    pub listen: SocketAddr,
    /// The address that the far gateway connects to.
    pub target: Endpoint,
    /// Who may connect; `None`: loopback and private ranges.
    pub clients: Option<Vec<Network>>,
    /// The peer to go through; `None`: chosen by `serves`.
    pub via: Option<usize>,
    /// The bytes may be compressed on the link.
    pub compresses: bool,
}

impl Settings {
    /// Settings of a relay with these peers: fair to other traffic, with usual limits. Its peers reach no server through it.
    pub fn new(identity: Identity, peers: Vec<PeerConfig>) -> Self {
        let memory_max = MEMORY_MAX.max(memory_least(peers.len()));
        let of_relay = peers.iter().enumerate();
        Self {
            peers: of_relay
                .map(|(number, of_link)| Peer {
                    name: of_link.name.clone(),
                    origin: Origin::File,
                    id: PeerId(number),
                    serves: None,
                    allow: AllowList::default(),
                    compresses: true,
                    deduplicates: true,
                    tenants: Vec::new(),
                })
                .collect(),
            limits: Limits::fitting(link::streams_at_once(memory_max, peers.len())),
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

    /// The peers that serve `host`, in the order in which they are tried.
    pub fn peers_for(&self, host: &Host, via: Option<usize>) -> Vec<PeerId> {
        let indices = match via {
            Some(index) => vec![index],
            None => self.serving(host),
        };
        let peers = indices.into_iter().filter_map(|at| self.peers.get(at));
        peers.map(|peer| peer.id).collect()
    }

    /// The indices of the peers that serve `host` best. A peer of the register never stands in for one of the file.
    fn serving(&self, host: &Host) -> Vec<usize> {
        let patterns = self.peers.iter().map(|peer| peer.serves.as_deref());
        let mut best = net::target::choose(host, patterns);
        let is_of_file = |at: &usize| self.peers[*at].origin == Origin::File;
        if best.iter().any(is_of_file) {
            best.retain(is_of_file);
        }
        best
    }

    /// The settings of a peer, unless it is none of this configuration.
    pub fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.id == id)
    }

    /// Whether bytes of a door that compresses or not are compressed on the way to `peer`.
    pub fn compresses(&self, peer: PeerId, door_compresses: bool) -> bool {
        door_compresses && self.peer(peer).is_some_and(|peer| peer.compresses)
    }

    /// The part of what `peer` offers for a forward that this gateway does, too.
    pub fn coding_with(&self, peer: PeerId, offer: &Coding) -> Coding {
        Coding {
            compresses: self.compresses(peer, offer.compresses),
            store: None,
        }
    }

    /// A peer, and the first of its keys.
    pub fn peer_and_key(&self, id: PeerId) -> Option<(&Peer, &PublicKey)> {
        let mut peers = self.peers.iter().zip(&self.link.peers);
        let (peer, of_link) = peers.find(|(peer, _)| peer.id == id)?;
        Some((peer, of_link.public_keys.first()?))
    }

    /// Where this configuration says that a peer listens.
    pub fn endpoint_of(&self, id: PeerId) -> Option<&str> {
        let mut peers = self.peers.iter().zip(&self.link.peers);
        let (_, of_link) = peers.find(|(peer, _)| peer.id == id)?;
        of_link.endpoint.as_deref()
    }
}

impl FtpDoor {
    /// A door for programs in this process: clients name their servers, which the peer `via` reaches, with TLS as `server_tls`
    /// says. Its clients need no TLS.
    pub fn within_process(listen: SocketAddr, via: usize, server_tls: Option<ServerTls>) -> Self {
        Self {
            listen,
            target: None,
            transparent: false,
            clients: None,
            allow: None,
            via: Some(via),
            passive_ports: None,
            mode: Mode::default(),
            server_data: DataWay::default(),
            external_address: None,
            tls: DoorTls::Off,
            tls_rules: tls::Rules::default(),
            server_tls,
            compresses: true,
            deduplicates: true,
            caches: true,
            tenant: None,
        }
    }

    /// The server for a client that connected to `local`, unless the client has to name it.
    pub fn target_of(&self, local: SocketAddr) -> Option<Endpoint> {
        let original = Endpoint {
            host: Host::Ip(local.ip()),
            port: local.port(),
        };
        let is_server = self.transparent && local.port() == FTP_PORT;
        self.target.clone().or(is_server.then_some(original))
    }

    /// TLS with the clients, for the session's state machine.
    pub fn client_tls(&self) -> ClientTls {
        let is_required = self.tls_rules.is_required;
        match &self.tls {
            DoorTls::Implicit(_) => ClientTls::Implicit { is_required },
            DoorTls::Explicit(_) => ClientTls::Explicit { is_required },
            DoorTls::Off => ClientTls::Off,
        }
    }

    /// Whether a client may name this server.
    pub fn may_name(&self, server: &Endpoint) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.lists(server))
    }

    /// Whether a client at `ip` may use this door.
    pub fn admits(&self, ip: IpAddr) -> bool {
        admits(self.clients.as_deref(), ip)
    }
}

impl PassThrough {
    /// Whether a client at `ip` may use this door.
    pub fn admits(&self, ip: IpAddr) -> bool {
        admits(self.clients.as_deref(), ip)
    }
}

impl Forward {
    /// Whether a client at `ip` may use this door.
    pub fn admits(&self, ip: IpAddr) -> bool {
        admits(self.clients.as_deref(), ip)
    }
}

/// Memory that the link needs for this number of peers.
pub fn memory_least(peers: usize) -> ByteCount {
    ByteCount::mebibytes(MEMORY_PER_PEER_MIB * peers.max(1) as u64)
}

/// Usual memory of the link. Fills 1 Gbit/s at 600 ms and 64 % loss (650 MB, docs/protocol.md) with room for a second peer.
pub const MEMORY_MAX: ByteCount = ByteCount::gibibytes(1);

/// Memory below which a connection cannot keep its windows and buffers.
pub const MEMORY_PER_PEER_MIB: u64 = 16;

/// Usual silence after which a session ends: longer than a router's restart.
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
