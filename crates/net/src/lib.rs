//! TCP, pipes within the process, TLS, and the allow lists. The gateways and the mover share this
//! code.
//!
//! The crate contains no code for gateways, the link or FTP.

mod connection;
pub mod dial;
pub mod pipe;
pub mod socket;
pub mod target;
pub mod tls;
pub mod transparent;

pub use connection::{Connection, Listener};
