//! Access to an SFTP server: its route, its user name, the credentials, and the check of the host
//! key.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use net::{Connection, pipe::PipeNetwork};

use crate::{
    location::Server,
    server::{GatewayListener, Password, ServerError, reach},
};

/// Parameters for connecting and logging in to an SFTP server.
#[derive(Debug, Clone, PartialEq)]
pub struct SftpDial {
    /// The server. Its scheme is [`Scheme::Sftp`](crate::location::Scheme::Sftp).
    pub server: Server,
    /// The user name at the server.
    pub user: String,
    /// Password of the user. `None` is sufficient for a log-in by a key.
    pub password: Option<Password>,
    /// The route to the server.
    pub route: SshRoute,
    /// Keys that may be offered.
    pub identity: SshIdentity,
    /// Check of the host key.
    pub host_keys: HostKeyRule,
    /// Longest time to wait for a connection or for a reply.
    pub reply_timeout: Duration,
    /// Longest time for which a transfer may make no progress.
    pub stall_max: Duration,
}

/// Route to an SFTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SshRoute {
    /// Directly, without a gateway.
    Direct,
    /// Through the SSH listener of a gateway.
    Gateway {
        /// The listener. Its `has_tls` has no meaning for SSH.
        listener: GatewayListener,
        /// Whether the listener leads to one fixed server. Otherwise, the user name at log-in names
        /// the server: `user%host:port`.
        has_fixed_server: bool,
    },
}

/// Keys with which the mover may log in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SshIdentity {
    /// Files with private keys, in the order of preference. Missing files are skipped.
    pub key_files: Vec<PathBuf>,
    /// Socket of the agent.
    pub agent: Option<PathBuf>,
    /// Whether agent keys are restricted. If true, a key of the agent is offered only if
    /// `key_files` contains its public key.
    pub has_only_key_files: bool,
}

/// Rule by which the host key of a server is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostKeyRule {
    /// The key is in a file of known hosts.
    Known(KnownHosts),
    /// The SHA-256 fingerprint of the only permitted key: `SHA256:...`.
    Pinned(String),
    /// Any key is trusted, because the SSH server is part of this process.
    Trusted,
}

/// Files of known hosts, in the format of OpenSSH.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownHosts {
    /// The files. Missing files have no entries.
    pub files: Vec<PathBuf>,
    /// Name of the server in the files, if it differs from the host.
    pub alias: Option<String>,
    /// Whether the mover trusts the key of a server that has no entry, and adds the key to the
    /// first file.
    pub accepts_new: bool,
    /// Fingerprint that the user has confirmed. If a server without an entry presents the key with
    /// this fingerprint, the key is trusted, and is added to the first file.
    pub confirmed: Option<String>,
}

impl KnownHosts {
    /// Returns whether an unknown key with this fingerprint is trusted.
    pub(super) fn accepts(&self, fingerprint: &str) -> bool {
        self.accepts_new || self.confirmed.as_deref() == Some(fingerprint)
    }
}

impl SftpDial {
    /// Returns the server and the route to it, for display.
    pub(crate) fn describe(&self) -> String {
        let server = format!("the server {}", self.server.place());
        match &self.route {
            SshRoute::Direct => server,
            SshRoute::Gateway { listener, .. } => {
                format!("{server} behind {}", listener.describe())
            }
        }
    }

    /// Returns whether the server is reached through a gateway.
    pub(crate) fn is_behind_gateway(&self) -> bool {
        matches!(self.route, SshRoute::Gateway { .. })
    }

    /// Returns the user name for the log-in. For a listener without a fixed server, the user name
    /// contains the name of the server.
    pub(super) fn log_in_name(&self) -> String {
        match &self.route {
            SshRoute::Gateway {
                has_fixed_server: false,
                ..
            } => format!("{}%{}", self.user, self.server.place()),
            _ => self.user.clone(),
        }
    }

    /// Returns host and port of the server, or of the listener through which it is reached.
    pub(super) fn next_hop(&self) -> (&str, u16) {
        match &self.route {
            SshRoute::Direct => (&self.server.host, self.server.port),
            SshRoute::Gateway { listener, .. } => (&listener.host, listener.port),
        }
    }

    fn network(&self) -> Option<&PipeNetwork> {
        match &self.route {
            SshRoute::Direct => None,
            SshRoute::Gateway { listener, .. } => listener.network.as_ref(),
        }
    }

    /// Connects to the server, or to the gateway through which the server is reached.
    pub(super) async fn connect(&self) -> Result<Connection, ServerError> {
        let (host, port) = self.next_hop();
        let Some(network) = self.network() else {
            let tcp = reach(host, port, self.reply_timeout).await?;
            return Ok(tcp.into());
        };
        let connected = match host.parse::<IpAddr>() {
            Ok(ip) => network.connect(SocketAddr::new(ip, port)),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidInput, error)),
        };
        let pipe = connected.map_err(|source| ServerError::Connect {
            host: host.to_owned(),
            port,
            source,
        })?;
        Ok(pipe.into())
    }
}
