//! Everything that measures: the WAN emulator, and what runs over it.
#![allow(
    clippy::disallowed_methods,
    reason = "the lab drives the kernel in real time: it owns sockets, clocks and threads"
)]

pub mod bulk;
pub mod calc;
pub mod calibrate;
pub mod demo;
pub mod eval;
mod ftp;
pub mod gateways;
pub mod load;
pub mod machine;
mod page;
pub mod plot;
pub mod probe;
mod scratch;
pub mod stats;
pub mod table;
pub mod wan;
