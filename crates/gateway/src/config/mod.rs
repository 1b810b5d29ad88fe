//! The configuration: read once, checked once, and valid from then on.
//!
//! Every error names the file, the line, the column and the expected form. A key that is not known is such an error.

mod admin_token;
mod check;
mod check_admin;
mod check_folder;
mod check_limits;
mod check_log;
mod check_optimise;
mod check_pass_through;
mod check_spool;
mod check_tls;
mod check_transparent;
mod door_keys;
mod file;
mod intercepted;
mod peer_name;
mod problem;
mod registered;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use ftp::session::{Mode, far::DataWay, near::ClientTls};
use link::{PeerId, PublicKey};
use rustls::pki_types::CertificateDer;

pub use self::{admin_token::AdminToken, peer_name::may_be_name};
pub(crate) use self::{
    check::{RATE_MAX_MIN, memory_least},
    intercepted::{FTP_PORT, Intercepted},
};

use crate::{limits::Limits, optimise, register::Register, spool, transfer_log, wire::Coding};
use net::{
    target::{AllowList, Endpoint, Host, Network, ServesPattern},
    tls::{self, CertSource, ServerTls},
};

/// A checked configuration of a gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file of the private key.
    pub key_file: PathBuf,
    /// Address and port of the link's UDP socket.
    pub link_listen: SocketAddr,
    /// Settings of the link: identity, peers, policy, limits. The peers are in file order.
    pub link: link::LinkConfig,
    /// The gateway's own settings of each peer of `link`, in the same order.
    pub peers: Vec<Peer>,
    /// Time for transfers under way to end at a shutdown.
    pub drain_max: Duration,
    /// Time for them to end once another process has taken this one's place; `None`: as long as they take.
    pub upgrade_drain_max: Option<Duration>,
    /// FTP front doors.
    pub ftp: Vec<FtpDoor>,
    /// FTP front doors through which clients and servers have TLS with each other.
    pub pass_through: Vec<PassThrough>,
    /// Front doors for any other TCP service.
    pub forwards: Vec<Forward>,
    /// Limits on what clients use.
    pub limits: Limits,
    /// Where files wait that several servers are to have, if this gateway is to keep some.
    pub spool: Option<spool::Settings>,
    /// Where chunks are kept that have crossed the link, if this gateway is to keep them.
    pub store: Option<optimise::Settings>,
    /// The transfer log, if there is to be one.
    pub transfer_log: Option<transfer_log::Settings>,
    /// What is logged, unless the command line or the environment says so.
    pub log_level: Option<LogLevel>,
    /// The form of the log, unless the command line says so.
    pub log_format: Option<LogFormat>,
    /// Address of the admin interface.
    pub admin_listen: SocketAddr,
    /// Further names under which the admin interface is asked.
    pub admin_hosts: Vec<Host>,
    /// Who has this token may use the dashboard; `None`: whoever reaches a loopback address may look, and sees no names.
    pub admin_token: Option<AdminToken>,
    /// The file with this token.
    pub admin_token_file: Option<PathBuf>,
    /// The file names the admin address, so its port being taken is an error.
    pub admin_explicit: bool,
    /// Where the gateway takes orders.
    pub admin_socket: PathBuf,
    /// The file names the admin socket, so a failure to bind it is an error.
    pub admin_socket_explicit: bool,
    /// The dashboard over TLS, if there is to be one.
    pub admin_https: Option<AdminHttps>,
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
    /// The peer to go through, an index into [`Config::peers`]; `None`: chosen by `serves`.
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

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

impl LogLevel {
    /// As text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// The form of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object on each line.
    Json,
    /// Entries of the systemd journal.
    Journald,
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

/// The dashboard for browsers on other machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminHttps {
    /// Its address.
    pub listen: SocketAddr,
    /// By what browsers know it.
    pub certificate: CertSource,
    /// Who has a certificate that one of these signed needs no token. None of them: nobody is asked for one.
    pub client_ca: Vec<CertificateDer<'static>>,
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

/// A mistake in a configuration file and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    file: PathBuf,
    /// Line and column, both from 1; `None` when the file could not be read.
    at: Option<(usize, usize)>,
    message: String,
}

impl Config {
    /// Reads and checks a configuration file and the key file that it names.
    ///
    /// # Errors
    /// [`ConfigError`] with the first mistake.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            file: path.to_owned(),
            at: None,
            message: format!("cannot be read: {error}"),
        })?;
        Self::parse(&text, path)
    }

    /// Checks the text of the configuration file at `path`.
    ///
    /// # Errors
    /// [`ConfigError`] with the first mistake.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_beside(text, path, None)
    }

    /// The same, with this register in place of the one beside the key.
    ///
    /// # Errors
    /// [`ConfigError`] with the first mistake.
    pub fn parse_with(text: &str, path: &Path, register: &Register) -> Result<Self, ConfigError> {
        Self::parse_beside(text, path, Some(register))
    }

    fn parse_beside(
        text: &str,
        path: &Path,
        register: Option<&Register>,
    ) -> Result<Self, ConfigError> {
        let problem = |span: Option<std::ops::Range<usize>>, message: String| ConfigError {
            file: path.to_owned(),
            at: Some(place(text, span.map_or(0, |s| s.start))),
            message,
        };
        let file: file::File = toml::from_str(text)
            .map_err(|error| problem(error.span(), error.message().replace('`', "\"")))?;
        check::check(file, path, register).map_err(|p| problem(Some(p.span), p.message))
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
    pub(crate) fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.id == id)
    }

    /// By what people's certificates are judged at the dashboard. None: nobody is asked for one.
    pub(crate) fn client_ca(&self) -> &[CertificateDer<'static>] {
        let https = self.admin_https.as_ref();
        https.map_or(&[], |https| &https.client_ca)
    }

    /// Whether bytes of a door that compresses or not are compressed on the way to `peer`.
    pub(crate) fn compresses(&self, peer: PeerId, door_compresses: bool) -> bool {
        door_compresses && self.peer(peer).is_some_and(|peer| peer.compresses)
    }

    /// The part of what `peer` offers for a forward that this gateway does, too.
    pub(crate) fn coding_with(&self, peer: PeerId, offer: &Coding) -> Coding {
        Coding {
            compresses: self.compresses(peer, offer.compresses),
            store: None,
        }
    }

    /// A peer, and the first of its keys.
    pub(crate) fn peer_and_key(&self, id: PeerId) -> Option<(&Peer, &PublicKey)> {
        let mut peers = self.peers.iter().zip(&self.link.peers);
        let (peer, of_link) = peers.find(|(peer, _)| peer.id == id)?;
        Some((peer, of_link.public_keys.first()?))
    }

    /// Where this configuration says that a peer listens.
    pub(crate) fn endpoint_of(&self, id: PeerId) -> Option<&str> {
        let mut peers = self.peers.iter().zip(&self.link.peers);
        let (_, of_link) = peers.find(|(peer, _)| peer.id == id)?;
        of_link.endpoint.as_deref()
    }
}

impl Config {
    /// The servers that a transparent front door intercepts.
    pub(crate) fn intercepted(&self, door: &FtpDoor) -> Intercepted {
        let clients = door.clients.as_deref().unwrap_or_default();
        Intercepted::new(&self.peers, door.via, door.listen, clients)
    }
}

impl FtpDoor {
    /// The server for a client that connected to `local`, unless the client has to name it.
    pub(crate) fn target_of(&self, local: SocketAddr) -> Option<Endpoint> {
        let original = Endpoint {
            host: Host::Ip(local.ip()),
            port: local.port(),
        };
        let is_server = self.transparent && local.port() == FTP_PORT;
        self.target.clone().or(is_server.then_some(original))
    }

    /// TLS with the clients, for the session's state machine.
    pub(crate) fn client_tls(&self) -> ClientTls {
        let is_required = self.tls_rules.is_required;
        match &self.tls {
            DoorTls::Implicit(_) => ClientTls::Implicit { is_required },
            DoorTls::Explicit(_) => ClientTls::Explicit { is_required },
            DoorTls::Off => ClientTls::Off,
        }
    }

    /// Whether a client may name this server.
    pub(crate) fn may_name(&self, server: &Endpoint) -> bool {
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

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some((line, column)) => {
                write!(
                    f,
                    "{}:{line}:{column}: {}",
                    self.file.display(),
                    self.message
                )
            }
            None => write!(f, "{}: {}", self.file.display(), self.message),
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "key_file {} (***)", self.key_file.display())?;
        writeln!(f, "public key {}", self.link.identity.public_key())?;
        writeln!(f, "link on {}, {:?}", self.link_listen, self.link.policy)?;
        for (peer, link) in self.peers.iter().zip(&self.link.peers) {
            let endpoint = link.endpoint.as_deref().unwrap_or("waits for it");
            match peer.origin {
                Origin::File => writeln!(f, "peer {} ({endpoint})", peer.name)?,
                Origin::Register => writeln!(f, "peer {} ({endpoint}), registered", peer.name)?,
                Origin::Dismissed => {}
                Origin::Invite => writeln!(f, "invites: {}", link.public_keys.len())?,
            }
        }
        for door in &self.ftp {
            let tls = match (&door.tls, door.tls_rules.is_required) {
                (DoorTls::Off, _) => "",
                (DoorTls::Explicit(_), true) => ", with TLS, which clients must ask for",
                (DoorTls::Explicit(_), false) => ", with TLS for clients that ask for it",
                (DoorTls::Implicit(_), _) => ", with TLS from the first byte",
            };
            match &door.target {
                Some(target) => writeln!(f, "ftp on {} to {target}{tls}", door.listen)?,
                None if door.transparent => {
                    let intercepted = self.intercepted(door);
                    writeln!(f, "ftp on {} to {intercepted}{tls}", door.listen)?;
                }
                None => writeln!(f, "ftp on {} to USER name@server{tls}", door.listen)?,
            }
        }
        for door in &self.pass_through {
            let PassThrough { listen, target, .. } = door;
            let (low, high) = (door.data_ports.start(), door.data_ports.end());
            writeln!(
                f,
                "ftp on {listen} to {target}, unread, data on {low}-{high}"
            )?;
        }
        for forward in &self.forwards {
            writeln!(f, "forward on {} to {}", forward.listen, forward.target)?;
        }
        if let Some(log) = &self.transfer_log {
            writeln!(f, "transfer log in {}", log.path.display())?;
        }
        if let Some(spool) = &self.spool {
            writeln!(
                f,
                "spool in {}, at most {}",
                spool.folder.display(),
                spool.size_max
            )?;
        }
        if let Some(store) = &self.store {
            writeln!(
                f,
                "chunk stores in {}, at most {} for each peer and tenant",
                store.folder.display(),
                store.size_max
            )?;
        }
        if let Some(https) = &self.admin_https {
            writeln!(f, "dashboard on https://{}", https.listen)?;
        }
        let token = match self.admin_token {
            Some(_) => ", with a token",
            None => "",
        };
        writeln!(f, "admin on {}{token}", self.admin_listen)?;
        write!(f, "orders by {}", self.admin_socket.display())
    }
}

/// Line and column of a byte offset, both from 1; columns count characters.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
