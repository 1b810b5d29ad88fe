//! The servers whose connections a transparent listener intercepts, and the peers that reach each
//! of them.
//!
//! Packets carry addresses, so only the addresses and networks of `serves` count. The most specific
//! network decides, as for any other target.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr},
};

use super::PeerSettings;
use net::target::{Network, ServesPattern};

/// The servers whose connections a transparent listener intercepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Intercepted {
    /// Each network with its peers, by index and in file order. Longer prefixes of a family come
    /// first.
    networks: Vec<(Network, Vec<usize>)>,
}

impl Intercepted {
    /// Returns the servers for a transparent listener at `listen`. All `peers`, or only the peer
    /// `via`, serve them. An address family without a listener or without clients is omitted.
    pub(crate) fn new(
        peers: &[PeerSettings],
        via: Option<usize>,
        listen: SocketAddr,
        clients: &[Network],
    ) -> Self {
        let is_reachable = |network: &Network| match listen.ip() {
            IpAddr::V4(_) => network.is_ipv4(),
            IpAddr::V6(ip) => ip.is_unspecified() || !network.is_ipv4(),
        };
        let has_clients =
            |network: &Network| clients.iter().any(|c| c.is_ipv4() == network.is_ipv4());
        let mut networks: Vec<(Network, Vec<usize>)> = Vec::new();
        for (index, peer) in peers.iter().enumerate() {
            if via.is_some_and(|via| via != index) {
                continue;
            }
            for pattern in peer.serves.iter().flatten() {
                let ServesPattern::Network(network) = pattern else {
                    continue;
                };
                if !is_reachable(network) || !has_clients(network) {
                    continue;
                }
                match networks.iter_mut().find(|(known, _)| known == network) {
                    Some((_, peers)) if peers.contains(&index) => {}
                    Some((_, peers)) => peers.push(index),
                    None => networks.push((*network, vec![index])),
                }
            }
        }
        networks.sort_by_key(|(network, _)| (!network.is_ipv4(), Reverse(network.prefix_bits())));
        Self { networks }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Returns each network with its peers. A network within another one precedes it.
    pub(crate) fn networks(&self) -> impl Iterator<Item = (&Network, &[usize])> {
        self.networks
            .iter()
            .map(|(network, peers)| (network, peers.as_slice()))
    }

    /// Returns the peers of all intercepted servers.
    pub(crate) fn peers(&self) -> BTreeSet<usize> {
        self.networks
            .iter()
            .flat_map(|(_, peers)| peers.iter().copied())
            .collect()
    }
}

impl fmt::Display for Intercepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("intercepted servers: ")?;
        for (at, (network, _)) in self.networks.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{network}")?;
        }
        Ok(())
    }
}
