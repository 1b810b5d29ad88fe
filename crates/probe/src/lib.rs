//! Measurements between two hosts. The probe opens connections as users' programs do.
//!
//! Each module implements one kind of measurement. The input is a set of settings, and the output
//! is one record for each trial. A failed trial also has a record. Summaries and plots are computed
//! from records. The caller sets up the path between the hosts, with or without gateways.
//!
//! All work runs on the calling thread and on threads that it starts. Therefore all sockets belong
//! to the calling thread's network namespace. The crate does not resolve names.
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
