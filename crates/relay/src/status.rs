//! State of the gateway. All views (`/status.json`, `/metrics` and `longhaul status`) show the same
//! [`GatewaySnapshot`]. This module also contains the gateway's counters.

mod finished;
mod histogram;
mod peer;
mod recent;
mod registry;
mod render;
mod store;

pub use finished::TransferConclusion;
pub use histogram::Histogram;
pub use recent::{KnownPath, TransferSearch};
pub use registry::{DirectionMeter, OpenTransfer, Registry, SessionGuard};
pub use render::final_path;
pub use store::StoreStatus;

use serde::{Deserialize, Serialize};

use crate::transfer_log::TransferRecord;

/// State of a gateway at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GatewaySnapshot {
    /// Version of the gateway.
    pub version: String,
    /// Version with the commit of the build, as `longhaul --version` prints it. Empty if the
    /// gateway runs inside another program, or if its release lacks this field. Also empty if the
    /// request contained no token.
    #[serde(default)]
    pub build: String,
    /// The gateway's public key, as `longhaul pubkey` prints it.
    #[serde(default)]
    pub public_key: String,
    /// Whether some values are removed: the names of users, files and clients, and the commit of
    /// the build. The gateway removes them if the request contained no token.
    #[serde(default)]
    pub hides_names: bool,
    /// Unix time of the gateway's start, in seconds.
    pub started_unix_s: u64,
    /// Address of the link's socket.
    pub link_listen: String,
    /// Configured address of the admin interface.
    #[serde(default)]
    pub admin_listen: String,
    /// Path of the Unix socket that accepts commands.
    #[serde(default)]
    pub admin_socket: String,
    /// Requested size of the link's socket buffers, in bytes.
    pub socket_buffer_asked_bytes: u64,
    /// Size of the receive buffer that the kernel has granted, in bytes.
    pub socket_buffer_receive_bytes: u64,
    /// Size of the send buffer that the kernel has granted, in bytes.
    pub socket_buffer_send_bytes: u64,
    /// Number of datagrams dropped without a reply, by reason.
    pub dropped: DroppedDatagrams,
    /// Older processes that this process has replaced. They still serve their open sessions.
    #[serde(default)]
    pub older_processes: Vec<OlderProcess>,
    /// Peers, in the order of the configuration file.
    pub peers: Vec<PeerStatus>,
    /// Number of open control connections and forwards. The number includes sessions that this
    /// gateway serves as the far gateway.
    pub sessions_open: u64,
    /// Number of sessions since the start, including open sessions.
    pub sessions_total: u64,
    /// Number of clients and log-ons that the gateway itself refused. Examples of reasons are a
    /// target that is not allowed, a peer that is down, and a reached limit.
    pub refused_total: u64,
    /// Number of log-ins of this gateway's clients that servers have refused.
    #[serde(default)]
    pub logins_failed_total: u64,
    /// Number of transfers since the start that ended without an error.
    pub transfers_completed_total: u64,
    /// Number of transfers since the start that failed or broke. A data connection that broke
    /// before its first byte is counted only if it belongs to a failed FTP transfer.
    pub transfers_failed_total: u64,
    /// Totals of successful FTP transfers of this gateway's clients since the start. The server has
    /// confirmed each transfer.
    #[serde(default)]
    pub ftp_succeeded: FtpTotals,
    /// Totals of failed FTP transfers of this gateway's clients since the start.
    #[serde(default)]
    pub ftp_failed: FtpTotals,
    /// Histogram of the durations of successful FTP transfers, in seconds.
    #[serde(default)]
    pub ftp_durations_s: Histogram,
    /// Histogram of the mean rates of successful FTP transfers, in bits per second. The histogram
    /// excludes empty transfers.
    #[serde(default)]
    pub ftp_rates_bits_per_s: Histogram,
    /// Number of lines missing from the transfer log because they could not be written.
    #[serde(default)]
    pub transfer_log_dropped_total: u64,
    /// Totals of coding (compression and deduplication) over all transfers and forwards.
    #[serde(default)]
    pub optimiser: OptimiserTotals,
    /// Chunk stores that are open.
    #[serde(default)]
    pub stores: Vec<StoreStatus>,
    /// SSH listeners.
    #[serde(default)]
    pub ssh: Vec<SshListenerStatus>,
    /// Transfers and forwards that are open.
    pub transfers: Vec<TransferStatus>,
    /// Latest finished FTP transfers of this gateway's clients, the newest first.
    #[serde(default)]
    pub finished: Vec<TransferRecord>,
}

impl GatewaySnapshot {
    /// Removes the names of users, files and clients, and the commit of the build. An attacker
    /// could look up the faults of a commit.
    pub fn hide_names(&mut self) {
        self.build.clear();
        for transfer in &mut self.transfers {
            transfer.path.clear();
            transfer.client.clear();
        }
        for record in &mut self.finished {
            record.hide_names();
        }
        self.hides_names = true;
    }
}

/// A process that a newer process has replaced. The older process still serves its open sessions,
/// and then exits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OlderProcess {
    /// Process identifier.
    pub pid: u32,
    /// Version of the program that the process runs.
    pub version: String,
    /// Unix time, in seconds, from which the process serves no new sessions.
    pub since_unix_s: u64,
    /// Number of open control connections and forwards. The number includes sessions that the
    /// process serves as the far gateway.
    pub sessions_open: u64,
    /// Number of open transfers and forwards.
    pub transfers_open: u64,
}

/// An SSH listener, with the host key that clients see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshListenerStatus {
    /// Address on which the gateway listens for clients.
    pub listen: String,
    /// Server of all clients. `None` if each client names its server.
    pub target: Option<String>,
    /// SHA-256 fingerprint of the host key, as `ssh-keygen -l` prints it.
    pub host_key: String,
}

/// Sums over finished FTP transfers. The transfer log contains the same transfers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FtpTotals {
    /// Number of finished transfers.
    pub transfers: u64,
    /// Number of bytes received from clients.
    pub upload_bytes: u64,
    /// Number of bytes sent to clients, including listings.
    pub download_bytes: u64,
}

/// Totals of coding (compression and deduplication) over all coded transfers and forwards,
/// including open ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OptimiserTotals {
    /// Number of application bytes before coding.
    pub bytes: u64,
    /// Number of bytes in the link streams after coding, without headers and retransmissions.
    pub wan_bytes: u64,
    /// Bytes saved by compression.
    pub compression_saved_bytes: u64,
    /// Bytes saved because the gateway sent references to chunks that the peer has.
    pub deduplication_saved_bytes: u64,
    /// Processor time that this gateway has spent on coding, in seconds.
    pub processor_s: f64,
}

/// Numbers of datagrams dropped without a reply, by reason.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct DroppedDatagrams {
    /// Handshake datagrams (hellos) whose key identifier belongs to no peer.
    pub unknown_key: u64,
    /// Handshake datagrams (hellos and replies) with a wrong authentication code.
    pub bad_mac: u64,
    /// Handshake datagrams (hellos) that had already arrived before.
    pub replayed: u64,
    /// Handshake datagrams (hellos) that started no handshake, because too many other handshakes
    /// were in progress. The gateway replied with a cookie, or dropped the hello.
    pub crowded: u64,
    /// Datagrams that are not in the link's format.
    pub malformed: u64,
    /// Datagrams of a connection that does not exist.
    pub unknown_connection: u64,
    /// Forged or damaged datagrams.
    pub undecryptable: u64,
}

/// State of a peer, and measurements of the path to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Name of the peer at this gateway.
    pub name: String,
    /// State of the peer: `never-answered`, `refused`, `dismissed`, `connecting`, `up` or `silent`.
    pub state: String,
    /// Number of attempts to reach a peer that has never answered.
    pub attempts: u64,
    /// Unix time since which the peer has been up or silent, in seconds.
    pub since_unix_s: Option<u64>,
    /// Present address of the peer, or its last known address.
    pub endpoint: Option<String>,
    /// Unix time of the peer's latest answer, in seconds.
    pub last_answer_unix_s: Option<u64>,
    /// Round-trip time, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Base round-trip time (the least, without queueing delay), in milliseconds.
    pub base_rtt_ms: Option<f64>,
    /// Queueing delay, in milliseconds.
    pub queue_delay_ms: Option<f64>,
    /// Fraction of packets lost, from 0 to 1.
    pub loss: f64,
    /// Present sending rate, in bits per second.
    pub send_bits_per_s: u64,
    /// Present receiving rate, in bits per second.
    pub receive_bits_per_s: u64,
    /// Rate that the congestion controller permits at present, in bits per second.
    pub allowed_bits_per_s: u64,
    /// Number of datagrams sent.
    pub sent_datagrams: u64,
    /// Number of bytes sent, including the link's headers.
    pub sent_bytes: u64,
    /// Number of payload bytes sent.
    pub sent_payload_bytes: u64,
    /// Number of datagrams received.
    pub received_datagrams: u64,
    /// Number of bytes received.
    pub received_bytes: u64,
    /// Number of payload bytes received.
    pub received_payload_bytes: u64,
    /// Number of packets declared lost.
    pub packets_lost: u64,
    /// Number of payload bytes retransmitted.
    pub retransmitted_bytes: u64,
    /// Number of open streams.
    pub streams_open: u64,
    /// State of the congestion controller.
    pub controller_state: String,
}

/// State of an open data connection or forward.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TransferStatus {
    /// Number of the transfer, unique since the start of the gateway.
    #[serde(default)]
    pub id: u64,
    /// Path that the client requested. Empty if the path is unknown, as at a far gateway.
    #[serde(default)]
    pub path: String,
    /// Size of the file in bytes. `None` if the server has not announced the size.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Number of the session to which the transfer belongs.
    pub session: u64,
    /// Kind of the transfer: `ftp`, `forward`, `sftp` (a file) or `ssh` (another channel).
    pub kind: String,
    /// Role of this gateway for the transfer: `near` or `far`.
    pub side: String,
    /// Name of the peer.
    pub peer: String,
    /// Address of the client. Empty at a far gateway.
    pub client: String,
    /// Server of the transfer.
    pub target: String,
    /// Number of bytes moved from client to server.
    pub up_bytes: u64,
    /// Number of bytes moved from server to client.
    pub down_bytes: u64,
    /// Number of bytes in the transfer's link streams, in both directions, without headers and
    /// retransmissions.
    #[serde(default)]
    pub wan_bytes: u64,
    /// Rate over the last second, in bits per second. The rate is that of the direction that has
    /// moved more bytes.
    pub bits_per_s: u64,
    /// Age of the transfer, in seconds.
    pub age_s: f64,
    /// Bottleneck of the transfer: `client`, `WAN` or `server`. The value is `WAN or client` or
    /// `WAN or server` if the peer has not reported its bottleneck. Empty before the first byte has
    /// moved.
    pub limit: String,
}
