//! Messages between two gateways on a link stream, and their encoding.
//!
//! A stream begins with a [`StreamHello`], which contains the [`Version`]. On the streams of
//! forwards and data connections, raw or [coded](CodingOffer) bytes follow. On the stream of an FTP
//! session, the near gateway sends [`NearMessage`]s, and the far gateway sends [`FarMessage`]s.
//! These are the messages of [`ftp::session`] and the gateways' own reports.
//!
//! A message consists of a type byte, a length of four bytes (big endian), and a body of that
//! length. Every length is limited. The decoder accepts arbitrary input, and a fuzzer tests
//! `decode`.
#![deny(clippy::disallowed_methods)]

mod coding;
mod message;
mod report;

pub use coding::{ChunkRequest, CodingOffer, CutParameters, StoreTerms};
pub use message::{EnrolReply, FarMessage, NearMessage, Service, StreamHello, TOKEN_BYTES};
pub use report::{DeliveryReport, Grant, TransferBottleneck};

use bytes::{Bytes, BytesMut};
use codec::BodyError;
pub use codec::Version;

/// Reason why bytes are not a valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The length field exceeds [`BODY_MAX`].
    #[error("a message of {0} bytes is above the bound")]
    TooLong(u32),
    /// The body is malformed.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The peer uses another protocol version.
    #[error("the peer speaks version {peer} of the gateway protocol, this gateway {}", Version::LATEST.byte())]
    Version {
        /// Protocol version of the peer.
        peer: u8,
        /// Whether the stream belongs to an FTP session. On other streams, raw bytes follow instead
        /// of messages.
        is_session: bool,
    },
    /// The stream ended inside a message.
    #[error("the stream ended inside a message")]
    Truncated,
}

/// A value that gateways send as one message.
pub trait WireMessage: Sized {
    /// Whether the protocol version `version` contains this message.
    fn is_in(&self, _version: Version) -> bool {
        true
    }

    /// Appends the encoded body to `body`, and returns the type byte. `version` must contain this
    /// message.
    fn encode_body(&self, version: Version, body: &mut Vec<u8>) -> u8;

    /// Decodes a body of type `kind`, encoded in `version`.
    ///
    /// # Errors
    /// [`WireError`] if the type is unknown, or if the body is malformed.
    fn decode_body(version: Version, kind: u8, body: &[u8]) -> Result<Self, WireError>;
}

/// Encodes the message in the latest protocol version, which must contain this message.
pub fn encode(message: &impl WireMessage) -> Bytes {
    bytes_of(Version::LATEST, message)
}

/// Encodes the message in `version`. Returns `None` if `version` does not contain this message.
pub fn encode_in(version: Version, message: &impl WireMessage) -> Option<Bytes> {
    message.is_in(version).then(|| bytes_of(version, message))
}

fn bytes_of(version: Version, message: &impl WireMessage) -> Bytes {
    debug_assert!(message.is_in(version), "the version has the message");
    let mut body = Vec::new();
    let kind = message.encode_body(version, &mut body);
    assert!(
        body.len() <= BODY_MAX,
        "messages are built from bounded parts"
    );
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.push(kind);
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&body);
    bytes.into()
}

/// Decodes the message at the start of `bytes`, in the latest protocol version. Returns the message
/// and its length. Returns `None` if the message is incomplete.
///
/// # Errors
/// [`WireError`] if the bytes cannot be the start of a message.
pub fn decode<M: WireMessage>(bytes: &[u8]) -> Result<Option<(M, usize)>, WireError> {
    decode_in(Version::LATEST, bytes)
}

/// Decodes the message at the start of `bytes`, in `version`. Returns the message and its length,
/// like [`decode`].
///
/// # Errors
/// [`WireError`] if the bytes cannot be the start of a message.
pub fn decode_in<M: WireMessage>(
    version: Version,
    bytes: &[u8],
) -> Result<Option<(M, usize)>, WireError> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
    if length as usize > BODY_MAX {
        return Err(WireError::TooLong(length));
    }
    let Some(body) = rest.get(..length as usize) else {
        return Ok(None);
    };
    M::decode_body(version, header[0], body)
        .map(|message| Some((message, HEADER_BYTES + body.len())))
}

/// Decoder of messages. The bytes may arrive in parts of any size.
#[derive(Debug, Default)]
pub struct MessageDecoder {
    /// Protocol version of the messages.
    version: Version,
    buffer: BytesMut,
}

impl MessageDecoder {
    /// Sets the protocol version of all further messages.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Adds received bytes. Callers must call [`next_message`](Self::next_message) until it returns
    /// `None` before the next push.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next message. Returns `None` if no complete message has arrived.
    ///
    /// # Errors
    /// [`WireError`] if the received bytes are not a valid message.
    pub fn next_message<M: WireMessage>(&mut self) -> Result<Option<M>, WireError> {
        let Some((message, length)) = decode_in(self.version, &self.buffer)? else {
            return Ok(None);
        };
        let _ = self.buffer.split_to(length);
        Ok(Some(message))
    }

    /// Returns the bytes that follow the last message. After a [`StreamHello`], these are the raw
    /// bytes of the stream.
    pub fn into_rest(self) -> Bytes {
        self.buffer.freeze()
    }

    /// Whether the buffer is empty. If it contains an incomplete message, the stream must not end.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

/// Returns the protocol version of a gateway that has refused a session. `text` is the text of the
/// refusal. Returns `None` if `text` is not the text of [`WireError::Version`].
pub fn version_of_refusal(text: &str) -> Option<Version> {
    let rest = text.strip_prefix("the peer speaks version ")?;
    let (_, theirs) = rest.split_once(" of the gateway protocol, this gateway ")?;
    Version::from_byte(theirs.parse().ok()?)
}

/// Maximum length of a message body, in bytes: the longest reply line, and space for the other
/// fields.
pub const BODY_MAX: usize = ftp::line::REPLY_MAX + 1024;

/// Codes with which gateways reset link streams. Gateways use the codes only in logs.
pub mod reset {
    /// The TCP connection at the sender was reset or broke.
    pub const ABORTED: u32 = 1;
    /// The target is not allowed.
    pub const NOT_ALLOWED: u32 = 2;
    /// The connection to the target failed.
    pub const UNREACHABLE: u32 = 3;
    /// The session to which the stream belongs has ended.
    pub const SESSION_ENDED: u32 = 4;
    /// The peer violated the gateway protocol.
    pub const PROTOCOL: u32 = 5;
}

const HEADER_BYTES: usize = 5;

#[cfg(test)]
mod tests;
