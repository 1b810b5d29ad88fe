//! Tests with peers that move to another address.

use super::*;

/// A challenge from the peer arrives before the peer's response to this side's challenge.
#[test]
fn a_challenge_is_answered_though_the_peer_is_found_elsewhere_meanwhile() {
    let (a_moved, b_moved) = (([10, 0, 0, 7], 1).into(), elsewhere());
    let mut sites = SitePair::new();
    sites.exchange(20);
    let to = |all: Vec<(SocketAddr, Vec<u8>)>, address: SocketAddr| {
        let all = all.into_iter().filter(move |(to, _)| *to == address);
        all.map(|(_, bytes)| bytes).collect::<Vec<_>>()
    };
    let hand_a = |sites: &mut SitePair, bytes: &[u8]| {
        let now = sites.now;
        sites.a.handle_datagram(&mut bytes.to_vec(), b_moved, now);
    };
    let remote = |endpoint: &Endpoint| {
        let connection = endpoint.connections.values().next();
        connection.expect("it is up").path.remote
    };
    // Both endpoints have moved, and send packets.
    sites.pass(Duration::from_secs(6));
    let (from_a, from_b) = (sites.sent_by_a(), sites.sent_by_b());
    for datagram in from_a {
        sites.hand_b(&datagram, a_moved);
    }
    for datagram in from_b {
        hand_a(&mut sites, &datagram);
    }
    // Each side challenges the other address. The first challenge from A is lost.
    let from_a = to(sent(&mut sites.a, sites.now), b_moved);
    assert_eq!(from_a.len(), 1, "a challenge");
    for datagram in to(sent(&mut sites.b, sites.now), a_moved) {
        hand_a(&mut sites, &datagram);
    }
    sites.pass(Duration::from_secs(1));
    let from_a = to(sent(&mut sites.a, sites.now), b_moved);
    assert_eq!(from_a.len(), 2, "an answer and a challenge");
    for datagram in from_a.iter().rev() {
        sites.hand_b(datagram, a_moved);
    }
    assert_eq!(remote(&sites.b), a_moved);
    assert_eq!(remote(&sites.a), at_b());
    for datagram in to(sent(&mut sites.b, sites.now), a_moved) {
        hand_a(&mut sites, &datagram);
    }
    assert_eq!(remote(&sites.a), b_moved, "B has answered at once");
}
