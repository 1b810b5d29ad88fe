//! Models of the TCP senders that share bottlenecks with the link: CUBIC, Reno and BBR. The window
//! of each sender can be limited.
//!
//! A connection consists of a [`Sender`] that always has data, and a [`Receiver`] that acknowledges
//! every segment or every second segment. The caller passes received segments and the time. The
//! model returns segments to send, and its next deadline. It uses no socket, no clock and no random
//! numbers. Equal paths therefore produce equal runs.
//!
//! The models have the mechanisms that determine the shares of competing flows: selective
//! acknowledgements, retransmission timeouts, and the congestion control. The models detect losses
//! by time (RFC 8985), and reduce the window proportionally (RFC 9937). The models lack the
//! handshake, segmentation offload, ECN, the undoing of window reductions, and the receiver's
//! window.
//!
//! Time is a `Duration` since an arbitrary origin. Windows count segments of one size.

mod bbr;
mod cubic;
mod law;
mod receiver;
mod reno;
mod scoreboard;
mod segment;
mod sender;
#[cfg(test)]
mod testing;

pub use bbr::Bbr;
pub use cubic::Cubic;
pub use law::{Delivery, Law};
pub use receiver::Receiver;
pub use reno::Reno;
pub use segment::{ACK_IP_BYTES, Ack, Range, SEGMENT_IP_BYTES, SEGMENT_PAYLOAD_BYTES, Segment};
pub use sender::{Counts, Sender};
