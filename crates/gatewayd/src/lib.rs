//! The gateway: a daemon that is the near gateway for its own clients and the far gateway for its
//! own servers.
//!
//! [`daemon::run`] is a function of its inputs: a checked [`config::Config`], bound sockets and a
//! shutdown future. FTP itself is in the `ftp` crate, the WAN in the `link` crate. This crate
//! connects both to TCP sockets.

pub mod admin;
pub mod admin_socket;
mod audit;
mod bound_sockets;
pub mod config;
pub mod daemon;
mod dashboard;
pub mod enrolment;
pub mod intercept;
mod listener_id;
mod listeners;
pub mod register;
pub mod reload;
mod running;
pub mod upgrade;

/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
