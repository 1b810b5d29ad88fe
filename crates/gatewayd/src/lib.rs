//! The gateway daemon. It is the near gateway for its own clients and the far gateway for its own
//! servers.
//!
//! [`daemon::run`] depends only on its inputs: a checked [`config::Config`], bound sockets and a
//! shutdown future. The crate `ftp` implements FTP, and the crate `link` implements the transport
//! over the WAN. This crate connects FTP and the link to TCP sockets.

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

use std::sync::OnceLock;

/// Sets the version text that status pages show. The text contains the commit of the build. The
/// program calls this function once, before it runs a gateway.
pub fn set_build(version: &'static str) {
    BUILD.get_or_init(|| version);
}

/// Returns the version and the commit of the program. Returns an empty text if they are unknown.
pub(crate) fn build() -> &'static str {
    BUILD.get().copied().unwrap_or_default()
}

static BUILD: OnceLock<&'static str> = OnceLock::new();

/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
