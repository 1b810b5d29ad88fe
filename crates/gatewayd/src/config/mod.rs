//! The configuration of a gateway, read from a file and checked.
//!
//! Every error names the file, the line, the column and the expected form. An unknown key is an
//! error.

mod admin_token;
mod check;
mod check_admin;
mod check_folder;
mod check_limits;
mod check_log;
mod check_optimise;
mod check_pass_through;
mod check_spool;
mod check_ssh;
mod check_tls;
mod check_transparent;
mod file;
mod intercepted;
mod listener_keys;
mod peer_name;
mod problem;
mod registered;

use std::{
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    errno::Errno,
    unistd::{User, geteuid},
};
use rustls::pki_types::CertificateDer;

pub use self::{admin_token::AdminToken, peer_name::may_be_name};
pub(crate) use self::{check::RATE_MAX_MIN, intercepted::Intercepted};

use crate::register::Register;
use link::Policy;
use net::{target::Host, tls::CertSource};
pub use relay::settings::{
    Forward, FtpListener, ListenerTls, PassThrough, PeerOrigin, PeerSettings, RelaySettings,
};
use relay::{optimise, spool, transfer_log};
pub use ssh::{FarSsh, SshListener};

/// A checked configuration of a gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// File of the gateway's private key.
    pub key_file: PathBuf,
    /// Address and port of the link's UDP socket.
    pub link_listen: SocketAddr,
    /// Settings of the peers, the link and the limits.
    pub relay: RelaySettings,
    /// Time after a shutdown request within which open transfers may finish.
    pub drain_max: Duration,
    /// Time after an upgrade within which open transfers of the old process may finish. `None`
    /// means unlimited time.
    pub upgrade_drain_max: Option<Duration>,
    /// FTP listeners.
    pub ftp: Vec<FtpListener>,
    /// FTP listeners that forward the TLS connection between client and server without decryption.
    pub pass_through: Vec<PassThrough>,
    /// SSH listeners.
    pub ssh: Vec<SshListener>,
    /// Settings of this gateway's log-ins at SSH servers.
    pub far_ssh: FarSsh,
    /// Listeners for any other TCP service.
    pub forwards: Vec<Forward>,
    /// Folder for uploads that the gateway copies to several servers, if configured.
    pub spool: Option<spool::SpoolSettings>,
    /// Folder of the chunk stores, if configured.
    pub store: Option<optimise::StoresSettings>,
    /// The transfer log, if configured.
    pub transfer_log: Option<transfer_log::TransferLogSettings>,
    /// Log level. The command line and the environment override this value.
    pub log_level: LogLevel,
    /// Format of log messages. The command line overrides this value.
    pub log_format: LogFormat,
    /// Address of the admin interface.
    pub admin_listen: SocketAddr,
    /// Additional host names of the admin interface.
    pub admin_hosts: Vec<Host>,
    /// Token that permits use of the dashboard. With `None`, clients at a loopback address may read
    /// the dashboard, but see no names of users, files and clients.
    pub admin_token: Option<AdminToken>,
    /// The file with the dashboard's token.
    pub admin_token_file: Option<PathBuf>,
    /// Whether the file sets the admin address. If so, the gateway does not start when the port is
    /// in use.
    pub admin_explicit: bool,
    /// Path of the socket that accepts orders.
    pub admin_socket: PathBuf,
    /// Whether the file sets the admin socket. If so, the gateway does not start when the socket
    /// cannot be bound.
    pub admin_socket_explicit: bool,
    /// Settings of the dashboard over TLS. `None` if the file has no section `[admin.https]`.
    pub admin_https: Option<AdminHttps>,
}

/// Level of logging.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Only errors.
    Error,
    /// Errors and warnings.
    Warn,
    /// Errors, warnings and normal events.
    #[default]
    Info,
    /// All messages, including details for debugging.
    Debug,
}

impl LogLevel {
    /// Returns the level as text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// The format of log messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text for people.
    #[default]
    Text,
    /// Lines with one JSON object each.
    Json,
    /// Entries of the systemd journal.
    Journald,
}

/// Settings of the dashboard over TLS. This dashboard serves browsers on other machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminHttps {
    /// Address and port of the dashboard over TLS.
    pub listen: SocketAddr,
    /// Certificate that the dashboard sends to browsers.
    pub certificate: CertSource,
    /// Root certificates that verify client certificates. A client with a certificate from such a
    /// root needs no token. If there are no root certificates, the gateway requests no client
    /// certificate.
    pub client_ca: Vec<CertificateDer<'static>>,
}

/// A mistake in a configuration file, and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    file: PathBuf,
    /// Line and column of the mistake, both counted from 1. `None` if the file could not be read.
    at: Option<(usize, usize)>,
    message: String,
}

impl Config {
    /// Reads and checks a configuration file and its key file.
    ///
    /// # Errors
    /// [`ConfigError`] describes the first mistake.
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
    /// [`ConfigError`] describes the first mistake.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_beside(text, path, None)
    }

    /// Checks the text of the configuration file at `path`. Uses `register` instead of the register
    /// in the folder of the key file.
    ///
    /// # Errors
    /// [`ConfigError`] describes the first mistake.
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
        let file: file::File = toml::from_str(text).map_err(|error| {
            let message = error.message().replace('`', "\"");
            // The replaced text is that of the standard library's `AddrParseError`.
            let message = message.replace(
                "invalid socket address syntax",
                "expected ADDRESS:PORT, such as \"0.0.0.0:2121\"",
            );
            problem(error.span(), message)
        })?;
        check::check(file, path, register).map_err(|p| {
            let other = p.other.map(|other| {
                let (line, _) = place(text, other.span.start);
                format!(" (line {line}): {}", other.next_step)
            });
            problem(Some(p.span), p.message + &other.unwrap_or_default())
        })
    }

    /// Returns the root certificates that verify the dashboard's clients. If there are none, the
    /// gateway requests no client certificate.
    pub(crate) fn client_ca(&self) -> &[CertificateDer<'static>] {
        let https = self.admin_https.as_ref();
        https.map_or(&[], |https| &https.client_ca)
    }
}

impl Config {
    /// Returns the servers whose connections a transparent listener intercepts.
    pub(crate) fn intercepted(&self, listener: &FtpListener) -> Intercepted {
        let clients = listener.clients.as_deref().unwrap_or_default();
        Intercepted::new(&self.relay.peers, listener.via, listener.listen, clients)
    }
}

impl Config {
    /// Describes the source of the host keys of SSH servers. Returns `None` if all settings of
    /// `[far.ssh]` are defaults.
    fn ssh_servers(&self) -> Option<String> {
        let far = &self.far_ssh;
        let default = check_ssh::far(None, Path::new(""), &self.key_file);
        if default.is_ok_and(|default| default == *far) {
            return None;
        }
        let known_hosts = far.known_hosts.iter().map(|path| {
            let trust = match far.trust_on_first_use {
                true => ", with trust on first use",
                false => "",
            };
            format!("the host keys in {}{trust}", path.display())
        });
        let pin = far.host_key.iter().map(|pin| format!("the host key {pin}"));
        known_hosts.chain(pin).next()
    }
}

impl ConfigError {
    /// If the error states that the gateway may not read a file, adds the gateway's user to the
    /// text of the error. Only a process with the rights of the gateway's user may call this
    /// function.
    #[must_use]
    pub fn with_gateway_user(self) -> Self {
        Self {
            message: name_gateway_user(self.message),
            ..self
        }
    }
}

/// If the error states that this process may not read a file, adds the user of the process to the
/// message.
pub(crate) fn name_gateway_user(error: String) -> String {
    if !error.ends_with(&io::Error::from(Errno::EACCES).to_string()) {
        return error;
    }
    let uid = geteuid();
    let user = User::from_uid(uid).ok().flatten();
    let user = user.map_or_else(|| uid.to_string(), |it| it.name);
    format!(
        "{error}: the gateway runs as user {user}, who must be able to read it: chown this file to {user}, or permit \
         its group to read it"
    )
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
        writeln!(f, "key file {}", self.key_file.display())?;
        writeln!(f, "public key {}", self.relay.link.identity.public_key())?;
        write!(f, "link on {}, policy ", self.link_listen)?;
        match self.relay.link.policy {
            Policy::Fair => writeln!(f, "fair")?,
            Policy::Background => writeln!(f, "background")?,
            Policy::Reserved(rate) => writeln!(f, "reserved, {rate}")?,
        }
        for (peer, link) in self.relay.peers.iter().zip(&self.relay.link.peers) {
            let endpoint = link
                .endpoint
                .as_deref()
                .unwrap_or("no endpoint: it connects to this gateway");
            match peer.origin {
                PeerOrigin::File => writeln!(f, "peer {} ({endpoint})", peer.name)?,
                PeerOrigin::Register => writeln!(f, "peer {} ({endpoint}), registered", peer.name)?,
                PeerOrigin::Dismissed => {}
                PeerOrigin::Invite => writeln!(f, "invites: {}", link.public_keys.len())?,
            }
        }
        for listener in &self.ftp {
            let tls = match (&listener.tls, listener.tls_rules.is_required) {
                (ListenerTls::Off, _) => "",
                (ListenerTls::Explicit(_), true) => ", with required TLS",
                (ListenerTls::Explicit(_), false) => ", with optional TLS",
                (ListenerTls::Implicit(_), _) => ", with TLS from the first byte",
            };
            match &listener.target {
                Some(target) => writeln!(f, "ftp on {} to {target}{tls}", listener.listen)?,
                None if listener.transparent => {
                    let intercepted = self.intercepted(listener);
                    writeln!(f, "ftp on {} to {intercepted}{tls}", listener.listen)?;
                }
                None => writeln!(f, "ftp on {} to USER name@server{tls}", listener.listen)?,
            }
        }
        for listener in &self.pass_through {
            let PassThrough { listen, target, .. } = listener;
            let (low, high) = (listener.data_ports.start(), listener.data_ports.end());
            writeln!(
                f,
                "ftp on {listen} to {target}, TLS passed through, data on {low}-{high}"
            )?;
        }
        for listener in &self.ssh {
            let SshListener { listen, target, .. } = listener;
            match target {
                Some(target) => write!(f, "ssh on {listen} to {target}")?,
                None => write!(f, "ssh on {listen} to user%server")?,
            }
            writeln!(f, ", host key {}", listener.host_key_file.display())?;
        }
        if let Some(servers) = self.ssh_servers() {
            writeln!(f, "ssh servers by {servers}")?;
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
        write!(f, "admin socket {}", self.admin_socket.display())
    }
}

/// Returns the line and the column of a byte offset, both counted from 1. Columns count characters.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

#[cfg(test)]
mod reference_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
