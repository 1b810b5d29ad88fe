//! A model of a WAN path. The caller sends packets with their sending times. The model returns each
//! packet at its arrival time, unless it drops the packet.
//!
//! One [`Path`] is one direction. A packet passes three stages, in this order:
//!
//! 1. the bottleneck: a transmitter with a rate and a byte-bounded FIFO queue (tail drop), followed
//!    by a policer,
//! 2. random impairments as the packet leaves the bottleneck: outage, loss, corruption,
//!    duplication,
//! 3. propagation: a fixed delay, jitter, reordering.
//!
//! A [`Duplex`] consists of both directions. The directions may share a half-duplex radio medium
//! ([`Radio`]), which packets pass first.
//!
//! The model owns no socket, reads no clock and takes its seed as an argument. One implementation
//! therefore serves simulation (virtual time) and emulation (real time). Congestion control and
//! retransmission are tasks of the senders.

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
