//! Upgrades: another process replaces this process while transfers continue.
//!
//! ```text
//! old process                                    new process
//!   starts the new process with a Unix socket
//!   as its standard input
//!   Sockets  (listeners, UDP socket)  ------->   reads its configuration, prepares everything
//!                                     <-------   Ready
//!   stops reading the UDP socket
//!   Go       (link, clients)          ------->   reads the UDP socket, connects to its peers,
//!                                                accepts clients
//!                                     <-------   Up
//!   closes its listeners
//!   Done                              ------->   is the service manager's main process
//!   makes peers connect again; ends with its last session
//! ```
//!
//! Until it sends Done, the old process is the gateway. If the new process fails, ends or exceeds a
//! timeout, the old process sends Abandoned and continues.
//!
//! After the upgrade, the new process informs the old process of removed peers (`older_processes`).
//! If the new process ends, the old process reads the files of the gateway (`peer_files`).
//!
//! If the old process ends during the upgrade, the channel closes. The new process then continues
//! with the state that it has received.

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
    /// Process ID of the new process. `None` after a failed upgrade.
    pub pid: Option<u32>,
    /// Version of the new process. After a failed upgrade, the version of the old process.
    pub version: String,
    /// Version and commit of the new process. Empty if the new process does not report them, or
    /// after a failed upgrade.
    #[serde(default)]
    pub build: String,
    /// Path of the program file. Empty after a failed upgrade.
    #[serde(default)]
    pub program: String,
    /// Whether the new process runs the same program file as the old process, because the file has
    /// not been replaced.
    #[serde(default)]
    pub is_same_program: bool,
    /// Process ID of the old process. After a failed upgrade, this process continues to serve.
    pub old_pid: u32,
    /// Number of sessions that the old process still serves.
    pub sessions: u64,
    /// Reason why the upgrade failed and the old process continues to serve.
    pub error: Option<String>,
}

/// An order to upgrade. The value is the channel for the outcome.
pub(crate) type UpgradeRequest = tokio::sync::oneshot::Sender<UpgradeOutcome>;

impl UpgradeOutcome {
    pub(crate) fn failed(error: &UpgradeError, sessions: u64) -> Self {
        Self {
            pid: None,
            version: crate::VERSION.to_owned(),
            build: String::new(),
            program: String::new(),
            is_same_program: false,
            old_pid: std::process::id(),
            sessions,
            error: Some(error.to_string()),
        }
    }
}

/// Reason why another process has not replaced this process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("this gateway runs inside another program, which cannot be restarted")]
    NoProgram,
    #[error(
        "this gateway is process 1, whose end ends the container: restart the container with the new program"
    )]
    FirstProcess,
    #[error("{program} is not executable: set its permissions to 755")]
    NotExecutable { program: String },
    #[error("{program} cannot be started: {source}")]
    Start {
        program: String,
        source: std::io::Error,
    },
    #[error("the new process reports: {0}")]
    Refused(String),
    #[error(
        "the new process ended before it was ready; its messages are in the gateway's log (journalctl -u longhaul)"
    )]
    Ended,
    #[error(
        "the new process of {program} ended before it was ready; {program} --version: {outcome}; messages of the new \
         process are in the gateway's log (journalctl -u longhaul)"
    )]
    EndedEarly { program: String, outcome: String },
    #[error("the new process was not ready within {0} s")]
    Late(u64),
    #[error("the new process sent an unexpected message: {0}")]
    Unexpected(String),
    #[error(transparent)]
    Link(#[from] link::HandoverError),
    #[error("a socket could not be handed over: {0}")]
    Socket(std::io::Error),
}
