//! Fuzz target: datagrams to a single endpoint. The datagrams are noise, hellos with correct or
//! wrong MACs and arbitrary fields, and replies to the endpoint's own hello.
//!
//! Invariants: the endpoint does not panic. The endpoint does not reply to a datagram that no known
//! peer could have made.

use std::{
    net::SocketAddr,
    sync::OnceLock,
    time::{Duration, Instant},
};

use link::{
    Endpoint, EndpointConfig, EndpointEvent, EndpointPeer, Identity, Policy, PublicKey, congestion,
    fuzzing::{HelloFields, hello},
};
use units::ByteCount;

use crate::Tape;

/// Runs one input, which contains a flag and the arriving datagrams. The flag makes the endpoint
/// open a connection.
pub fn run(data: &[u8]) {
    let mut tape = Tape::new(data);
    let has_endpoint = tape.byte() & 1 == 1;
    let (us, peer, stranger) = keys();
    let start = Instant::now();
    let mut endpoint = endpoint(us, &[peer.public_key()], has_endpoint, 1, start);
    let from: SocketAddr = ([10, 77, 0, 2], 4810).into();
    let mut now = start;
    let mut may_answer = has_endpoint;
    let mut our_id = [0; 4];
    for _ in 0..64 {
        if tape.is_over() {
            break;
        }
        let (we, they) = (us.public_key(), peer.public_key());
        let mut fields = HelloFields {
            initiator: &they,
            responder: &we,
            answers: None,
            timestamp: UNIX_NS + u64::from(tape.byte()),
            source: [tape.byte() % 4, 0, 0, 1],
            cookie: None,
            crypto_offset: 0,
            crypto: &[],
        };
        let mut datagram = match tape.byte() % 8 {
            0 => tape.slice().to_vec(),
            1 => {
                // A hello with arbitrary content.
                may_answer = true;
                fields.cookie = (tape.byte() & 1 == 1).then_some([7; 16]);
                fields.crypto_offset = tape.short();
                fields.crypto = tape.slice();
                hello(&fields)
            }
            2 => {
                // A part of a valid hello.
                may_answer = true;
                let whole = client_hello();
                let at = usize::from(tape.short()) % whole.len();
                let len = usize::from(tape.short()) % 1200;
                fields.crypto_offset = at as u16;
                fields.crypto = &whole[at..(at + len).min(whole.len())];
                hello(&fields)
            }
            3 => {
                may_answer = true;
                fields.crypto = client_hello();
                hello(&fields)
            }
            4 => {
                // The peer replies to the endpoint's own hello.
                fields.answers = Some(our_id);
                (fields.initiator, fields.responder) = (&we, &they);
                fields.crypto_offset = tape.short();
                fields.crypto = tape.slice();
                hello(&fields)
            }
            5 => {
                // Keys of an unknown peer.
                let stranger = stranger.public_key();
                fields.initiator = &stranger;
                fields.crypto = client_hello();
                hello(&fields)
            }
            6 => {
                // Packets for a connection that the endpoint has opened.
                let first = [0xd1, 0x43, 0xc3][usize::from(tape.byte() % 3)];
                [&[first], &our_id[..], tape.slice()].concat()
            }
            _ => {
                now += Duration::from_millis(1 << tape.below(15));
                endpoint.handle_timeout(now);
                Vec::new()
            }
        };
        endpoint.handle_datagram(&mut datagram, from, now);
        while let Some(event) = endpoint.poll_event() {
            if let EndpointEvent::Resolve { peer } = event {
                endpoint.set_address(peer, Some(from), now);
            }
        }
        let mut sent = Vec::new();
        for _ in 0..16 {
            sent.clear();
            let Some(transmit) = endpoint.poll_transmit(&mut sent, 4, now) else {
                break;
            };
            assert!(may_answer, "{} bytes to a stranger", sent.len());
            assert!(transmit.segment_bytes <= sent.len());
            if sent[0] == 0xc1 {
                our_id.copy_from_slice(&sent[17..21]);
            }
        }
        let _ = endpoint.next_timeout(now);
    }
}

/// Returns the TLS bytes of a valid hello.
fn client_hello() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let (us, peer, _) = keys();
        let now = Instant::now();
        let mut endpoint = endpoint(peer, &[us.public_key()], true, 2, now);
        endpoint.handle_timeout(now);
        while endpoint.poll_event().is_some() {}
        endpoint.set_address(0, Some(([10, 77, 0, 1], 4810).into()), now);
        let mut crypto = Vec::new();
        let mut datagram = Vec::new();
        while endpoint.poll_transmit(&mut datagram, 1, now).is_some() {
            crypto.extend_from_slice(&datagram[23..datagram.len() - 16]);
            datagram.clear();
        }
        assert!(!crypto.is_empty(), "a first flight was made");
        crypto
    })
}

fn keys() -> &'static (Identity, Identity, Identity) {
    static KEYS: OnceLock<(Identity, Identity, Identity)> = OnceLock::new();
    KEYS.get_or_init(|| [[1; 32], [2; 32], [3; 32]].map(Identity::from_seed).into())
}

/// Creates an endpoint with small buffers.
pub(crate) fn endpoint(
    us: &Identity,
    peer_keys: &[PublicKey],
    has_endpoint: bool,
    instance: u64,
    epoch: Instant,
) -> Endpoint {
    let config = EndpointConfig {
        identity: us.clone(),
        peers: vec![EndpointPeer {
            public_keys: peer_keys.to_vec(),
            has_endpoint,
            rate_max: None,
            is_guest: false,
        }],
        rate_max: None,
        memory_max: ByteCount::mebibytes(2),
        idle_timeout: Duration::from_secs(30),
        seed: instance,
        instance,
        generation: None,
        remembered: link::RestartState::default(),
        unix_ns: UNIX_NS + (instance << 20),
        controller: std::sync::Arc::new(|memory, rate_max| {
            congestion::for_policy(Policy::Fair, memory, rate_max)
        }),
    };
    Endpoint::new(config, epoch).expect("seeded keys are valid")
}

const UNIX_NS: u64 = 1_700_000_000_000_000_000;

/// Returns first inputs for the fuzzer: each kind of datagram, alone and in sequence.
pub fn seeds() -> Vec<Vec<u8>> {
    let instruction = |kind: u8, rest: &[u8]| [&[9, 1, kind], rest].concat();
    let noise = instruction(0, &[10, 0x43, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let any = instruction(1, &[1, 0, 0, 5, 1, 0, 0, 1, 2]);
    let part = instruction(2, &[0, 0, 1, 0]);
    let rest = instruction(2, &[1, 0, 4, 176]);
    let honest = instruction(3, &[]);
    let answer = instruction(4, &[0, 0, 5, 2, 0, 0, 1, 2]);
    let stranger = instruction(5, &[]);
    let packet = instruction(
        6,
        &[0, 30, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
    );
    let time = instruction(7, &[8]);
    vec![
        [&[0], &noise[..], &stranger, &time].concat(),
        [&[0], &any[..], &time, &any].concat(),
        [&[0], &part[..], &rest, &time, &part].concat(),
        [&[0], &honest[..], &time, &honest, &packet, &time].concat(),
        [&[1], &time[..], &answer, &packet, &time, &honest, &time].concat(),
    ]
}
