//! Test traffic that shows a path's properties: paced UDP with numbered packets, and bulk TCP.
//!
//! Arrival times come from the kernel (`SO_TIMESTAMPNS`), which takes them on the emulator's own
//! thread. A receiver that waits for a processor therefore does not make the path look slow.

mod tcp;
mod udp;

use std::{io, net::SocketAddr};

pub use tcp::tcp_goodput;
pub use udp::{FULL_PAYLOAD, LoadResult, UDP_OVERHEAD, UdpFlow, UdpLoad};

use crate::{Site, Wan, WanError};

/// Why traffic could not be sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The emulator failed.
    #[error(transparent)]
    Wan(#[from] WanError),
    /// A system call failed.
    #[error("{action}")]
    Io {
        /// The purpose of the call.
        action: &'static str,
        /// Error of the call.
        #[source]
        source: io::Error,
    },
    /// The traffic did not reach the state to measure, for example on an overloaded machine.
    #[error("nothing to measure: {0}")]
    Nothing(String),
}

impl LoadError {
    /// For `map_err`: states the purpose of a failed system call.
    pub(crate) fn io<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io {
            action,
            source: source.into(),
        }
    }
}

/// A site's address; the IPv4 address if the site has no other.
pub fn address(wan: &Wan, site: Site, ipv6: bool, port: u16) -> SocketAddr {
    let config = &wan.config().sites[site.index()];
    match config.ipv6.filter(|_| ipv6) {
        Some(address) => (address, port).into(),
        None => (config.ipv4, port).into(),
    }
}
