//! The servers whose connections a transparent listener intercepts, and the peers that reach each
//! server.
//!
//! Packets contain addresses and no host names. Therefore only the addresses and networks in
//! `serves` have an effect. If several networks contain an address, the most specific network
//! determines the peer.

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
    /// Each network, with the indices of its peers in the order of the file. Networks of one
    /// address family are sorted, the longest prefix first.
    networks: Vec<(Network, Vec<usize>)>,
}

impl Intercepted {
    /// Returns the servers that a transparent listener at `listen` intercepts. If `via` is given,
    /// includes only the servers of this peer. Omits an address family (IPv4 or IPv6) for which the
    /// listener has no address or no clients.
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

    /// Returns each network with the indices of its peers. If one network contains another, the
    /// smaller network comes first.
    pub(crate) fn networks(&self) -> impl Iterator<Item = (&Network, &[usize])> {
        self.networks
            .iter()
            .map(|(network, peers)| (network, peers.as_slice()))
    }

    /// Returns the indices of all peers that reach intercepted servers.
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
