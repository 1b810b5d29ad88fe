//! A finished transfer, as the transfer log, the log and `status` report it.

use serde::{Deserialize, Serialize};

/// A finished FTP transfer. As JSON it is a line of the transfer log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferRecord {
    /// Raised when a field changes its meaning or disappears.
    pub schema: u32,
    /// End of the transfer, in UTC (RFC 3339).
    pub time: String,
    /// Number of the transfer's session.
    pub session: u64,
    /// Address and port of the client's control connection.
    pub client: String,
    /// User name of the session.
    pub user: String,
    /// Address of the listener.
    pub door: String,
    /// Name of the peer.
    pub peer: String,
    /// The server, as the configuration or the client names it.
    pub server: String,
    /// The FTP command. Empty if the gateway does not know it.
    pub verb: String,
    /// The argument of the command. Bytes that are not UTF-8 are written `\xNN`.
    pub path: String,
    /// `None` if the command is unknown.
    pub direction: Option<TransferDirection>,
    /// Representation type of the session.
    pub transfer_type: TransferType,
    /// Payload that has moved between client and gateway.
    pub bytes: u64,
    /// From the command to the end of the transfer, in seconds.
    pub duration_s: f64,
    /// Mean rate over the duration.
    pub rate_bit_per_s: u64,
    /// Code of the final reply to the client. `None` if there was none.
    pub reply_code: Option<u16>,
    /// Whether all bytes have arrived, and the server has confirmed it.
    pub succeeded: bool,
    /// Whether the client's data connection has TLS.
    pub client_tls: bool,
    /// Whether the server's data connection has TLS.
    pub server_tls: bool,
    /// The bottleneck for most of the time: `client`, `WAN` or `server`; `None` if no byte moved.
    pub limited_by: Option<String>,
    /// Payload of its streams on the link, without headers and retransmissions.
    #[serde(default)]
    pub wan_bytes: u64,
    /// Payload bytes saved by compression.
    #[serde(default)]
    pub compression_saved_bytes: u64,
    /// Payload bytes saved by references to chunks that the peer has.
    #[serde(default)]
    pub deduplication_saved_bytes: u64,
    /// Processor time of this gateway for coding or decoding the payload, in seconds.
    #[serde(default)]
    pub coding_processor_s: f64,
}

/// Kind and direction of a transfer's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferDirection {
    /// A file from client to server.
    Upload,
    /// A file from server to client.
    Download,
    /// From server to client, without a file.
    Listing,
}

/// The `TYPE` of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferType {
    /// The type of a session that has requested none (RFC 959).
    #[default]
    Ascii,
    /// Image type: bytes without a change.
    Binary,
}

impl TransferDirection {
    /// Returns the name as text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Listing => "listing",
        }
    }
}

impl TransferRecord {
    /// Removes the names of the user, the file and the client.
    pub(crate) fn hide_names(&mut self) {
        self.client.clear();
        self.user.clear();
        self.path.clear();
    }

    /// The present [`schema`](Self::schema).
    pub const SCHEMA: u32 = 1;
}

/// Returns a path as text. Bytes that are not UTF-8 are written `\xNN`.
pub(crate) fn path_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes[..bytes.len().min(PATH_MAX_BYTES)].utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
    }
    text
}

/// Longest path that is reported in full: the limit of Linux.
const PATH_MAX_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_text_and_bounded() {
        assert_eq!(path_text("Grüße".as_bytes()), "Grüße");
        assert_eq!(path_text(b"a\xffb"), "a\\xffb");
        assert_eq!(path_text(&[b'a'; 10_000]).len(), PATH_MAX_BYTES);
    }
}
