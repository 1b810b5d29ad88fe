//! A model of a WAN path. Packets go in with the time they were sent. They come out with the time
//! they arrive, or not at all.
//!
//! One [`Path`] is one direction. A packet passes three stages, in this order:
//!
//! 1. the bottleneck: a line with a rate and a byte-bounded FIFO queue (tail drop), and a policer
//!    after it,
//! 2. its fate, drawn as it leaves the bottleneck: outage, loss, corruption, duplication,
//! 3. propagation: a fixed delay, jitter, reordering.
//!
//! A [`Duplex`] is both directions. They may share a half-duplex radio medium ([`Radio`]), which
//! packets pass first.
//!
//! The model owns no socket, reads no clock and takes its seed as an argument. One implementation
//! therefore serves simulation (virtual time) and emulation (real time). Senders do congestion
//! control and retransmission.

mod bottleneck;
mod bucket;
mod config;
mod counters;
mod duplex;
mod fate;
mod flight;
mod medium;
mod path;
mod path_direction;
pub mod profile;

pub use config::{
    ETHERNET_OVERHEAD, GilbertElliott, Jitter, PathConfig, Policer, Radio, Reordering, Straggler,
};
pub use counters::Counters;
pub use duplex::Duplex;
pub use path::{Packet, Path};
pub use path_direction::PathDirection;
