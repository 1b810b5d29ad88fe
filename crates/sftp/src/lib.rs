//! SFTP version 3 as values and state machines: packets, and both halves of an SFTP session. Each
//! gateway has one half.
//!
//! The near half is the end at the client. It answers some requests before the server has confirmed
//! them, and serves downloads from data that the far half has read ahead. The far half is the end
//! at the server. It keeps the order of the requests, and reads ahead.
//!
//! The state machines receive bytes and messages, and return bytes and messages. The machines use
//! no socket, no clock, no randomness and no async code. The caller owns the channels, and reports
//! their end to the machines.
//!
//! If a machine does not understand a request, it passes on the request, and later the answer.

pub mod far;
pub mod message;
pub mod near;
pub mod packet;
mod queue;
mod rope;

pub use far::{FarSettings, SftpFar, SftpFarOutput};
pub use message::{EncodedMessage, ToFar, ToNear};
pub use near::{NearSettings, SftpNear, SftpNearOutput, SharedFiles};
pub use rope::Rope;

/// Rule by which the near half answers WRITEs before the server has confirmed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EarlyReplies {
    /// The near half relays each answer of the server.
    Off,
    /// The near half answers each WRITE of a handle except the newest one. It answers the newest
    /// one after the server has confirmed all WRITEs of the handle. The newest WRITE therefore
    /// reports any failure.
    #[default]
    Held,
    /// The near half answers each WRITE at once. Only later WRITEs and CLOSE report a failure.
    All,
}

/// Direction of a transfer, from the client's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileDirection {
    /// The client writes to the file.
    Upload,
    /// The client reads from the file.
    Download,
}

/// Event of a transfer, for logs and status pages. A transfer is the time for which a file is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferEvent {
    /// The server has opened a file.
    Started {
        /// Number of the open file. Numbers are unique within the session.
        handle: u64,
        /// Path of the file, as the client sent it.
        path: Vec<u8>,
        /// Direction that the client requested in OPEN.
        direction: FileDirection,
    },
    /// Bytes of the file have arrived. In an upload, the server has confirmed them. In a download,
    /// they are in an answer to the client.
    Bytes {
        /// Number of the open file.
        handle: u64,
        /// Number of the bytes since the last event.
        count: u64,
    },
    /// The client has closed the file, or the session has ended.
    Finished {
        /// Number of the open file.
        handle: u64,
        /// Outcome, with the reason of a failure.
        outcome: Result<(), String>,
    },
}

/// Violation of the protocol by a peer, after which a half ends its session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SftpError {
    /// A packet is longer than the limit, or has no type.
    #[error("an SFTP packet has a length of {0} bytes, which is outside of the limits")]
    PacketLength(u32),
    /// The client did not begin with INIT, or sent it twice, or requested a version below 3.
    #[error("the SFTP client sent packet type {0} in place of its first packet")]
    NoInit(u8),
    /// The server's first packet was not VERSION, or its version was not 3.
    #[error("the SFTP server does not speak version 3")]
    NoVersion,
    /// The body of a packet is not valid for its type.
    #[error("malformed SFTP packet of type {0}")]
    MalformedPacket(u8),
    /// The server answered a request that is not outstanding.
    #[error("the SFTP server answered request {0}, which is not outstanding")]
    UnknownRequest(u32),
    /// The server's answer has a type that does not fit the request.
    #[error("the SFTP server answered a request by packet type {0}")]
    AnswerType(u8),
    /// The server returned a handle that it had returned before, and that is still open.
    #[error("the SFTP server returned the same handle twice")]
    DuplicateHandle,
    /// The other gateway sent a message that does not fit the state of the session.
    #[error("unexpected message of the other gateway: {0}")]
    UnexpectedMessage(&'static str),
    /// A queue exceeds its limit, because the other gateway did not respect the limit.
    #[error("the other gateway exceeded the limit of {0}")]
    LimitExceeded(&'static str),
}
