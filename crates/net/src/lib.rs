//! TCP, pipes within the process, TLS, and the rules for what may be connected: what the gateways and the mover share.
//!
//! The crate knows nothing of gateways, of the link, or of FTP.

#![warn(missing_docs)]

mod connection;
pub mod dial;
pub mod pipe;
pub mod socket;
pub mod target;
pub mod tls;
pub mod transparent;

pub use connection::{Connection, Listener};
