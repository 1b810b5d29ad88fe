//! The messages between two gateways on a link stream, as values and bytes.
//!
//! A stream begins with a [`StreamHello`], which carries the [`Version`]. The streams of forwards
//! and of data connections carry bytes after it, raw or [coded](CodingOffer). The stream of an FTP
//! session carries [`NearMessage`]s in one direction, and [`FarMessage`]s in the other. These are
//! the messages of [`ftp::session`], and reports of the gateways.
//!
//! A message is a type byte, a length in four bytes (big endian), and a body of that length. Every
//! length has a bound. Decoding accepts any bytes: `decode` is the target of a fuzzer.
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

/// Reason why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The length field is above [`BODY_MAX`].
    #[error("a message of {0} bytes is above the bound")]
    TooLong(u32),
    /// The body is no message.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The peer has another version.
    #[error("the peer speaks version {peer} of the gateway protocol, this gateway {}", Version::LATEST.byte())]
    Version {
        /// Version of the peer.
        peer: u8,
        /// Whether the stream belongs to an FTP session: messages follow, and not raw bytes.
        is_session: bool,
    },
    /// The stream ended inside a message.
    #[error("the stream ended inside a message")]
    Truncated,
}

/// A value that is sent as one message.
pub trait WireMessage: Sized {
    /// Whether `version` has the message.
    fn is_in(&self, _version: Version) -> bool {
        true
    }

    /// Encodes the message's body in the form of `version`, which has the message. Returns the type
    /// byte.
    fn encode_body(&self, version: Version, body: &mut Vec<u8>) -> u8;

    /// Reads a body of type `kind` in the form of `version`.
    ///
    /// # Errors
    /// [`WireError`] if the type is unknown or the body malformed.
    fn decode_body(version: Version, kind: u8, body: &[u8]) -> Result<Self, WireError>;
}

/// Encodes the message in the form of the latest version. That version must have the message.
pub fn encode(message: &impl WireMessage) -> Bytes {
    bytes_of(Version::LATEST, message)
}

/// Encodes the message in the form of `version`. `None` if the version does not have it.
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

/// Decodes the message at the start of `bytes`. Returns its length, too. `None` if it is
/// incomplete.
///
/// # Errors
/// [`WireError`] as soon as the bytes cannot be the beginning of a message.
pub fn decode<M: WireMessage>(bytes: &[u8]) -> Result<Option<(M, usize)>, WireError> {
    decode_in(Version::LATEST, bytes)
}

/// Decodes a message in the form of `version`, like [`decode`].
///
/// # Errors
/// [`WireError`] as soon as the bytes cannot be the beginning of a message.
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

/// Decoder of messages in bytes that arrive in arbitrary parts.
#[derive(Debug, Default)]
pub struct MessageDecoder {
    /// Form of the messages.
    version: Version,
    buffer: BytesMut,
}

impl MessageDecoder {
    /// Reads all further messages in the form of `version`.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Adds received bytes. Callers drain [`next_message`](Self::next_message) before the next
    /// push.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next message, if it is complete.
    ///
    /// # Errors
    /// [`WireError`] if the bytes so far are no message.
    pub fn next_message<M: WireMessage>(&mut self) -> Result<Option<M>, WireError> {
        let Some((message, length)) = decode_in(self.version, &self.buffer)? else {
            return Ok(None);
        };
        let _ = self.buffer.split_to(length);
        Ok(Some(message))
    }

    /// Returns the bytes after the last message: the raw bytes after a [`StreamHello`].
    pub fn into_rest(self) -> Bytes {
        self.buffer.freeze()
    }

    /// Whether the stream may end here.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

/// Returns the version of a gateway that has refused a session with the text of
/// [`WireError::Version`].
pub fn version_of_refusal(text: &str) -> Option<Version> {
    let rest = text.strip_prefix("the peer speaks version ")?;
    let (_, theirs) = rest.split_once(" of the gateway protocol, this gateway ")?;
    Version::from_byte(theirs.parse().ok()?)
}

/// Longest body of a message: the longest reply line, with room for its other fields.
pub const BODY_MAX: usize = ftp::line::REPLY_MAX + 1024;

/// Codes with which gateways reset link streams, for logs.
pub mod reset {
    /// The TCP connection at the sender's side was reset or broke.
    pub const ABORTED: u32 = 1;
    /// The target is not allowed.
    pub const NOT_ALLOWED: u32 = 2;
    /// The target could not be connected.
    pub const UNREACHABLE: u32 = 3;
    /// The session that the stream belongs to has ended.
    pub const SESSION_ENDED: u32 = 4;
    /// The peer broke the gateway protocol.
    pub const PROTOCOL: u32 = 5;
}

const HEADER_BYTES: usize = 5;

#[cfg(test)]
mod tests;
