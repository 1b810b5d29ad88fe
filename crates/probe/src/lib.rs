//! Measurements between two hosts, made as users' programs would make them.
//!
//! Each module is one kind of measurement: settings go in, and a record comes out for each trial,
//! whether it succeeded or failed. Summaries and plots are made from records alone. The path, the
//! network alone or a pair of gateways, is the caller's business.
//!
//! All work happens on the calling thread and on threads that it starts, and so in its network
//! namespace. Nothing here resolves names.
#![allow(
    clippy::disallowed_methods,
    reason = "measures in real time: sockets, clocks and threads"
)]

pub mod arrivals;
pub mod bulk;
mod clock;
pub mod compare;
pub mod datagram;
mod error;
mod failure;
pub mod ftp;
pub mod hello;
mod line;
mod payload;
pub mod peer;
pub mod ping;
mod sys;
mod task;
pub mod tcp;
pub mod transaction;
pub mod udp;

pub use arrivals::Arrivals;
pub use error::ProbeError;
pub use failure::{Failure, FailureKind};
pub use payload::Payload;
pub use peer::ProbePeer;
pub use sys::TcpInfo;
