//! Resolver of the names of peers.

use std::{io, net::ToSocketAddrs, sync::Arc};

use super::{Doorbell, DriverCommand};

/// Looks up `endpoint` and commands the driver to use the result. It blocks, so it runs in a thread
/// of its own. With several addresses each attempt gets the next one.
pub(super) fn spawn(
    endpoint: String,
    is_v6: bool,
    attempt: usize,
    peer: usize,
    bell: Arc<Doorbell>,
) -> io::Result<()> {
    let look_up = move || {
        let resolved = endpoint.to_socket_addrs();
        let usable: Vec<_> = resolved
            .into_iter()
            .flatten()
            .filter(|address| is_v6 || address.is_ipv4())
            .collect();
        let address = usable.get(attempt % usable.len().max(1)).copied();
        if address.is_none() {
            tracing::warn!(%endpoint, "the peer's endpoint has no address that we can use");
        }
        bell.command(DriverCommand::Address { peer, address });
    };
    std::thread::Builder::new()
        .name("longhaul-dns".into())
        .spawn(look_up)?;
    Ok(())
}
