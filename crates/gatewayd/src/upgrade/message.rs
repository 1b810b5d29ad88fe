//! Messages between an old and a new process of a gateway. The processes may have different
//! versions, so a receiver ignores unknown fields.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// A message from the old process to the new process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum PredecessorMessage {
    /// Names of the sockets that are attached to this message.
    Sockets(Vec<String>),
    /// The end of the list of sockets.
    AllSockets,
    Go(HandoverMessage),
    Done,
    /// The old process continues to serve. The new process must end.
    Abandoned,
}

/// A message from the new process to the old process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SuccessorMessage {
    Ready {
        pid: u32,
        version: String,
        /// Version and commit of the new process.
        #[serde(default)]
        build: String,
        /// Names of the kernel tables that the new process continues to use.
        #[serde(default)]
        tables: Vec<String>,
    },
    /// The new process accepts clients, and reads the UDP socket.
    Up,
    /// The new process ends for the given reason.
    Failed(String),
}

/// State that the new process needs to start. The sockets to older processes are attached to this
/// message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandoverMessage {
    /// Generation number of the new process, as in [`link::LinkHandover`].
    pub(super) generation: u8,
    pub(super) instance: u64,
    pub(super) remembered: String,
    /// Generation numbers of the older processes, in the order of the attached sockets.
    pub(super) older: Vec<u8>,
    /// Names of the peers to which the old process is connected.
    #[serde(default)]
    pub(super) peers_up: Vec<String>,
    #[serde(default)]
    pub(super) pass_through: Vec<PassThroughClients>,
}

/// Clients of a pass-through listener. An older process serves their control connections. The new
/// process accepts their data connections.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PassThroughClients {
    pub(crate) listen: SocketAddr,
    pub(crate) clients: Vec<IpAddr>,
}
