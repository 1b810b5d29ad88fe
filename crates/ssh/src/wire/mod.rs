//! Messages between the two halves of SSH sessions, and their encoding.
//!
//! A stream consists of frames: the length of the body (four bytes), the type (one byte), and the
//! body. Each session has one stream, and each channel has one more. The first message of a stream
//! starts with the version. The data of a channel may be coded (`coded_data`).

pub(crate) mod channel;
mod coded_data;
mod frame;
mod frame_stream;
pub(crate) mod session;

#[cfg(feature = "fuzzing")]
pub(crate) use self::{
    frame::{Frame, header as frame_header},
    frame_stream::FrameSplitter,
};
pub(crate) use frame_stream::{FrameReader, FrameWriter};

use net::target::{Host, HostPort};

use frame::encode;

/// Name of the service for sessions.
pub(crate) const SESSION: &str = "ssh";

/// Name of the service for channels.
pub(crate) const CHANNEL: &str = "ssh-channel";

/// Version of the messages.
const VERSION: u8 = 1;

/// Secret number of a session. The streams of its channels present the number.
pub(crate) type Token = [u8; 16];

/// Reason why a stream contains no valid message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// The other gateway uses another version of the messages.
    #[error("the other gateway speaks version {0} of the SSH messages, this gateway {VERSION}")]
    Version(u8),
    /// The type is unknown.
    #[error("unknown SSH message type {0}")]
    UnknownType(u8),
    /// The body is not valid for the type.
    #[error("malformed SSH message of type {0}")]
    Malformed(u8),
    /// The body is longer than the limit.
    #[error("an SSH message of type {0} is too long")]
    TooLong(u8),
    /// The stream ended within a message.
    #[error("the stream ended within a message")]
    Truncated,
    /// The coded data are not valid, or a chunk does not arrive.
    #[error("{0}")]
    Coding(String),
    /// The stream broke.
    #[error("{0}")]
    Lost(String),
}

/// Parses the name of a server in a message. A message always contains the port.
fn parse_target(text: &str) -> Option<HostPort> {
    let (host, port) = units::split_port(text)?;
    let (host, port) = (Host::parse(host).ok()?, port?);
    Some(HostPort { host, port })
}
