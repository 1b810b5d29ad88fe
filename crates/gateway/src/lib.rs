//! The gateway: a daemon that is the near gateway for its own clients and the far gateway for its
//! own servers.
//!
//! [`daemon::run`] is a function of its inputs: a checked [`config::Config`], bound sockets and a
//! shutdown future. FTP itself is in the `ftp` crate, the WAN in the `link` crate; this crate
//! connects both to TCP sockets.

pub mod admin;
pub mod admin_socket;
mod audit;
mod bound;
pub mod config;
mod control;
pub mod daemon;
mod dashboard;
mod doors;
mod drain;
pub mod enrolment;
mod far;
mod forward;
pub mod intercept;
mod known_servers;
pub mod limits;
mod near;
pub mod optimise;
mod pairing;
mod peer_versions;
mod place;
mod pump;
pub mod register;
pub mod reload;
mod running;
pub mod settings;
mod shared;
pub mod spool;
pub mod status;
mod time;
pub mod transfer_log;
mod truncation;
pub mod upgrade;
pub mod wire;

/// Of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
