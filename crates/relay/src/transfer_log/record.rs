//! What is told of a finished transfer: in the transfer log, in the log and in `status`.

use serde::{Deserialize, Serialize};

/// A finished FTP transfer. As JSON it is a line of the transfer log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferRecord {
    /// Raised when a field changes its meaning or disappears.
    pub schema: u32,
    /// When it ended, in UTC (RFC 3339).
    pub time: String,
    /// Number of its session.
    pub session: u64,
    /// Address and port of the client's control connection.
    pub client: String,
    pub user: String,
    /// Where the front door listens.
    pub door: String,
    pub peer: String,
    /// The target, as the door or the client names it.
    pub server: String,
    /// The FTP command; empty if it is one that the gateway does not know.
    pub verb: String,
    /// What followed the command. Bytes that are not UTF-8 are written `\xNN`.
    pub path: String,
    /// `None` if the command is unknown.
    pub direction: Option<TransferDirection>,
    pub transfer_type: TransferType,
    /// Payload that has moved between client and gateway.
    pub bytes: u64,
    /// From the command to the end of the transfer, in seconds.
    pub duration_s: f64,
    /// Mean over the duration.
    pub rate_bit_per_s: u64,
    /// Code of the final reply that the client got; `None` if it got none.
    pub reply_code: Option<u16>,
    /// Everything has arrived, and the server has said so.
    pub succeeded: bool,
    /// The client's data connection has TLS.
    pub client_tls: bool,
    /// The server's data connection has TLS.
    pub server_tls: bool,
    /// The bottleneck for most of the time: `client`, `WAN` or `server`; `None` if no byte moved.
    pub limited_by: Option<String>,
    /// Payload of its streams on the link, without headers and repeats.
    #[serde(default)]
    pub wan_bytes: u64,
    /// What compression has saved of the payload.
    #[serde(default)]
    pub compression_saved_bytes: u64,
    /// What references to chunks that the other gateway has have saved of the payload.
    #[serde(default)]
    pub deduplication_saved_bytes: u64,
    /// What this gateway's processor took to code or decode the payload, in seconds.
    #[serde(default)]
    pub coding_processor_s: f64,
}

/// What the bytes of a transfer are, and which way they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferDirection {
    Upload,
    Download,
    /// From server to client, and no file.
    Listing,
}

/// The `TYPE` of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferType {
    /// That of a session that has asked for none (RFC 959).
    #[default]
    Ascii,
    Binary,
}

impl TransferDirection {
    /// As text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Listing => "listing",
        }
    }
}

impl TransferRecord {
    /// Takes the names of the user, the file and the client out.
    pub(crate) fn hide_names(&mut self) {
        self.client.clear();
        self.user.clear();
        self.path.clear();
    }

    /// The present [`schema`](Self::schema).
    pub const SCHEMA: u32 = 1;
}

/// A path as text: UTF-8 where it is, other bytes as `\xNN`.
pub(crate) fn path_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes[..bytes.len().min(PATH_MAX_BYTES)].utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
    }
    text
}

/// Longest path that is told whole, that of Linux.
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
