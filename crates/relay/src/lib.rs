//! Services over a link between two gateways: FTP sessions and forwards, at the near and at the far
//! gateway.
//!
//! A [`Relay`] serves clients at its listeners, and the streams that peers open. The crate `ftp`
//! contains the FTP protocol. The crate `link` contains the WAN transport. This crate connects both
//! with TCP sockets. The daemon contains the configuration file, the admin interface and the
//! packaging.

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
pub mod session_memory;
pub mod settings;
pub mod spool;
pub mod status;
pub mod time;
pub mod transfer_log;
mod truncation;
pub mod wire;

pub use failed_logins::AUDIT;
pub use gateway_context::ReachError;
pub use relay::{CodedStreamId, Relay, RelayBuilder, Sessions};

/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
