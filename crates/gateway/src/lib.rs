//! The gateway: a daemon that is near for its own clients and far for its own servers.
//!
//! [`daemon::run`] is a function of its inputs: a checked [`config::Config`], bound sockets and a
//! shutdown future. FTP itself is in the `ftp` crate, the WAN in the `link` crate; what is here
//! connects them to TCP sockets.

pub mod config;
pub mod target;
pub mod wire;
