//! The gateway: a daemon that is near for its own clients and far for its own servers.
//!
//! [`daemon::run`] is a function of its inputs: a checked [`config::Config`], bound sockets and a
//! shutdown future. FTP itself is in the `ftp` crate, the WAN in the `link` crate; what is here
//! connects them to TCP sockets.

mod admin;
pub mod config;
mod control;
pub mod daemon;
mod far;
pub mod intercept;
pub mod limits;
mod near;
mod relay;
mod reload;
mod shared;
mod socket;
pub mod status;
pub mod target;
mod time;
pub mod tls;
mod truncation;
pub mod wire;
