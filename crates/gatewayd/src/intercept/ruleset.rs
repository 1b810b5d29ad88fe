//! The nftables rules of one transparent listener, as text for `nft`.
//!
//! Each listener has its own table. The table's name contains the listener's port, so the gateway
//! can remove the complete table. The rules apply to packets that clients send to the servers
//! through this machine. They also apply to packets from the servers' FTP port, but to no other
//! packets. Connections that this machine opens itself are never intercepted.
//!
//! - A connection begins with a SYN. If the server's peer is up, the kernel redirects the SYN to
//!   the listener. Otherwise the SYN passes. A connection whose SYN has passed is never intercepted
//!   later.
//! - If a local socket has the server's address, the kernel delivers packets for that socket to
//!   this machine. This rule covers all later packets of control connections, and the data
//!   connections.
//! - A set in the table has one element while the peer is up. The element expires unless the
//!   gateway renews it. If the gateway hangs, the kernel stops intercepting after a few seconds.
//! - If the gateway is killed, its socket closes. Without a socket, the `tproxy` rule does not
//!   match, and new connections pass immediately.

use std::{fmt::Write as _, net::SocketAddr, time::Duration};

use ftp::logon::FTP_PORT;

use crate::config::{Config, FtpListener, Intercepted};
use net::target::Network;

/// The nftables rules of one transparent listener.
#[derive(Debug, Clone)]
pub(super) struct Ruleset {
    listen: SocketAddr,
    clients: Vec<Network>,
    intercepted: Intercepted,
}

impl Ruleset {
    pub(super) fn new(config: &Config, listener: &FtpListener) -> Self {
        Self {
            listen: listener.listen,
            clients: outermost(listener.clients.iter().flatten()),
            intercepted: config.intercepted(listener),
        }
    }

    /// Returns the name of the listener's nftables table.
    pub(super) fn table(&self) -> String {
        format!("longhaul_{}", self.listen.port())
    }

    /// Returns the mark of packets that the kernel delivers to this machine. The mark consists of
    /// "LH" and the listener's port. It is also the number of the routing table.
    pub(super) fn mark(&self) -> u32 {
        u32::from_be_bytes([b'L', b'H', 0, 0]) | u32::from(self.listen.port())
    }

    pub(super) fn listen(&self) -> SocketAddr {
        self.listen
    }

    pub(super) fn intercepted(&self) -> &Intercepted {
        &self.intercepted
    }

    /// Whether the listener intercepts any server with an address of this family (IPv4 or IPv6).
    pub(super) fn has_family(&self, ipv4: bool) -> bool {
        let mut networks = self.intercepted.networks();
        networks.any(|(network, _)| network.is_ipv4() == ipv4)
    }

    /// Returns the `nft` script that installs the table. The script replaces an existing table. No
    /// peer counts as up in the new table.
    pub(super) fn install(&self) -> String {
        let mut text = self.remove();
        // Writing to a String cannot fail.
        let _ = self.write_table(&mut text);
        text
    }

    /// Returns the `nft` script that removes the table. The script succeeds even if the table does
    /// not exist.
    pub(super) fn remove(&self) -> String {
        let table = self.table();
        format!("add table inet {table}\ndelete table inet {table}\n")
    }

    /// Returns the `nft` script that marks the given peers as up for the next [`EXPIRY`].
    pub(super) fn refresh(&self, is_up: impl Fn(usize) -> bool) -> String {
        let table = self.table();
        let mut text = String::new();
        for peer in self.intercepted.peers() {
            let _ = writeln!(text, "flush set inet {table} up_{peer}");
            if is_up(peer) {
                let (port, expiry_s) = (FTP_PORT, EXPIRY.as_secs());
                let _ = writeln!(
                    text,
                    "add element inet {table} up_{peer} {{ {port} timeout {expiry_s}s }}"
                );
            }
        }
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        let mark = self.mark();
        let own_port = self.listen.port();
        writeln!(text, "table inet {} {{", self.table())?;
        for peer in self.intercepted.peers() {
            writeln!(
                text,
                " set up_{peer} {{ type inet_service; flags timeout; }}"
            )?;
        }
        let servers = outermost(self.intercepted.networks().map(|(network, _)| network));
        writeln!(
            text,
            " chain prerouting {{ type filter hook prerouting priority mangle; policy accept;"
        )?;
        for (family, networks) in families(&servers) {
            writeln!(
                text,
                "  meta l4proto tcp {family} daddr {{ {networks} }} goto to_servers"
            )?;
        }
        // Packets from servers, on connections that the gateway has opened with a client's address.
        for (family, networks) in families(&servers) {
            writeln!(
                text,
                "  {family} saddr {{ {networks} }} tcp sport {FTP_PORT} \
                 socket transparent 1 meta mark set {mark:#x} accept"
            )?;
        }
        writeln!(text, " }}\n chain to_servers {{")?;
        writeln!(text, "  fib daddr type local accept")?;
        writeln!(
            text,
            "  tcp flags & (fin|syn|rst|ack) == syn tcp dport {FTP_PORT} jump begin"
        )?;
        // The listener's own socket has every address, and would match all packets to its port.
        writeln!(
            text,
            "  tcp dport != {own_port} socket transparent 1 meta mark set {mark:#x} accept"
        )?;
        writeln!(text, " }}\n chain begin {{")?;
        for (family, networks) in families(&self.clients) {
            if self.has_family(family == "ip") {
                writeln!(text, "  {family} saddr != {{ {networks} }} return")?;
            }
        }
        let to = if self.listen.ip().is_unspecified() {
            format!(":{own_port}")
        } else {
            self.listen.to_string()
        };
        for (network, peers) in self.intercepted.networks() {
            let family = family(network);
            for peer in peers {
                writeln!(
                    text,
                    "  {family} daddr {network} tcp dport @up_{peer} \
                     tproxy {family} to {to} meta mark set {mark:#x} accept"
                )?;
            }
            writeln!(text, "  {family} daddr {network} return")?;
        }
        writeln!(text, " }}\n}}")
    }
}

fn family(network: &Network) -> &'static str {
    if network.is_ipv4() { "ip" } else { "ip6" }
}

/// Returns each address family that occurs in `networks`, with its networks as the elements of an
/// `nft` set.
fn families(networks: &[Network]) -> impl Iterator<Item = (&'static str, String)> {
    ["ip", "ip6"].into_iter().filter_map(|name| {
        let texts = networks.iter().filter(|network| family(network) == name);
        let texts: Vec<_> = texts.map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| (name, texts.join(", ")))
    })
}

/// Returns the networks that no other network contains, because `nft` refuses sets with overlapping
/// networks.
fn outermost<'a>(networks: impl Iterator<Item = &'a Network>) -> Vec<Network> {
    let networks: Vec<_> = networks.collect();
    let mut kept: Vec<Network> = Vec::new();
    for network in &networks {
        let mut others = networks.iter().filter(|other| *other != network);
        if !others.any(|other| other.covers(network)) && !kept.contains(network) {
            kept.push(**network);
        }
    }
    kept
}

/// Time after which the kernel stops intercepting if the gateway hangs. It is three times the
/// interval of the updates.
const EXPIRY: Duration = Duration::from_secs(3);

#[cfg(test)]
#[path = "ruleset_tests.rs"]
mod tests;
