//! Resolver of peer names.

use std::{io, net::ToSocketAddrs, sync::Arc};

use super::{Doorbell, DriverCommand};

/// Resolves the name `endpoint` and sends the address to the driver. Resolution blocks, so it runs
/// in a separate thread. If the name has several addresses, successive attempts use different
/// addresses.
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
