//! Traffic that shows what a path does: paced UDP with numbered packets, and bulk TCP.
//!
//! When a packet arrived is the kernel's word (`SO_TIMESTAMPNS`): the emulator's own thread passes it
//! there, so a receiver that waits for a processor does not make the path look slow.

mod tcp;
mod udp;

use std::{io, net::SocketAddr};

pub use tcp::tcp_goodput;
pub use udp::{FULL_PAYLOAD, Received, UDP_OVERHEAD, UdpFlow, UdpLoad};

use crate::{Site, Wan, WanError};

/// Why traffic could not be sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The emulator failed.
    #[error(transparent)]
    Wan(#[from] WanError),
    /// A socket failed.
    #[error("{action}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The failure.
        #[source]
        source: io::Error,
    },
    /// The traffic did not bring about what was to be measured, as on a machine without time for it.
    #[error("nothing to measure: {0}")]
    Nothing(String),
}

impl LoadError {
    /// For `map_err`: says what was being done when a system call failed.
    pub(crate) fn io<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io {
            action,
            source: source.into(),
        }
    }
}

/// A site's address; that of IPv4 where it has no other.
pub fn address(wan: &Wan, site: Site, ipv6: bool, port: u16) -> SocketAddr {
    let config = &wan.config().sites[site.index()];
    match config.ipv6.filter(|_| ipv6) {
        Some(address) => (address, port).into(),
        None => (config.ipv4, port).into(),
    }
}
