//! Test traffic that measures a path's properties: paced UDP with numbered packets, and bulk TCP.
//!
//! Arrival times come from the kernel (`SO_TIMESTAMPNS`). The kernel records the time of a packet
//! while the emulator's thread delivers the packet. A receiver that waits for a processor therefore
//! does not change the measured times.

mod tcp;
mod udp;

use std::{io, net::SocketAddr};

pub use tcp::tcp_goodput;
pub use udp::{FULL_PAYLOAD, LoadResult, UDP_OVERHEAD, UdpFlow, UdpLoad};

use crate::{Site, Wan, WanError};

/// Reason why traffic could not be sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The emulator failed.
    #[error(transparent)]
    Wan(#[from] WanError),
    /// A system call failed.
    #[error("{action}")]
    Io {
        /// Purpose of the system call.
        action: &'static str,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The traffic did not reach the state that should be measured, for example because the machine
    /// was overloaded.
    #[error("nothing to measure: {0}")]
    Nothing(String),
}

impl LoadError {
    /// Returns a function for `map_err` that adds the purpose of the failed system call.
    pub(crate) fn io<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io {
            action,
            source: source.into(),
        }
    }
}

/// Returns the address of a site with a port. Returns the IPv4 address if `ipv6` is false, or if
/// the site has no IPv6 address.
pub fn address(wan: &Wan, site: Site, ipv6: bool, port: u16) -> SocketAddr {
    let config = &wan.config().sites[site.index()];
    match config.ipv6.filter(|_| ipv6) {
        Some(address) => (address, port).into(),
        None => (config.ipv4, port).into(),
    }
}
