//! Packets of SFTP version 3, as values and as bytes.
//!
//! Source: draft-ietf-secsh-filexfer-02, and OpenSSH's `PROTOCOL` for the extensions.

mod attrs;
pub(crate) mod extension;
mod fields;
mod greeting;
pub mod kind;
mod request;
mod response;
mod splitter;
mod status;
#[cfg(test)]
mod tests;

pub use attrs::{Attrs, Times};
pub use extension::{ExtendedRequest, Limits};
pub use greeting::{Greeting, GreetingSource};
pub use request::{OpenFlags, Request};
pub use response::{Name, Response};
pub use splitter::PacketSplitter;
pub use status::{Status, StatusCode};

pub(crate) use fields::{FieldReader, finish, put_string, split_id};

/// Maximum length of a packet in bytes, without the four bytes of its length. OpenSSH permits 256
/// KiB. The additional 1 KiB is for servers that permit 256 KiB of data in a packet.
pub const PACKET_MAX: usize = (256 + 1) * 1024;

/// Maximum number of bytes in a READ or WRITE, by OpenSSH's limits.
pub const DATA_MAX: usize = 255 * 1024;

/// Maximum length of a handle in bytes, by section 6.2 of the draft.
pub const HANDLE_MAX: usize = 256;

/// Reason why a packet is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The packet type is unknown.
    #[error("unknown SFTP packet type {0}")]
    UnknownType(u8),
    /// The body is not valid for its type.
    #[error("malformed SFTP packet of type {0}")]
    Malformed(u8),
}
