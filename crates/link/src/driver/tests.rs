//! Tests with a driver that panics.

use units::ByteCount;

use super::*;
use crate::{Identity, PeerState, Policy};

const TIMEOUT: Duration = Duration::from_secs(10);

fn link(us: u8, other: u8, endpoint: Option<SocketAddr>) -> Link {
    let config = LinkConfig {
        identity: Identity::from_seed([us; 32]),
        peers: vec![PeerConfig {
            name: "other".into(),
            public_keys: vec![Identity::from_seed([other; 32]).public_key()],
            endpoint: endpoint.map(|address| address.to_string()),
            rate_max: None,
            is_guest: false,
        }],
        policy: Policy::Fair,
        rate_max: None,
        memory_max: ByteCount::mebibytes(16),
        idle_timeout: Duration::from_secs(30),
        memory_file: None,
    };
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    Link::start(socket, config).expect("it starts")
}

#[tokio::test]
async fn nobody_waits_for_a_driver_that_has_died() {
    let b = link(2, 1, None);
    let a = link(1, 2, Some(b.local_addr()));
    let opened = a.open(PeerId(0), StreamClass::Bulk).await;
    let (mut send, mut recv) = opened.expect("B answers");
    a.handle.bell.command(DriverCommand::Panic);
    let wait = async {
        assert_eq!(recv.read().await, Err(StreamError::Closed));
        assert_eq!(send.closed().await, Err(StreamError::Closed));
        assert!(a.accept().await.is_none(), "nothing more comes");
        let opened = a.open(PeerId(0), StreamClass::Bulk).await;
        assert_eq!(opened.err(), Some(StreamOpenError::Closed));
    };
    let waited = timeout(TIMEOUT, wait).await;
    waited.expect("nobody waits for long");
    let state = a.snapshot().peers[0].state;
    assert!(!matches!(state, PeerState::Up { .. }), "{state:?}");
}
