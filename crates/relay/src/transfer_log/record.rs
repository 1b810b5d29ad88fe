//! Record of a finished transfer, for the transfer log, the program's log and `longhaul status`.

use serde::{Deserialize, Serialize};

/// Record of a finished FTP transfer. As JSON, a record is one line of the transfer log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferRecord {
    /// Version of the record's format. The version increases when a field changes its meaning or is
    /// removed.
    pub schema: u32,
    /// Time of the transfer's end, in UTC (RFC 3339).
    pub time: String,
    /// Number of the session to which the transfer belongs.
    pub session: u64,
    /// Address and port of the client's control connection.
    pub client: String,
    /// User name in the client's log-in.
    pub user: String,
    /// Address of the listener.
    pub door: String,
    /// Name of the peer.
    pub peer: String,
    /// Server of the transfer, as the configuration or the client names it.
    pub server: String,
    /// Verb of the transfer command. Empty if the verb is unknown to the gateway.
    pub verb: String,
    /// Argument of the transfer command. Bytes that are not UTF-8 are written as `\xNN`.
    pub path: String,
    /// Kind and direction of the transfer. `None` if the verb is unknown.
    pub direction: Option<TransferDirection>,
    /// Representation type (ASCII or binary) of the transfer.
    pub transfer_type: TransferType,
    /// Number of payload bytes moved between client and gateway.
    pub bytes: u64,
    /// Time from the transfer command to the end of the transfer, in seconds.
    pub duration_s: f64,
    /// Mean rate over the duration, in bits per second.
    pub rate_bit_per_s: u64,
    /// Code of the final reply to the client. `None` if the client received no final reply.
    pub reply_code: Option<u16>,
    /// Whether all bytes have arrived, and the server has replied with a success.
    pub succeeded: bool,
    /// Whether the client's data connection used TLS.
    pub client_tls: bool,
    /// Whether the server's data connection used TLS.
    pub server_tls: bool,
    /// Bottleneck during most of the transfer: `client`, `WAN` or `server`. `None` if no byte
    /// moved.
    pub limited_by: Option<String>,
    /// Number of payload bytes in the transfer's link streams, without headers and retransmissions.
    #[serde(default)]
    pub wan_bytes: u64,
    /// Number of payload bytes saved by compression.
    #[serde(default)]
    pub compression_saved_bytes: u64,
    /// Number of payload bytes saved because the gateway sent references to chunks that the peer
    /// has.
    #[serde(default)]
    pub deduplication_saved_bytes: u64,
    /// Processor time of this gateway for coding or decoding the payload, in seconds.
    #[serde(default)]
    pub coding_processor_s: f64,
}

/// Kind and direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferDirection {
    /// A file from client to server.
    Upload,
    /// A file from server to client.
    Download,
    /// A listing of files, from server to client.
    Listing,
}

/// Representation type of a transfer, as set by `TYPE`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferType {
    /// ASCII type, the default of a session (RFC 959).
    #[default]
    Ascii,
    /// Image type: the bytes are transferred without changes.
    Binary,
}

impl TransferDirection {
    /// Returns the name that the logs use.
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

    /// Present value of [`schema`](Self::schema).
    pub const SCHEMA: u32 = 1;
}

/// Converts a path to text. Bytes that are not UTF-8 are written as `\xNN`.
pub fn path_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes[..bytes.len().min(PATH_MAX_BYTES)].utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
    }
    text
}

/// Maximum length of a path in a record, in bytes. Linux has the same limit for paths.
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
