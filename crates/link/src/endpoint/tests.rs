//! What others can do to a handshake.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use units::ByteCount;

use super::{Endpoint, EndpointConfig, EndpointPeer, ReplayMemory};
use crate::{
    Identity,
    congestion::FixedRate,
    handshake::envelope::{EnvelopeKey, Hello},
};

const UNIX_NS: u64 = 1_700_000_000_000_000_000;

fn endpoint(us: u8, other: u8, epoch: Instant) -> Endpoint {
    let config = EndpointConfig {
        identity: Identity::from_seed([us; 32]),
        peers: vec![EndpointPeer {
            public_keys: vec![Identity::from_seed([other; 32]).public_key()],
            has_endpoint: us < other,
            rate_max: None,
        }],
        rate_max: None,
        memory_max: ByteCount::mebibytes(64),
        idle_timeout: Duration::from_secs(600),
        seed: u64::from(us),
        instance: u64::from(us),
        replay_memory: ReplayMemory::default(),
        unix_ns: UNIX_NS,
        pacing_quantum: Duration::from_micros(250),
        controller: Box::new(|_, _| Box::new(FixedRate::new(1e6))),
    };
    Endpoint::new(config, epoch).expect("seeded keys are valid")
}

fn datagrams(endpoint: &mut Endpoint, now: Instant) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut out = Vec::new();
    while let Some(transmit) = endpoint.poll_transmit(&mut out, 1, now) {
        all.extend(out.chunks(transmit.segment_bytes).map(<[u8]>::to_vec));
        out.clear();
    }
    all
}

/// A stranger who knows both public keys copies the peer's first flight, with a timestamp far in the
/// future and from elsewhere.
#[test]
fn a_forged_repetition_of_a_first_flight_moves_nothing() {
    #[expect(clippy::disallowed_methods, reason = "any origin does")]
    let epoch = Instant::now();
    let (mut a, mut b) = (endpoint(1, 2, epoch), endpoint(2, 1, epoch));
    let address = |text: &str| text.parse::<SocketAddr>().expect("it is well formed");
    let (at_a, at_b, elsewhere) = (
        address("10.0.0.1:1"),
        address("10.0.0.2:1"),
        address("198.51.100.66:5"),
    );
    let public = |seed: u8| Identity::from_seed([seed; 32]).public_key();
    let key = EnvelopeKey::new(&public(2), &public(1));
    a.set_address(0, Some(at_b), epoch);
    let mut forged = 0;
    let mut now = epoch;
    for _ in 0..50 {
        now += Duration::from_millis(10);
        a.handle_timeout(now);
        b.handle_timeout(now);
        for mut datagram in datagrams(&mut a, now) {
            let copy = (datagram[0] == 0xc1).then(|| {
                let mut hello = Hello::read(&datagram).expect("it is our own");
                hello.timestamp = 1 << 61;
                let mut copy = Vec::new();
                hello.put(&mut copy, &key);
                copy
            });
            b.handle_datagram(&mut datagram, at_a, now);
            if let Some(mut copy) = copy {
                forged += 1;
                b.handle_datagram(&mut copy, elsewhere, now);
            }
        }
        for mut datagram in datagrams(&mut b, now) {
            a.handle_datagram(&mut datagram, at_b, now);
        }
    }
    assert!(forged > 0 && b.is_up(0), "connected");
    assert_eq!(b.peer_view(0).address, Some(at_a));
    let newest = b.replay_memory(now).newest[0].1.began_unix_ns;
    assert!((UNIX_NS..UNIX_NS + 1_000_000_000).contains(&newest));
}
