//! Models of the TCP senders that share bottlenecks with the link: CUBIC, Reno and BBR, each also
//! with a bounded window.
//!
//! A connection is a [`Sender`] that always has data, and a [`Receiver`] that acknowledges every
//! segment or every second one. Segments and the time go in; segments and the next deadline come
//! out. There is no socket, no clock and no randomness, so equal paths give equal runs.
//!
//! The models have the mechanisms that decide about shares: selective acknowledgements,
//! retransmission timeouts, and the window laws. They detect losses by time (RFC 8985), and reduce
//! the window proportionally (RFC 9937). They lack the handshake, segmentation offload, ECN, the
//! undoing of cuts, and the receiver's window.
//!
//! Time is a `Duration` since any origin. Windows count segments of one size.

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
