//! What two processes of a gateway say to each other. Fields that one of them does not know are ignored: they may be of different
//! versions.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// What the old process says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromOld {
    /// The names of the sockets that come with the message.
    Sockets(Vec<String>),
    /// There are no more sockets.
    AllSockets,
    Go(Going),
    Done,
    /// It goes on by itself: the new process is not wanted.
    Abandoned,
}

/// What the new process says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromNew {
    Ready {
        pid: u32,
        version: String,
        /// The tables of the kernel that it goes on with.
        #[serde(default)]
        tables: Vec<String>,
    },
    /// It accepts clients, and reads the UDP socket.
    Up,
    /// It ends, for this reason.
    Failed(String),
}

/// What the new process needs to begin. With it come the ways to older processes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Going {
    /// See [`link::Succession`].
    pub(super) generation: u8,
    pub(super) instance: u64,
    pub(super) remembered: String,
    /// The generations of older processes, in the order of the sockets.
    pub(super) older: Vec<u8>,
    /// Names of the peers that the old process is connected to.
    #[serde(default)]
    pub(super) peers_up: Vec<String>,
    #[serde(default)]
    pub(super) pass_through: Vec<PassThroughClients>,
}

/// Clients of a door through which TLS passes: older processes have their control connections, and any process takes their
/// data connections.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PassThroughClients {
    pub(crate) listen: SocketAddr,
    pub(crate) clients: Vec<IpAddr>,
}
