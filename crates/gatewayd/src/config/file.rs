//! The configuration file as written: keys, and the shapes of their values. This module makes no
//! checks across keys.
//!
//! The keys are a contract. Tables in `docs/configuration.md` have the type and the doc comment of
//! each key; `cargo xtask book --write` makes them. A value whose check needs a second value
//! carries its position in the file.

use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Deserializer, de::Error};
use toml::Spanned;
use units::{BitRate, ByteCount};

use net::target::{AllowEntry, HostPort, Network, ServesPattern};

/// All keys of the file, by section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// The gateway's own key pair.
    pub(super) identity: IdentitySection,
    /// The encrypted link to all peers.
    #[serde(default)]
    pub(super) link: LinkSection,
    /// Gateways that may connect to this one.
    #[serde(default, rename = "peer")]
    pub(super) peers: Vec<PeerSection>,
    /// Listeners for FTP clients.
    #[serde(default, rename = "ftp")]
    pub(super) ftp: Vec<FtpSection>,
    /// Listeners for SSH clients: SFTP, scp, rsync and shells.
    #[serde(default)]
    pub(super) ssh: Vec<SshSection>,
    /// Listeners for any other TCP service.
    #[serde(default, rename = "forward")]
    pub(super) forwards: Vec<ForwardSection>,
    /// Servers that peers may reach through this gateway.
    #[serde(default)]
    pub(super) far: FarSection,
    /// Limits of clients.
    #[serde(default)]
    pub(super) limits: LimitsSection,
    /// Folder for files that several servers receive.
    pub(super) spool: Option<SpoolSection>,
    /// Folder for chunks that have crossed the link.
    pub(super) store: Option<StoreSection>,
    /// Log messages and the transfer log.
    #[serde(default)]
    pub(super) log: LogSection,
    /// Dashboard, status pages and the admin socket.
    pub(super) admin: Option<AdminSection>,
}

/// Keys of `[identity]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IdentitySection {
    /// File of the private key. The file must not be readable for its group or for others.
    pub(super) key_file: Spanned<PathBuf>,
}

/// Keys of `[link]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkSection {
    /// Address and UDP port of the link.
    ///
    /// Default: `"0.0.0.0:4810"`.
    pub(super) listen: Option<SocketAddr>,
    /// Behaviour towards other traffic on the path.
    ///
    /// Values: `"fair"`, `"background"`, `"reserved"`.
    /// Default: `"fair"`.
    pub(super) policy: Option<Spanned<String>>,
    /// Rate that `policy = "reserved"` always keeps.
    pub(super) rate_reserved: Option<Spanned<BitRate>>,
    /// Upper bound on the rate of this gateway to all peers together.
    pub(super) rate_max: Option<Spanned<BitRate>>,
    /// Memory of the link's buffers, at least 16 MiB for each peer. The SSH sessions share a second
    /// budget of this size.
    ///
    /// Default: `"1 GiB"`.
    pub(super) memory_max: Option<Spanned<ByteCount>>,
    /// Time without a packet from a peer after which the peer's transfers end.
    ///
    /// Default: `"10 min"`.
    #[serde(default, deserialize_with = "duration")]
    pub(super) idle_timeout: Option<Spanned<Duration>>,
    /// Time for open transfers to end at a shutdown.
    ///
    /// Default: `"10 s"`.
    #[serde(default, deserialize_with = "duration")]
    pub(super) drain_max: Option<Spanned<Duration>>,
    /// Time for open transfers of the replaced process to end after an upgrade.
    ///
    /// Default: unlimited.
    #[serde(default, deserialize_with = "duration")]
    pub(super) upgrade_drain_max: Option<Spanned<Duration>>,
}

/// Keys of a `[[peer]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerSection {
    /// Name of the peer in logs, in replies and in `via`.
    pub(super) name: Spanned<String>,
    /// Public key of the peer, or a list of keys while the key is changed.
    pub(super) public_key: Spanned<OneOrMore>,
    /// Address or name of the peer, with its UDP port.
    ///
    /// Default: none: this gateway waits for the peer.
    pub(super) endpoint: Option<Spanned<String>>,
    /// Servers behind the peer: names, `*.example.com`, addresses, networks.
    ///
    /// Default: all servers.
    pub(super) serves: Option<Vec<ServesPattern>>,
    /// Servers that this peer may reach through this gateway.
    ///
    /// Default: `allow` of `[far]`.
    pub(super) allow: Option<Vec<AllowEntry>>,
    /// Upper bound on the rate between this gateway and the peer, for each direction.
    pub(super) rate_max: Option<Spanned<BitRate>>,
    /// Compression of data to this peer.
    ///
    /// Values: `"auto"`, `"off"`.
    /// Default: `"auto"`.
    pub(super) compress: Option<Spanned<String>>,
    /// Storage of chunks of this peer's data.
    ///
    /// Values: `"auto"`, `"off"`.
    /// Default: `"auto"`.
    pub(super) dedup: Option<Spanned<String>>,
    /// Names of tenants, the same at both gateways.
    #[serde(default)]
    pub(super) tenants: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a public key, or a list of public keys")]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Keys of an `[[ftp]]` listener.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FtpSection {
    /// Address and port for clients.
    pub(super) listen: Spanned<SocketAddr>,
    /// FTP server behind the peer.
    ///
    /// Default: the client names the server.
    pub(super) target: Option<Spanned<HostPort>>,
    /// Networks whose clients are served.
    ///
    /// Default: private ranges; required without `target`.
    pub(super) clients: Option<Vec<Network>>,
    /// Servers that clients may name, for a listener without `target`.
    ///
    /// Default: all servers that peers serve.
    pub(super) allow: Option<Spanned<Vec<AllowEntry>>>,
    /// Name of the peer that reaches the server.
    ///
    /// Default: chosen by `serves`.
    pub(super) via: Option<Spanned<String>>,
    /// Saving of round trips.
    ///
    /// Values: `"fast"`, `"strict"`.
    /// Default: `"fast"`.
    pub(super) mode: Option<Spanned<String>>,
    /// Interception of connections to the servers' own addresses.
    ///
    /// Default: `false`.
    pub(super) transparent: Option<Spanned<bool>>,
    /// Ports for data connections of clients, such as `"30000-30999"`.
    ///
    /// Default: chosen by the system.
    pub(super) passive_ports: Option<Spanned<String>>,
    /// Address in replies to `PASV`, for a gateway behind address translation.
    ///
    /// Default: the address that the client has connected to.
    pub(super) external_address: Option<Spanned<std::net::IpAddr>>,
    /// Method by which data connections between the far gateway and the server are opened.
    ///
    /// Values: `"passive"`, `"active"`.
    /// Default: `"passive"`.
    pub(super) server_data: Option<Spanned<String>>,
    /// TLS with the clients.
    ///
    /// Default: off.
    pub(super) tls: Option<TlsSection>,
    /// TLS between the far gateway and the server.
    ///
    /// Default: off.
    pub(super) server_tls: Option<ServerTlsSection>,
    /// Compression of data on the link.
    ///
    /// Values: `"auto"`, `"off"`.
    /// Default: `"auto"`; with `tls` `"off"`.
    pub(super) compress: Option<Spanned<String>>,
    /// Deduplication of uploads by the chunk stores.
    ///
    /// Values: `"auto"`, `"off"`.
    /// Default: `"auto"`; with `tls` `"off"`.
    pub(super) dedup: Option<Spanned<String>>,
    /// Owner of the data, as one of the peer's `tenants`.
    pub(super) tenant: Option<Spanned<String>>,
    /// Deduplication of downloads by the chunk stores.
    ///
    /// Default: as `dedup`.
    pub(super) cache: Option<Spanned<bool>>,
    /// Permission of `compress` and `dedup` at a listener with `tls`.
    ///
    /// Default: `false`.
    pub(super) optimise_tls: Option<Spanned<bool>>,
}

/// Keys of `tls` at an `[[ftp]]` listener.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsSection {
    /// Moment at which TLS with a client starts.
    ///
    /// Values: `"off"`, `"explicit"`, `"implicit"`, `"pass-through"`.
    pub(super) mode: Spanned<String>,
    /// Certificate of the listener with its chain, in PEM.
    ///
    /// Default: self-signed.
    pub(super) cert_file: Option<Spanned<PathBuf>>,
    /// Private key of the certificate in PEM. The file must not be readable for users outside its
    /// group.
    ///
    /// Default: self-signed.
    pub(super) key_file: Option<Spanned<PathBuf>>,
    /// Refusal of log-ins and data without TLS.
    ///
    /// Default: `false`.
    pub(super) required: Option<Spanned<bool>>,
    /// Lowest version of TLS.
    ///
    /// Values: `"1.2"`, `"1.3"`.
    /// Default: `"1.2"`.
    pub(super) min_version: Option<Spanned<String>>,
    /// Root certificates in PEM that verify certificates of clients.
    ///
    /// Default: none: clients need no certificate.
    pub(super) client_roots_file: Option<Spanned<PathBuf>>,
    /// Refusal of data connections that do not resume the TLS session of their control connection.
    ///
    /// Default: `true`.
    pub(super) require_reuse: Option<Spanned<bool>>,
}

/// Keys of `server_tls` at an `[[ftp]]` listener.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTlsSection {
    /// Beginning of TLS with the server.
    ///
    /// Values: `"off"`, `"explicit"`, `"implicit"`.
    pub(super) mode: Spanned<String>,
    /// Root certificates in PEM that verify the server's certificate.
    ///
    /// Default: the far gateway's system.
    pub(super) roots_file: Option<Spanned<PathBuf>>,
    /// Verification of the server's certificate.
    ///
    /// Default: `true`.
    pub(super) verify: Option<Spanned<bool>>,
    /// SHA-256 of the server's certificate, in place of root certificates.
    pub(super) pin: Option<Spanned<String>>,
}

/// Keys of an `[[ssh]]` listener.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SshSection {
    /// Address and port for clients.
    pub(super) listen: Spanned<SocketAddr>,
    /// SSH server behind the peer.
    ///
    /// Default: the client names the server.
    #[serde(default, deserialize_with = "ssh_target")]
    pub(super) target: Option<Spanned<HostPort>>,
    /// File of the host key that clients see; the gateway makes a missing file.
    ///
    /// Default: `ssh_host_ed25519` beside `key_file`.
    pub(super) host_key: Option<Spanned<PathBuf>>,
    /// Networks whose clients are served.
    ///
    /// Default: private ranges; required without `target`.
    pub(super) clients: Option<Vec<Network>>,
    /// Name of the peer that reaches the server.
    ///
    /// Default: chosen by `serves`.
    pub(super) via: Option<Spanned<String>>,
    /// Early replies to the writes of an SFTP upload, before the server's answers.
    ///
    /// Values: `"off"`, `"held"`, `"all"`.
    /// Default: `"held"`.
    pub(super) early: Option<Spanned<String>>,
    /// Methods of a log-in by public key; an empty list permits none.
    ///
    /// Values: list of `"agent"`, `"key"`, `"certificate"`.
    /// Default: `["agent"]`.
    pub(super) public_key: Option<Spanned<Vec<Spanned<String>>>>,
    /// Kinds of channels that clients may open.
    ///
    /// Values: list of `"sftp"`, `"exec"`, `"shell"`.
    /// Default: `["sftp", "exec", "shell"]`.
    pub(super) channels: Option<Spanned<Vec<Spanned<String>>>>,
    /// Compression of data on the link, except for shells and terminals.
    ///
    /// Values: `"auto"`, `"off"`.
    /// Default: `"off"`.
    pub(super) compress: Option<Spanned<String>>,
    /// Deduplication of uploads by the chunk stores, except for shells and terminals.
    ///
    /// Values: `"auto"`, `"off"`.
    /// Default: `"off"`.
    pub(super) dedup: Option<Spanned<String>>,
    /// Owner of the data, as one of the peer's `tenants`.
    pub(super) tenant: Option<Spanned<String>>,
    /// Deduplication of downloads by the chunk stores, except for shells and terminals.
    ///
    /// Default: as `dedup`.
    pub(super) cache: Option<Spanned<bool>>,
}

/// Keys of a `[[forward]]` listener.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForwardSection {
    /// Address and port for clients.
    pub(super) listen: Spanned<SocketAddr>,
    /// Server behind the peer, with its port.
    pub(super) target: Spanned<HostPort>,
    /// Networks whose clients are served; connections of others are reset.
    ///
    /// Default: private ranges.
    pub(super) clients: Option<Vec<Network>>,
    /// Name of the peer that reaches the server.
    ///
    /// Default: chosen by `serves`.
    pub(super) via: Option<Spanned<String>>,
    /// Compression of data on the link.
    ///
    /// Values: `"auto"`, `"off"`.
    /// Default: `"off"`.
    pub(super) compress: Option<Spanned<String>>,
}

/// Keys of `[far]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FarSection {
    /// Servers that this gateway connects to for its peers.
    ///
    /// Default: none: no server.
    #[serde(default)]
    pub(super) allow: Vec<AllowEntry>,
    /// Log-ins of this gateway at SSH servers.
    pub(super) ssh: Option<FarSshSection>,
}

/// Keys of `[far.ssh]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FarSshSection {
    /// File with the host keys of servers, in the format of OpenSSH.
    ///
    /// Default: `ssh_known_hosts` beside `key_file`.
    pub(super) known_hosts: Option<Spanned<PathBuf>>,
    /// Fingerprint of the only permitted host key. Not permitted together with `known_hosts`.
    pub(super) host_key: Option<Spanned<String>>,
    /// Folder with a private key for each user, for `public_key = ["key"]`.
    pub(super) user_keys: Option<Spanned<PathBuf>>,
    /// Private key of the CA for certificates of users, for `public_key = ["certificate"]`.
    pub(super) user_ca: Option<Spanned<PathBuf>>,
    /// Command that replaces every program of a user with a certificate, such as
    /// `"internal-sftp"`.
    ///
    /// Default: none: all programs are permitted.
    pub(super) user_ca_force_command: Option<Spanned<String>>,
    /// Addition of the first host key of a server to `known_hosts`.
    ///
    /// Default: `false`.
    pub(super) trust_on_first_use: Option<Spanned<bool>>,
}

/// Keys of `[limits]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsSection {
    /// Maximum number of control connections; further clients get `421`.
    ///
    /// Default: a half of the streams.
    pub(super) sessions_max: Option<Spanned<NonZeroUsize>>,
    /// Maximum number of control connections and forwards of one client; further connections get
    /// `421`, or are reset.
    ///
    /// Default: `1000`.
    pub(super) sessions_per_client_max: Option<NonZeroUsize>,
    /// Maximum number of data connections; further transfers get `425`.
    ///
    /// Default: three eighths of the streams.
    pub(super) transfers_max: Option<Spanned<NonZeroUsize>>,
    /// Maximum number of connections of `[[forward]]` listeners; further connections are reset.
    ///
    /// Default: an eighth of the streams.
    pub(super) forwards_max: Option<Spanned<NonZeroUsize>>,
    /// Maximum number of refused log-ins of one client in a minute; the client then gets `421` for
    /// a minute.
    ///
    /// Default: `20`.
    pub(super) failed_logins_per_minute_max: Option<NonZeroU32>,
    /// Maximum time for the log-in of a client; the client then gets `421`.
    ///
    /// Default: `"5 min"`.
    #[serde(default, deserialize_with = "duration")]
    pub(super) login_timeout: Option<Spanned<Duration>>,
    /// Maximum time of a control connection without a command or a transfer; the client then gets
    /// `421`.
    ///
    /// Default: `"1 h"`.
    #[serde(default, deserialize_with = "duration")]
    pub(super) idle_timeout: Option<Spanned<Duration>>,
    /// Maximum time of a data connection without a byte; the connection is then reset.
    ///
    /// Default: `"1 h"`.
    #[serde(default, deserialize_with = "duration")]
    pub(super) stall_timeout: Option<Spanned<Duration>>,
}

/// Keys of `[spool]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpoolSection {
    /// Folder for files that several servers receive.
    pub(super) folder: Spanned<PathBuf>,
    /// Maximum size of all files in the folder, at least 64 MiB.
    ///
    /// Default: `"8 GiB"`.
    pub(super) size_max: Option<Spanned<ByteCount>>,
}

/// Keys of `[store]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreSection {
    /// Folder for chunks that have crossed the link.
    pub(super) folder: Spanned<PathBuf>,
    /// Maximum size of the chunks of each peer and tenant, at least 64 MiB.
    ///
    /// Default: `"8 GiB"`.
    pub(super) size_max: Option<Spanned<ByteCount>>,
}

/// Keys of `[log]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogSection {
    /// Lowest level of logged messages.
    ///
    /// Values: `"error"`, `"warn"`, `"info"`, `"debug"`.
    /// Default: `"info"`.
    pub(super) level: Option<Spanned<String>>,
    /// Form of log messages.
    ///
    /// Values: `"text"`, `"json"`, `"journald"`.
    /// Default: `"text"`.
    pub(super) format: Option<Spanned<String>>,
    /// File that gets a line for each FTP transfer.
    pub(super) transfer_log: Option<PathBuf>,
    /// Form of the lines in the transfer log.
    ///
    /// Values: `"json"`, `"xferlog"`.
    /// Default: `"json"`.
    pub(super) transfer_log_format: Option<Spanned<String>>,
}

/// Keys of `[admin]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdminSection {
    /// Address and port of the dashboard and the status pages.
    ///
    /// Default: `"127.0.0.1:9810"`.
    pub(super) listen: Option<SocketAddr>,
    /// Further host names that requests may have in `Host`.
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<String>>,
    /// File with the token of the dashboard. The file must not be readable for its group or for
    /// others.
    pub(super) token_file: Option<Spanned<PathBuf>>,
    /// Path of the admin socket.
    ///
    /// Default: for the service `/run/longhaul/admin.sock`, otherwise `KEY_FILE.admin.sock`.
    pub(super) socket: Option<PathBuf>,
    /// Dashboard over TLS for browsers on other machines.
    ///
    /// Default: off.
    pub(super) https: Option<HttpsSection>,
}

/// Keys of `[admin.https]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpsSection {
    /// Address and port of the dashboard over TLS.
    pub(super) listen: Spanned<SocketAddr>,
    /// Certificate of the dashboard with its chain, in PEM.
    ///
    /// Default: self-signed.
    pub(super) certificate: Option<Spanned<PathBuf>>,
    /// Private key of the certificate in PEM. The file must not be readable for users outside its
    /// group.
    ///
    /// Default: self-signed.
    pub(super) key: Option<Spanned<PathBuf>>,
    /// CA certificates in PEM; a client with a certificate of such a CA needs no token.
    ///
    /// Default: none: clients need no certificate.
    pub(super) client_ca: Option<Spanned<PathBuf>>,
}

/// Reads the target of an SSH listener, with its position in the file.
fn ssh_target<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Spanned<HostPort>>, D::Error> {
    let spanned = Spanned::<String>::deserialize(deserializer)?;
    let (span, text) = (spanned.span(), spanned.into_inner());
    match HostPort::parse_ssh(&text) {
        Ok(target) => Ok(Some(Spanned::new(span, target))),
        Err(error) => Err(Error::custom(error)),
    }
}

/// Reads a duration above zero, with its position in the file.
fn duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Spanned<Duration>>, D::Error> {
    let spanned = Spanned::<String>::deserialize(deserializer)?;
    let (span, text) = (spanned.span(), spanned.into_inner());
    match units::parse_duration(&text) {
        Ok(Duration::ZERO) => Err(Error::custom(format!("{text:?} is not above zero"))),
        Ok(time) => Ok(Some(Spanned::new(span, time))),
        Err(error) => Err(Error::custom(error)),
    }
}
