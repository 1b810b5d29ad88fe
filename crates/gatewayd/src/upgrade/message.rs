//! Messages between two processes of a gateway. Unknown fields are ignored, since the processes may
//! have different versions.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// A message of the old process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum PredecessorMessage {
    /// The names of the sockets that are attached to the message.
    Sockets(Vec<String>),
    /// All sockets have been sent.
    AllSockets,
    Go(HandoverMessage),
    Done,
    /// The old process continues alone, and does not need the new one.
    Abandoned,
}

/// A message of the new process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SuccessorMessage {
    Ready {
        pid: u32,
        version: String,
        /// The kernel tables that it keeps using.
        #[serde(default)]
        tables: Vec<String>,
    },
    /// The new process accepts clients, and reads the UDP socket.
    Up,
    /// The new process ends, for this reason.
    Failed(String),
}

/// State that the new process needs to start. Sockets to older processes are attached.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandoverMessage {
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

/// Clients of a pass-through listener. Older processes have their control connections, and any
/// process accepts their data connections.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PassThroughClients {
    pub(crate) listen: SocketAddr,
    pub(crate) clients: Vec<IpAddr>,
}
