//! Attacks on a handshake by third parties.

mod connections;
mod crowd;
mod endpoint_pair;
mod hostile_peer;
mod moves;
mod shared_cap;
mod versions;
mod wake_ups;
#[cfg(feature = "sim")]
mod wake_ups_in_vain;
mod withholding_peer;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use units::ByteCount;

use super::{Endpoint, EndpointConfig, EndpointPeer, RestartState};
use crate::{
    AMPLIFICATION_MAX, Identity, StreamClass,
    congestion::FixedRate,
    handshake::envelope::{CookieReply, EnvelopeKey, Hello},
    version::FrameVersion,
    wire::packet::{ConnectionId, HANDSHAKE, HELLO},
};

const UNIX_NS: u64 = 1_700_000_000_000_000_000;

fn endpoint(us: u8, other: u8, epoch: Instant) -> Endpoint {
    started(us, other, epoch, UNIX_NS)
}

/// Returns an endpoint that is started at time `unix_ns` of the system clock. Its instance number
/// is the same at each start, so that the peer detects no restart.
fn started(us: u8, other: u8, epoch: Instant, unix_ns: u64) -> Endpoint {
    instance(us, other, epoch, unix_ns, u64::from(us))
}

fn instance(us: u8, other: u8, epoch: Instant, unix_ns: u64, instance: u64) -> Endpoint {
    Endpoint::new(config(us, other, unix_ns, instance), epoch).expect("seeded keys are valid")
}

fn config(us: u8, other: u8, unix_ns: u64, instance: u64) -> EndpointConfig {
    EndpointConfig {
        identity: Identity::from_seed([us; 32]),
        peers: vec![EndpointPeer {
            public_keys: vec![Identity::from_seed([other; 32]).public_key()],
            has_endpoint: us < other,
            rate_max: None,
            is_guest: false,
        }],
        rate_max: None,
        memory_max: ByteCount::mebibytes(64),
        idle_timeout: Duration::from_secs(600),
        seed: u64::from(us) ^ unix_ns,
        instance,
        generation: None,
        remembered: RestartState::default(),
        unix_ns,
        controller: Arc::new(|_, _| Box::new(FixedRate::new(1e6))),
    }
}

/// Two endpoints A and B that are peers of each other. All datagrams sent by B are recorded, each
/// with its destination.
struct SitePair {
    a: Endpoint,
    b: Endpoint,
    now: Instant,
    sent_by_b: Vec<(SocketAddr, Vec<u8>)>,
    /// 1 if B began the connection, else 0.
    b_began: u32,
}

impl SitePair {
    /// Creates both endpoints. The first handshake of A is due.
    fn new() -> Self {
        Self::of_versions(FrameVersion::LATEST, FrameVersion::LATEST)
    }

    /// Creates both endpoints. A supports versions up to `of_a`, and B up to `of_b`.
    fn of_versions(of_a: FrameVersion, of_b: FrameVersion) -> Self {
        #[expect(clippy::disallowed_methods, reason = "any origin does")]
        let now = Instant::now();
        let mut a = endpoint(1, 2, now);
        let mut b = endpoint(2, 1, now);
        for (endpoint, version) in [(&mut a, of_a), (&mut b, of_b)] {
            if version == FrameVersion::V2 {
                endpoint.speak_version_2();
            }
        }
        a.set_address(0, Some(at_b()), now);
        Self {
            a,
            b,
            now,
            sent_by_b: Vec::new(),
            b_began: 0,
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.a.handle_timeout(self.now);
        self.b.handle_timeout(self.now);
    }

    fn sent_by_a(&mut self) -> Vec<Vec<u8>> {
        let sent = sent(&mut self.a, self.now);
        sent.into_iter().map(|(_, bytes)| bytes).collect()
    }

    /// Returns the datagrams that B sends to A now, and records all datagrams that B sends.
    fn sent_by_b(&mut self) -> Vec<Vec<u8>> {
        let sent = sent(&mut self.b, self.now);
        let for_a = sent.iter().filter(|(to, _)| *to == at_a());
        let for_a = for_a.map(|(_, bytes)| bytes.clone()).collect();
        self.sent_by_b.extend(sent);
        for_a
    }

    /// Returns the number of bytes that B has sent to each address.
    fn bytes_by_address(&self) -> HashMap<SocketAddr, usize> {
        let mut bytes = HashMap::new();
        for (to, datagram) in &self.sent_by_b {
            *bytes.entry(*to).or_default() += datagram.len();
        }
        bytes
    }

    /// Exchanges packets between A and B for `rounds` periods of 10 ms.
    fn exchange(&mut self, rounds: u32) {
        for _ in 0..rounds {
            self.pass(Duration::from_millis(10));
            for datagram in self.sent_by_a() {
                self.hand_b(&datagram, at_a());
            }
            for datagram in self.sent_by_b() {
                self.hand_a(&datagram);
            }
        }
    }

    fn hand_a(&mut self, bytes: &[u8]) {
        let now = self.now;
        self.a.handle_datagram(&mut bytes.to_vec(), at_b(), now);
    }

    fn hand_b(&mut self, bytes: &[u8], from: SocketAddr) {
        let now = self.now;
        self.b.handle_datagram(&mut bytes.to_vec(), from, now);
    }
}

fn sent(endpoint: &mut Endpoint, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut all = Vec::new();
    let mut out = Vec::new();
    while let Some(transmit) = endpoint.poll_transmit(&mut out, 1, now) {
        let datagrams = out.chunks(transmit.segment_bytes);
        all.extend(datagrams.map(|bytes| (transmit.to, bytes.to_vec())));
        out.clear();
    }
    all
}

fn at_a() -> SocketAddr {
    ([10, 0, 0, 1], 1).into()
}

fn at_b() -> SocketAddr {
    ([10, 0, 0, 2], 1).into()
}

/// Returns the MAC key for hellos from A. Anyone who has both public keys can derive it.
fn envelope() -> EnvelopeKey {
    let public = |seed: u8| Identity::from_seed([seed; 32]).public_key();
    EnvelopeKey::new(&public(2), &public(1))
}

fn elsewhere() -> SocketAddr {
    ([198, 51, 100, 66], 5).into()
}

/// An attacker who has both public keys copies the peer's first flight. The copy has a timestamp
/// far in the future, and comes from another address.
#[test]
fn a_forged_repetition_of_a_first_flight_moves_nothing() {
    let mut sites = SitePair::new();
    let key = envelope();
    let mut forged = 0;
    for _ in 0..50 {
        sites.pass(Duration::from_millis(10));
        for datagram in sites.sent_by_a() {
            let copy = (datagram[0] == HELLO).then(|| {
                let mut hello = Hello::read(&datagram).expect("it is our own");
                hello.timestamp = 1 << 61;
                let mut copy = Vec::new();
                hello.put(&mut copy, &key);
                copy
            });
            sites.hand_b(&datagram, at_a());
            if let Some(copy) = copy {
                forged += 1;
                sites.hand_b(&copy, elsewhere());
            }
        }
        for datagram in sites.sent_by_b() {
            sites.hand_a(&datagram);
        }
    }
    assert!(forged > 0 && sites.b.is_up(0), "connected");
    assert_eq!(sites.b.peer_view(0).address, Some(at_a()));
    let newest = sites.b.remembered(sites.now).replay.newest[0]
        .1
        .began_unix_ns;
    assert!((UNIX_NS..UNIX_NS + 1_000_000_000).contains(&newest));
}

/// An attacker on the path copies each packet and sends the copy at once from another address.
#[test]
fn what_comes_twice_in_a_handshake_is_answered_once() {
    let mut sites = SitePair::new();
    let mut seen = Vec::new();
    let mut copied = [0; 2];
    for _ in 0..50 {
        sites.pass(Duration::from_millis(10));
        for datagram in sites.sent_by_a() {
            sites.hand_b(&datagram, at_a());
            seen.push(datagram);
            for old in &seen {
                copied[0] += usize::from(old[0] == HELLO);
                copied[1] += usize::from(old[0] == HANDSHAKE);
                sites.hand_b(old, elsewhere());
            }
        }
        // The answers need some time, so the handshake is still in progress when the copies arrive.
        if seen.len() > 6 {
            for datagram in sites.sent_by_b() {
                sites.hand_a(&datagram);
            }
        }
    }
    assert!(sites.b.is_up(0), "connected");
    assert!(copied.iter().all(|copies| *copies > 0), "{copied:?}");
    assert_eq!(sites.bytes_by_address().get(&elsewhere()), None);
}

/// The peer itself begins one handshake after another, always with the same instance number.
#[test]
fn a_peer_has_four_connections_at_most() {
    let mut sites = SitePair::new();
    let start = sites.now;
    let mut established = 0;
    for round in 1..=20 {
        let unix_ns = UNIX_NS + round * 1_000_000_000;
        sites.a = started(1, 2, sites.now, unix_ns);
        sites.a.set_address(0, Some(at_b()), sites.now);
        sites.exchange(20);
        established += u32::from(sites.a.is_up(0));
        assert!(sites.b.connections.len() <= 4);
    }
    assert_eq!(established, 20, "in {:?}", sites.now - start);
    assert_eq!(sites.b.connections.len(), 4);
    assert!(sites.b.attempts.len() <= 4);
}

/// An attacker sends a copy of a first flight from another address before the original arrives.
#[test]
fn an_address_gets_three_times_what_came_from_there() {
    let mut sites = SitePair::new();
    sites.pass(Duration::from_millis(10));
    let first = sites.sent_by_a();
    let mut from_a = 0;
    for datagram in &first {
        from_a += datagram.len();
        sites.hand_b(datagram, at_a());
    }
    sites.sent_by_b();
    sites.pass(Duration::from_millis(40));
    let next = sites.sent_by_a();
    let brought = next.first().expect("it repeats its flight");
    sites.hand_b(brought, elsewhere());
    for _ in 0..200 {
        sites.pass(Duration::from_millis(50));
        sites.sent_by_b();
    }
    let bytes = sites.bytes_by_address();
    let sent_to = |address| bytes.get(&address).copied().unwrap_or(0);
    let least = sent_to(at_a()).min(sent_to(elsewhere()));
    assert!(least > 0, "{bytes:?}");
    assert!(sent_to(at_a()) <= 3 * from_a);
    assert!(sent_to(elsewhere()) <= 3 * brought.len());
}

/// First flights with valid MACs, from an attacker who has both public keys. The TLS bytes are
/// copied from a real first flight.
struct Flood {
    template: Vec<u8>,
    count: u32,
}

impl Flood {
    fn new(sites: &mut SitePair) -> Self {
        sites.pass(Duration::from_millis(1));
        let template = sites.sent_by_a().swap_remove(0);
        assert_eq!(template[0], HELLO);
        Self { template, count: 0 }
    }

    fn next(&mut self, cookie: Option<[u8; 16]>) -> Vec<u8> {
        self.count += 1;
        let mut hello = Hello::read(&self.template).expect("it is A's own");
        hello.source = ConnectionId(self.count.to_be_bytes());
        hello.timestamp += u64::from(self.count);
        hello.cookie = cookie;
        let mut out = Vec::new();
        hello.put(&mut out, &envelope());
        out
    }
}

#[test]
fn a_flood_from_invented_addresses_does_not_keep_the_peer_out() {
    let mut sites = SitePair::new();
    let mut flood = Flood::new(&mut sites);
    let mut waited = 0;
    for round in 0..200u32 {
        for which in 0..100u32 {
            let invented = ([198, 51, 100, which as u8], 1 + round as u16).into();
            sites.hand_b(&flood.next(None), invented);
        }
        assert!(sites.b.attempts.len() <= 4);
        // A's next attempt begins during the flood.
        if round < 20 {
            sites.pass(Duration::from_millis(10));
            sites.sent_by_a();
            sites.sent_by_b();
        } else if !sites.b.is_up(0) {
            sites.exchange(1);
            waited += 1;
        }
    }
    assert!(
        sites.b.is_up(0) && waited < 40,
        "A waited for {waited} rounds"
    );
    let crowded = sites.b.dropped().crowded;
    assert!(crowded > 5_000, "{crowded}");
    let length = flood.template.len();
    let bytes = sites.bytes_by_address();
    let invented = bytes.iter().filter(|(address, _)| **address != at_a());
    let answered: Vec<_> = invented
        .map(|(_, bytes)| *bytes)
        .filter(|bytes| *bytes > CookieReply::SIZE)
        .collect();
    assert!(answered.len() <= 4, "TLS was begun for few: {answered:?}");
    assert!(answered.iter().all(|bytes| *bytes <= 3 * length));
}

#[test]
fn a_host_that_shows_cookies_takes_one_place() {
    let mut sites = SitePair::new();
    let mut flood = Flood::new(&mut sites);
    let mut cookie = None;
    for _ in 0..100 {
        sites.hand_b(&flood.next(cookie), elsewhere());
        sites.sent_by_b();
        let replies = sites.sent_by_b.iter().rev();
        let mut replies = replies.filter_map(|(_, bytes)| CookieReply::read(bytes).ok());
        cookie = replies.next().map(|reply| reply.cookie).or(cookie);
        sites.pass(Duration::from_millis(10));
        sites.sent_by_a();
    }
    assert!(cookie.is_some());
    let proven = sites
        .b
        .attempts
        .values()
        .filter(|it| it.proven.is_some())
        .count();
    assert_eq!((sites.b.attempts.len(), proven), (3, 1));
    // From another address the cookie is worthless.
    let began = sites.b.attempts.len();
    sites.hand_b(&flood.next(cookie), ([198, 51, 100, 67], 5).into());
    assert_eq!(sites.b.attempts.len(), began);
    sites.exchange(30);
    assert!(sites.b.is_up(0));
}

#[test]
fn a_cookie_with_a_wrong_key_time_or_connection_is_ignored() {
    let mut sites = SitePair::new();
    sites.pass(Duration::from_millis(10));
    let sent = sites.sent_by_a();
    let hello = Hello::read(&sent[0]).expect("it is A's own");
    let reply = CookieReply {
        to: hello.source,
        timestamp: hello.timestamp,
        cookie: [7; 16],
    };
    let public = |seed: u8| Identity::from_seed([seed; 32]).public_key();
    let wrong_key = EnvelopeKey::new(&public(3), &public(1));
    let before = CookieReply {
        timestamp: UNIX_NS - 1,
        ..reply
    };
    let other = CookieReply {
        to: ConnectionId([9; 4]),
        ..reply
    };
    for (reply, key) in [
        (reply, wrong_key),
        (before, envelope()),
        (other, envelope()),
    ] {
        let mut datagram = Vec::new();
        reply.put(&mut datagram, &key);
        sites.hand_a(&datagram);
        assert!(sites.sent_by_a().is_empty(), "{reply:?}");
    }
    let dropped = sites.a.dropped();
    let counts = (
        dropped.bad_mac,
        dropped.replayed,
        dropped.unknown_connection,
    );
    assert_eq!(counts, (1, 1, 1));
    let mut datagram = Vec::new();
    reply.put(&mut datagram, &envelope());
    for repetition in 0..2 {
        sites.hand_a(&datagram);
        let shown = sites.sent_by_a();
        let expected = if repetition == 0 { sent.len() } else { 0 };
        assert_eq!(shown.len(), expected, "at once, and once");
        for bytes in shown {
            let hello = Hello::read(&bytes).expect("it is A's own");
            assert_eq!(hello.cookie, Some([7; 16]));
        }
    }
}

#[test]
fn an_idle_peer_that_dies_is_found_out_as_soon_as_the_keep_alive_says() {
    let keep_alive = Duration::from_millis(200);
    let mut sites = SitePair::new();
    sites.exchange(50);
    sites.a.set_keep_alive(keep_alive);
    sites.exchange(100);
    assert!(sites.a.is_up(0), "the peer answers");
    let heard = sites.now;
    while sites.a.is_up(0) {
        sites.pass(Duration::from_millis(10));
        sites.sent_by_a();
    }
    let took = sites.now - heard;
    let due = keep_alive + Duration::from_millis(500);
    assert!(took > keep_alive / 2 && took <= due, "{took:?}");
}

#[test]
fn an_unreachable_error_causes_one_probe_and_closes_nothing_by_itself() {
    let mut sites = SitePair::new();
    sites.exchange(50);
    sites.pass(Duration::from_millis(130));
    sites.sent_by_a();
    sites.a.handle_unreachable(elsewhere().ip(), sites.now);
    assert!(sites.sent_by_a().is_empty(), "that is another host");
    sites.a.handle_unreachable(at_b().ip(), sites.now);
    assert!(sites.a.is_up(0), "anybody may have said so");
    assert_eq!(sites.sent_by_a().len(), 1, "a question");
    for _ in 0..100 {
        sites.a.handle_unreachable(at_b().ip(), sites.now);
    }
    assert!(sites.sent_by_a().is_empty(), "one is enough");
    sites.pass(Duration::from_millis(30));
    assert!(sites.a.is_up(0), "the question may have been lost");
    sites.exchange(200);
    assert!(sites.a.is_up(0), "the peer answers the second one");

    sites.pass(Duration::from_millis(130));
    sites.a.handle_unreachable(at_b().ip(), sites.now);
    let asked = sites.now;
    while sites.a.is_up(0) {
        sites.pass(Duration::from_millis(10));
        sites.sent_by_a();
    }
    let took = sites.now - asked;
    assert!(took <= Duration::from_millis(300), "{took:?}");
}

#[test]
fn slots_of_one_byte_fill_a_stream_by_the_memory_of_their_records() {
    let mut sites = SitePair::new();
    sites.exchange(20);
    let key = sites
        .a
        .open(0, StreamClass::Bulk, sites.now)
        .expect("B is up");
    let at_first = sites.a.writable(key);
    let mut written = 0;
    // Each byte is sent in a slot of its own, with unlimited credit, and no slot arrives.
    while sites.a.writable(key) > 0 && written < at_first {
        sites.a.write(key, Bytes::from_static(b"x"));
        let connection = sites.a.connections.values_mut().next().expect("it is up");
        let stream = connection.streams.get(key.stream).expect("it is open");
        stream.send.set_credit(1 << 40);
        stream.send.take_new(1, &mut Vec::new());
        written += 1;
    }
    assert!(written > 1000, "{written} bytes are not many");
    assert!(
        written < at_first / 16,
        "{written} records where {at_first} bytes may wait"
    );
}
