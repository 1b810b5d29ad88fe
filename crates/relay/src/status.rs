//! The state of the gateway: one [`GatewaySnapshot`], which `/status.json`, `/metrics` and
//! `longhaul status` all read, and its counters.

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
pub use registry::Registry;
pub(crate) use registry::{DirectionMeter, OpenTransfer};
pub use render::final_path;
pub use store::StoreStatus;

use serde::{Deserialize, Serialize};

use crate::transfer_log::TransferRecord;

/// A gateway at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GatewaySnapshot {
    /// Version of the gateway.
    pub version: String,
    /// The gateway's public key, as `longhaul pubkey` prints it.
    #[serde(default)]
    pub public_key: String,
    /// Whether the names of users, files and clients are left out, since the reader has shown no
    /// token.
    #[serde(default)]
    pub hides_names: bool,
    /// Unix time of the start, in seconds.
    pub started_unix_s: u64,
    /// Address of the link's socket.
    pub link_listen: String,
    /// Configured address of the admin interface.
    #[serde(default)]
    pub admin_listen: String,
    /// Path of the socket that accepts orders.
    #[serde(default)]
    pub admin_socket: String,
    /// Requested socket buffer, in bytes.
    pub socket_buffer_asked_bytes: u64,
    /// Granted receive buffer, in bytes.
    pub socket_buffer_receive_bytes: u64,
    /// Granted send buffer, in bytes.
    pub socket_buffer_send_bytes: u64,
    /// Datagrams dropped unanswered, by reason.
    pub dropped: DroppedDatagrams,
    /// Processes that this one has replaced, and that still serve their sessions.
    #[serde(default)]
    pub older_processes: Vec<OlderProcess>,
    /// The peers, in file order.
    pub peers: Vec<PeerStatus>,
    /// Control connections and forwards open now, near and far.
    pub sessions_open: u64,
    /// Sessions since the start, open ones included.
    pub sessions_total: u64,
    /// Logons that the gateway refused, not a server: targets not allowed, peers down.
    pub refused_total: u64,
    /// Log-ins of this gateway's clients that servers have refused.
    #[serde(default)]
    pub logins_failed_total: u64,
    /// Transfers since the start that ended in an orderly way.
    pub transfers_completed_total: u64,
    /// Transfers since the start that broke after their first byte.
    pub transfers_failed_total: u64,
    /// FTP transfers of this gateway's clients since the start that the server has confirmed.
    #[serde(default)]
    pub ftp_succeeded: FtpTotals,
    /// FTP transfers of this gateway's clients since the start that have failed.
    #[serde(default)]
    pub ftp_failed: FtpTotals,
    /// Durations of succeeded FTP transfers in seconds, in steps of about three.
    #[serde(default)]
    pub ftp_durations_s: Histogram,
    /// Mean rates of succeeded FTP transfers in which bytes moved, in bits per second.
    #[serde(default)]
    pub ftp_rates_bits_per_s: Histogram,
    /// Lines that the transfer log lacks because they could not be written.
    #[serde(default)]
    pub transfer_log_dropped_total: u64,
    /// Totals of coding over transfers and forwards.
    #[serde(default)]
    pub optimiser: OptimiserTotals,
    /// The open chunk stores.
    #[serde(default)]
    pub stores: Vec<StoreStatus>,
    /// Transfers and forwards open now.
    pub transfers: Vec<TransferStatus>,
    /// The last finished FTP transfers of this gateway's clients, the newest first.
    #[serde(default)]
    pub finished: Vec<TransferRecord>,
}

impl GatewaySnapshot {
    /// Removes the names of users, files and clients.
    pub fn hide_names(&mut self) {
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

/// A process that another one has replaced. It serves its sessions, and ends after them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OlderProcess {
    /// Process id.
    pub pid: u32,
    /// Version of its program.
    pub version: String,
    /// Unix time since which it serves no new sessions, in seconds.
    pub since_unix_s: u64,
    /// Control connections and forwards open now, near and far.
    pub sessions_open: u64,
    /// Transfers and forwards open now.
    pub transfers_open: u64,
}

/// Sums over finished FTP transfers, as in the transfer log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FtpTotals {
    /// Number of transfers.
    pub transfers: u64,
    /// Bytes from clients.
    pub upload_bytes: u64,
    /// Bytes to clients, listings included.
    pub download_bytes: u64,
}

/// Totals of coding over all coded transfers and forwards, open ones included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OptimiserTotals {
    /// Bytes of the files.
    pub bytes: u64,
    /// Bytes of the streams on the link, without headers and retransmissions.
    pub wan_bytes: u64,
    /// Bytes saved by compression.
    pub compression_saved_bytes: u64,
    /// Bytes saved by references to chunks that the peer has.
    pub deduplication_saved_bytes: u64,
    /// Processor time of this gateway for coding, in seconds.
    pub processor_s: f64,
}

/// Datagrams dropped unanswered.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct DroppedDatagrams {
    /// First flights whose key identifier no peer has.
    pub unknown_key: u64,
    /// First flights with a wrong authentication code.
    pub bad_mac: u64,
    /// First flights that had arrived before.
    pub replayed: u64,
    /// First flights during other handshakes of the same peer: answered with a cookie, or dropped.
    pub crowded: u64,
    /// Datagrams that do not belong to the link.
    pub malformed: u64,
    /// Datagrams for a connection that does not exist.
    pub unknown_connection: u64,
    /// Forged or damaged datagrams.
    pub undecryptable: u64,
}

/// A peer, and the path to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Name of the peer at this gateway.
    pub name: String,
    /// `never-answered`, `refused`, `dismissed`, `connecting`, `up` or `silent`.
    pub state: String,
    /// Attempts to reach the peer, while it has never answered.
    pub attempts: u64,
    /// Unix time since which it is up or silent, in seconds.
    pub since_unix_s: Option<u64>,
    /// Current address, or the last known one.
    pub endpoint: Option<String>,
    /// Unix time of its last answer, in seconds.
    pub last_answer_unix_s: Option<u64>,
    /// Round-trip time, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Least round-trip time, in milliseconds.
    pub base_rtt_ms: Option<f64>,
    /// Queueing delay, in milliseconds.
    pub queue_delay_ms: Option<f64>,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// Current sending rate, in bits per second.
    pub send_bits_per_s: u64,
    /// Current receiving rate, in bits per second.
    pub receive_bits_per_s: u64,
    /// Rate that congestion control allows now, in bits per second.
    pub allowed_bits_per_s: u64,
    /// Datagrams sent.
    pub sent_datagrams: u64,
    /// Bytes sent, headers of the link included.
    pub sent_bytes: u64,
    /// Payload sent.
    pub sent_payload_bytes: u64,
    /// Datagrams received.
    pub received_datagrams: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Payload received.
    pub received_payload_bytes: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Retransmitted payload.
    pub retransmitted_bytes: u64,
    /// Streams open.
    pub streams_open: u64,
    /// State of the congestion controller.
    pub controller_state: String,
}

/// A data connection or a forward.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TransferStatus {
    /// Number of the transfer, unique among this gateway's transfers since the start of the
    /// gateway.
    #[serde(default)]
    pub id: u64,
    /// Path that the client requested. Empty if unknown, as on the far side.
    #[serde(default)]
    pub path: String,
    /// Size of the file, if the server has announced it.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Number of the transfer's session.
    pub session: u64,
    /// `ftp` or `forward`.
    pub kind: String,
    /// `near` or `far`.
    pub side: String,
    /// Name of the peer.
    pub peer: String,
    /// The client's address; empty on the far side.
    pub client: String,
    /// The server.
    pub target: String,
    /// Bytes from the client's side to the server's.
    pub up_bytes: u64,
    /// Bytes from the server's side to the client's.
    pub down_bytes: u64,
    /// Bytes of the transfer's streams on the link, both directions, without headers and
    /// retransmissions.
    #[serde(default)]
    pub wan_bytes: u64,
    /// Both directions over the last second, in bits per second.
    pub bits_per_s: u64,
    /// Seconds since it was registered.
    pub age_s: f64,
    /// The bottleneck: `client`, `WAN` or `server`; empty while no byte moves.
    pub limit: String,
}
