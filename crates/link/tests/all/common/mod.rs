//! Helpers for tests with real sockets.
#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "test programs share it; tests own sockets"
)]

use std::{net::UdpSocket, time::Duration};

use link::{Identity, LinkConfig, PeerConfig, Policy};
use units::{BitRate, ByteCount};

/// Returns the configuration of a link with one peer. `us` and `other` are the seeds of the keys.
pub fn config(us: u8, other: u8, endpoint: Option<String>) -> LinkConfig {
    LinkConfig {
        identity: Identity::from_seed([us; 32]),
        peers: vec![PeerConfig {
            name: format!("site-{other}"),
            public_keys: vec![Identity::from_seed([other; 32]).public_key()],
            endpoint,
            rate_max: None,
            is_guest: false,
        }],
        policy: Policy::Fair,
        rate_max: Some(BitRate::gbit(1)),
        memory_max: ByteCount::mebibytes(256),
        idle_timeout: Duration::from_secs(30),
        memory_file: None,
    }
}

/// Returns a socket bound to a free port of the loopback interface.
pub fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound")
}
