//! Settings of SSH listeners, and of the far gateway for SSH servers. All values are already
//! checked.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use net::target::{HostPort, Network};
use relay::settings::{ListenerCoding, admits};
use sftp::EarlyReplies;

/// Settings of one SSH listener.
#[derive(Debug, Clone, PartialEq)]
pub struct SshListener {
    /// Address on which the gateway listens for clients.
    pub listen: SocketAddr,
    /// Server of all clients. `None` if each client names its server in the user name:
    /// `user%host[:port]` or `user+host[:port]`.
    pub target: Option<HostPort>,
    /// Networks of the permitted clients. `None` stands for loopback, private and link-local
    /// addresses.
    pub clients: Option<Vec<Network>>,
    /// Index of the peer in the settings of the relay. If the value is `None`, the `serves`
    /// settings of the peers select the peer.
    pub via: Option<usize>,
    /// File with the host key that the gateway presents to clients.
    pub host_key_file: PathBuf,
    /// Rule by which the gateway sends early replies to uploads by SFTP.
    pub early: EarlyReplies,
    /// Ways in which the gateway logs in at the server for a client with a public key, in the order
    /// of preference.
    pub public_key: Vec<PublicKeyWay>,
    /// Kinds of channels that clients may open.
    pub channels: Vec<ChannelKind>,
    /// Coding of the data of channels without a terminal.
    pub coding: ListenerCoding,
}

/// Way in which the gateway logs in at a server for a client that has proved its public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PublicKeyWay {
    /// The agent that the client forwards signs the log-in at the server.
    Agent,
    /// The far gateway has a private key for each user.
    Key,
    /// The far gateway issues a certificate that is valid for two minutes.
    Certificate,
}

/// Kind of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// The subsystem `sftp`.
    Sftp,
    /// A command.
    Exec,
    /// A shell.
    Shell,
}

/// Settings of the far gateway for SSH servers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FarSsh {
    /// File with the host keys of servers, in the format of OpenSSH.
    pub known_hosts: Option<PathBuf>,
    /// SHA-256 fingerprint of the only permitted host key: `SHA256:...`.
    pub host_key: Option<String>,
    /// Folder with a private key for each user. The name of a file is the name of the user.
    pub user_keys: Option<PathBuf>,
    /// File with the private key of the certificate authority for users.
    pub user_ca: Option<PathBuf>,
    /// Command that the server runs in place of every program of a user who logs in by a
    /// certificate. `None` permits all programs.
    pub user_ca_force_command: Option<String>,
    /// Whether the gateway trusts the first host key of a server without an entry in `known_hosts`.
    /// If so, the gateway appends this host key to `known_hosts`.
    pub trust_on_first_use: bool,
}

impl SshListener {
    /// Returns the settings of a listener at `listen` for clients within this process. The peer
    /// with the index `via` leads to all servers. Clients name their servers, and forward an agent.
    pub fn within_process(listen: SocketAddr, via: usize) -> Self {
        Self {
            listen,
            target: None,
            clients: None,
            via: Some(via),
            host_key_file: PathBuf::new(),
            early: EarlyReplies::Held,
            public_key: vec![PublicKeyWay::Agent],
            channels: vec![ChannelKind::Sftp],
            coding: ListenerCoding {
                compresses: true,
                deduplicates: true,
                caches: true,
                tenant: None,
            },
        }
    }

    /// Whether clients with the address `ip` may use this listener.
    pub fn admits(&self, ip: IpAddr) -> bool {
        admits(self.clients.as_deref(), ip)
    }
}
