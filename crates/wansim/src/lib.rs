//! A model of a WAN path: packets go in with the time they were sent, and come out with the time
//! they arrive, or not at all.
//!
//! One [`Path`] is one direction. A packet passes three stages, in this order:
//!
//! 1. the bottleneck: a line of a given rate with a byte-bounded FIFO queue (tail drop), and a policer
//!    behind it,
//! 2. its fate, drawn as it leaves the bottleneck: outage, loss, corruption, duplication,
//! 3. propagation: a fixed delay, jitter, reordering.
//!
//! A [`Duplex`] is both directions, which may share a half-duplex radio medium ([`Radio`]): packets
//! pass that first.
//!
//! The model owns no socket, reads no clock and takes its seed as an argument, so one
//! implementation serves simulation (virtual time) and emulation (real time). Congestion control
//! and retransmission are the senders' business.
#![warn(missing_docs)]

mod bottleneck;
mod bucket;
mod config;
mod counters;
mod duplex;
mod fate;
mod flight;
mod medium;
mod path;
pub mod profile;
mod way;

pub use config::{
    ETHERNET_OVERHEAD, GilbertElliott, Jitter, PathConfig, Policer, Radio, Reordering, Straggler,
};
pub use counters::Counters;
pub use duplex::Duplex;
pub use path::{Packet, Path};
pub use way::Way;
