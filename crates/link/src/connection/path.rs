//! Measurements and state of the path to the peer. All of them are discarded when the peer moves to
//! another host.

use std::{net::SocketAddr, time::Duration};

use super::{mtu::Mtu, pacer::Pacer, peer_clock::PeerClock, rtt::Rtt};
use crate::{congestion::Controller, time::Time};

/// State of the path to the peer.
pub(crate) struct Path {
    pub(crate) remote: SocketAddr,
    /// Whether the peer has proved that it receives packets at `remote`.
    pub(super) is_remote_proven: bool,
    pub(super) mtu: Mtu,
    pub(super) rtt: Rtt,
    pub(super) peer_clock: PeerClock,
    pub(crate) controller: Box<dyn Controller>,
    pub(super) pacer: Pacer,
    /// Number of packets of the present packet train that are still to be sent.
    pub(super) train_left: usize,
}

impl Path {
    /// Creates a path on which no packet has been sent. The round-trip time is a guess.
    pub(super) fn new(
        remote: SocketAddr,
        is_remote_proven: bool,
        rtt: Duration,
        controller: Box<dyn Controller>,
        now: Time,
    ) -> Self {
        Self {
            remote,
            is_remote_proven,
            mtu: Mtu::new(remote.ip()),
            rtt: Rtt::new(rtt),
            peer_clock: PeerClock::default(),
            pacer: Pacer::new(controller.rate_bytes_per_s(), now),
            controller,
            train_left: 0,
        }
    }

    /// Changes the address of the peer to `address`. Returns whether the new address belongs to
    /// another host.
    ///
    /// If only the port changes, the path stays the same (RFC 9000 section 9.4).
    pub(super) fn move_to(&mut self, address: SocketAddr) -> bool {
        let is_elsewhere = self.remote.ip().to_canonical() != address.ip().to_canonical();
        self.remote = address;
        self.is_remote_proven = true;
        is_elsewhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::FixedRate;

    fn path(remote: &str) -> Path {
        let remote = remote.parse().expect("it is an address");
        let controller = Box::new(FixedRate::new(1e6));
        let rtt = Duration::from_millis(100);
        Path::new(remote, false, rtt, controller, Time::default())
    }

    #[test]
    fn another_port_is_on_the_same_path_and_another_host_is_not() {
        for (to, is_elsewhere) in [
            ("10.0.0.1:2", false),
            ("[::ffff:10.0.0.1]:1", false),
            ("10.0.0.2:1", true),
            ("[2001:db8::1]:1", true),
        ] {
            let mut path = path("10.0.0.1:1");
            let to = to.parse().expect("it is an address");
            assert_eq!(path.move_to(to), is_elsewhere, "{to}");
            assert!(path.is_remote_proven && path.remote == to);
        }
    }
}
