//! The near and the far end of services over a link between two gateways: FTP sessions and
//! forwards.
//!
//! A [`Relay`] serves clients at its listeners, and the streams that peers open. FTP itself is in
//! the `ftp` crate, the WAN in the `link` crate. This crate connects both to TCP sockets.
//! Configuration file, admin interface and packages belong to the daemon.

mod control_connection;
mod drain;
mod failed_logins;
pub mod far;
mod forward;
mod gateway_context;
mod known_servers;
pub mod limits;
pub mod near;
pub mod optimise;
mod pairing;
mod peer_versions;
mod pump;
mod relay;
pub mod service;
pub mod settings;
pub mod spool;
pub mod status;
pub mod time;
pub mod transfer_log;
mod truncation;
pub mod wire;

pub use failed_logins::AUDIT;
pub use gateway_context::ReachError;
pub use relay::{Relay, RelayBuilder, Sessions};

/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
