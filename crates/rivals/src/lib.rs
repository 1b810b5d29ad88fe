//! Models of the TCP senders that share bottlenecks with the link: CUBIC, Reno, BBR, and any of them
//! with a bounded window.
//!
//! A connection is a [`Sender`] that always has data and a [`Receiver`] that answers every segment, or
//! every second. Segments and the time go in, segments and the next deadline come out; there is no
//! socket, no clock and no chance, so equal paths give equal runs. What is modelled is what decides
//! about shares: selective acknowledgements, loss detection by time (RFC 8985), proportional rate
//! reduction (RFC 9937), retransmission timeouts, and the window laws. What is not: the handshake,
//! segmentation offload, ECN, undoing of cuts, the receiver's window.
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
