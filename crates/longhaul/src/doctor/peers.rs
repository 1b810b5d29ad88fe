//! Findings about peers: whether each peer answers, and probable causes if a peer does not answer.
#![allow(
    clippy::disallowed_methods,
    reason = "sends a datagram to each endpoint"
)]

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _, UdpSocket},
    time::Duration,
};

use gatewayd::config::Config;
use nix::sys::socket::{getsockopt, sockopt::IpMtu};
use relay::{
    status::{GatewaySnapshot, PeerStatus},
    time::utc,
};

use super::Findings;

pub(super) fn examine(
    config: &Config,
    snapshot: Option<&GatewaySnapshot>,
    findings: &mut Findings,
) {
    let peers = config.relay.peers.iter().zip(&config.relay.link.peers);
    let peers = peers.filter(|(peer, _)| !peer.is_guest());
    let mut count = 0;
    for (peer, of_link) in peers {
        count += 1;
        let what = format!("peer {}", peer.name);
        let status = snapshot.and_then(|it| it.peers.iter().find(|it| it.name == peer.name));
        let is_up = status.is_some_and(|it| it.state == "up");
        if let Some(status) = status.filter(|_| is_up) {
            let rtt = status
                .base_rtt_ms
                .map_or(String::new(), |it| format!(", RTT {it:.1} ms"));
            findings.good(&*what, format!("it answers{rtt}"));
        }
        let reached = of_link
            .endpoint
            .as_deref()
            .map(|it| reach(it, &what, is_up, findings));
        if let Some(status) = status.filter(|_| !is_up) {
            let has_other_cause = reached == Some(false);
            silent(
                status,
                of_link.endpoint.as_deref(),
                has_other_cause,
                &what,
                findings,
            );
        }
    }
    if count == 0 {
        findings.wrong(
            "peers",
            "there is none",
            "longhaul peer invite here, and longhaul setup near on the other machine",
        );
    }
    if let Some(snapshot) = snapshot {
        strangers(config, snapshot, findings);
    }
}

/// Checks that an endpoint resolves to an address, that a route exists, and that a program listens.
/// Returns false if the check found a fault.
fn reach(endpoint: &str, what: &str, is_up: bool, findings: &mut Findings) -> bool {
    let addresses = endpoint.to_socket_addrs();
    let Some(address) = addresses.ok().and_then(|mut it| it.next()) else {
        findings.wrong(
            what,
            format!("its endpoint {endpoint} has no address"),
            "see that the name is right: getent hosts NAME; or write the address in its place",
        );
        return false;
    };
    match knock(address) {
        Ok(mtu) if mtu < MTU_MIN => findings.doubtful(
            what,
            format!("the route to {address} carries packets of {mtu} bytes alone"),
            format!(
                "a tunnel on the way may be set to more: ip route get {}",
                address.ip()
            ),
        ),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !is_up => {
            findings.wrong(
                what,
                format!("no program listens at UDP {address}"),
                "start the gateway there, and see that its [link] listen and this endpoint have the same port",
            );
            return false;
        }
        Err(error) if !is_up => {
            findings.wrong(
                what,
                format!("no datagram can be sent to {address}: {error}"),
                format!("ip route get {} shows whether there is a way", address.ip()),
            );
            return false;
        }
        Err(_) => {}
    }
    true
}

/// Sends one byte to a gateway, which ignores it. Returns the path's MTU from this machine's
/// routing table, or [`MTU_MIN`] with IPv6. Returns an error if no route exists or no program
/// listens.
fn knock(address: SocketAddr) -> io::Result<i32> {
    let any = match address {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(ICMP_TIMEOUT))?;
    socket.send(&[0])?;
    // A gateway does not answer this byte. If no program listens, an ICMP message causes an error.
    match socket.recv(&mut [0; 64]) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(error),
        _ => {}
    }
    match address {
        SocketAddr::V4(_) => Ok(getsockopt(&socket, IpMtu).unwrap_or(MTU_MIN)),
        SocketAddr::V6(_) => Ok(MTU_MIN),
    }
}

fn silent(
    status: &PeerStatus,
    endpoint: Option<&str>,
    has_other_cause: bool,
    what: &str,
    findings: &mut Findings,
) {
    if has_other_cause {
        return;
    }
    let since = status.last_answer_unix_s.map(utc);
    match (endpoint, status.state.as_str()) {
        (_, "dismissed") => findings.wrong(
            what,
            "this gateway is no longer a peer of it: the operator there has removed it",
            "ask there for an invite (longhaul peer invite), and run longhaul setup near with it",
        ),
        (Some(endpoint), "connecting" | "refused") if since.is_some() => findings.wrong(
            what,
            format!(
                "it answered before, at {} last, and no connection stands now",
                since.unwrap_or_default()
            ),
            format!("check that the machine and the gateway at {endpoint} run"),
        ),
        (Some(endpoint), "silent") => findings.wrong(
            what,
            format!(
                "it answered before, at {} last, and is silent now",
                since.unwrap_or_default()
            ),
            format!("check that the machine and the gateway at {endpoint} run"),
        ),
        (Some(endpoint), _) => findings.wrong(
            what,
            format!(
                "it never answered at {endpoint}: UDP does not get through, a key is wrong, or the operator there has removed \
                 this gateway"
            ),
            "let UDP in at that port there, and run longhaul doctor there: it reports a wrong key. longhaul pubkey \
             KEY_FILE on each machine must print the public_key in the other one's configuration",
        ),
        (None, _) => findings.wrong(
            what,
            "it has not connected",
            "run longhaul doctor there; this gateway waits, as the peer has no endpoint here",
        ),
    }
}

/// Reports dropped handshakes. Each had a wrong key or looked like a replay.
fn strangers(config: &Config, snapshot: &GatewaySnapshot, findings: &mut Findings) {
    let dropped = &snapshot.dropped;
    let is_waiting = snapshot.peers.iter().any(|it| it.state != "up");
    if dropped.unknown_key > 0 && is_waiting {
        findings.wrong(
            "keys",
            format!("{} handshakes came with a key that no peer has here, or to a key that is not this gateway's", dropped.unknown_key),
            format!(
                "the peer's [[peer]] section of this gateway must have public_key = \"{}\", and the one here the key \
                 that longhaul pubkey prints there",
                config.relay.link.identity.public_key()
            ),
        );
    }
    if dropped.bad_mac > 0 && is_waiting {
        findings.wrong(
            "keys",
            format!(
                "{} handshakes of a peer were made for another key than this gateway's",
                dropped.bad_mac
            ),
            format!(
                "the peer's [[peer]] section of this gateway must have public_key = \"{}\"",
                config.relay.link.identity.public_key()
            ),
        );
    }
    if dropped.replayed > 0 && is_waiting {
        let file = config.key_file.with_added_extension("replay");
        findings.wrong(
            "replays",
            format!(
                "{} handshakes of a peer look like old ones: its clock was ahead once",
                dropped.replayed
            ),
            format!("stop this gateway, remove {}, and start it", file.display()),
        );
    }
}

/// Timeout for an ICMP error, which arrives within one round trip.
const ICMP_TIMEOUT: Duration = Duration::from_secs(1);

/// Smallest MTU that a path with usual tunnels has.
const MTU_MIN: i32 = 1400;
