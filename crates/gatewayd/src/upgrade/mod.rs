//! An upgrade without a cut: another process replaces this one while transfers continue.
//!
//! ```text
//! old process                                    new process
//!   starts the new one, a Unix socket as its stdin
//!   Sockets  (listeners, UDP socket)  ------->   reads its configuration, prepares everything
//!                                     <-------   Ready
//!   stops reading the UDP socket
//!   Go       (link, clients)          ------->   reads the UDP socket, connects to its peers,
//!                                                accepts
//!                                     <-------   Up
//!   closes its listeners
//!   Done                              ------->   is the service manager's main process
//!   makes peers connect again; ends with its last session
//! ```
//!
//! Until Done the old process is the gateway. If the new one fails, dies or is late, the old one
//! sends Abandoned and continues. Afterwards `older_processes` informs the old one of removed
//! peers. If the new one dies, `peer_files` does. The end of the channel shows the death of the old
//! process. The new one then continues with the state that it has.

mod handover_channel;
mod message;
mod older_processes;
mod peer_files;
mod predecessor;
mod program;
mod successor;

use serde::{Deserialize, Serialize};

pub(crate) use self::{
    message::PassThroughClients,
    older_processes::OlderProcesses,
    peer_files::PeerFiles,
    predecessor::{admin_https_name, admin_name, admin_socket_name},
    successor::{HandoverInput, Successor, hand_over},
};
pub use self::{
    predecessor::{Predecessor, PredecessorError},
    program::Program,
};

/// Outcome of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeOutcome {
    /// The new process, if one was started.
    pub pid: Option<u32>,
    /// Version of the new process.
    pub version: String,
    /// The process that the new process has replaced, or that continues.
    pub old_pid: u32,
    /// Sessions that the old process still serves.
    pub sessions: u64,
    /// Reason for which the old process continues.
    pub error: Option<String>,
}

/// An order with an outcome.
pub(crate) type UpgradeRequest = tokio::sync::oneshot::Sender<UpgradeOutcome>;

impl UpgradeOutcome {
    pub(crate) fn failed(error: &UpgradeError, sessions: u64) -> Self {
        Self {
            pid: None,
            version: crate::VERSION.to_owned(),
            old_pid: std::process::id(),
            sessions,
            error: Some(error.to_string()),
        }
    }
}

/// Reason for which another process has not replaced this one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("this gateway runs inside another program, which cannot be restarted")]
    NoProgram,
    #[error(
        "this gateway is process 1, whose end ends the container: restart the container with the new program"
    )]
    FirstProcess,
    #[error("{program} cannot be started: {source}")]
    Start {
        program: String,
        source: std::io::Error,
    },
    #[error("the new process reports: {0}")]
    Refused(String),
    #[error("the new process has ended; the log has its messages")]
    Ended,
    #[error("the new process was not ready within {0} s")]
    Late(u64),
    #[error("the new process sent an unexpected message: {0}")]
    Unexpected(String),
    #[error(transparent)]
    Link(#[from] link::HandOverError),
    #[error("a socket could not be handed over: {0}")]
    Socket(std::io::Error),
}
