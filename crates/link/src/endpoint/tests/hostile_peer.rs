//! Attacks by a peer that has all keys of its own connection.

use super::*;
use crate::{
    EndpointEvent,
    wire::{
        frame::{self, Frame},
        report::{ArrivalSample, Report},
        varint,
    },
};

/// Returns a packet with `payload`, encrypted with B's keys.
pub(super) fn sealed_by_b(sites: &mut SitePair, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(sites.b.seal_payload(0, payload, &mut out, sites.now));
    out
}

pub(super) fn payload(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.put(&mut out);
    out
}

/// Returns A's connection to B.
pub(super) fn connection_of_a(sites: &mut SitePair) -> &mut crate::connection::Connection {
    sites.a.connections.values_mut().next().expect("A is up")
}

/// Returns the number of bytes that A sends to each address in the next `rounds` periods of 10 ms.
/// B sends nothing meanwhile.
fn sent_by_a_in(sites: &mut SitePair, rounds: u32) -> HashMap<SocketAddr, usize> {
    let mut bytes = HashMap::new();
    for _ in 0..rounds {
        sites.pass(Duration::from_millis(10));
        for (to, datagram) in sent(&mut sites.a, sites.now) {
            *bytes.entry(to).or_default() += datagram.len();
        }
    }
    bytes
}

/// Opens a bulk stream from A and writes a megabyte to it.
fn a_sends_much(sites: &mut SitePair) -> super::super::StreamKey {
    let key = sites
        .a
        .open(0, StreamClass::Bulk, sites.now)
        .expect("B is up");
    sites.a.write(key, Bytes::from(vec![1; 1_000_000]));
    key
}

pub(super) fn victim() -> SocketAddr {
    ([203, 0, 113, 9], 7).into()
}

#[test]
fn a_peer_cannot_answer_a_challenge_that_it_did_not_receive() {
    let mut sites = SitePair::new();
    sites.exchange(50);
    a_sends_much(&mut sites);
    let ping = sealed_by_b(&mut sites, &payload(&Frame::Ping));
    let now = sites.now;
    sites.a.handle_datagram(&mut ping.clone(), victim(), now);
    // The peer guesses tokens from a packet number and the number of packets that have arrived.
    for number in 0..2000u64 {
        let mut guesses = Vec::new();
        for received in 0..100u32 {
            let token = number ^ u64::from(received).rotate_left(32);
            Frame::Response(token.to_be_bytes()).put(&mut guesses);
        }
        let guesses = sealed_by_b(&mut sites, &guesses);
        sites.a.handle_datagram(&mut guesses.clone(), victim(), now);
    }
    assert_eq!(connection_of_a(&mut sites).path.remote, at_b());
    let victims = sent_by_a_in(&mut sites, 100).remove(&victim());
    let brought = 2000 * 900;
    assert!(victims.unwrap_or(0) < brought / 100, "{victims:?}");
}

#[test]
fn a_peer_that_reports_everything_unseen_is_detected_within_a_thousand_packets() {
    let mut sites = SitePair::new();
    sites.exchange(50);
    let key = a_sends_much(&mut sites);
    connection_of_a(&mut sites)
        .streams
        .get(key.stream)
        .expect("it is open")
        .send
        .set_credit(1 << 30);
    let mut sent_packets = 0;
    while !sites.a.connections.is_empty() && sent_packets < 5000 {
        sites.pass(Duration::from_millis(10));
        sent_packets += sites.sent_by_a().len();
        let Some(connection) = sites.a.connections.values().next() else {
            break;
        };
        let next = connection.next_number();
        if sites.a.writable(key) > 0 {
            sites.a.write(key, Bytes::from(vec![1; 100_000]));
        }
        // The report of B is false: B has received none of these packets.
        let low = next.saturating_sub(500);
        let mut blocks = Vec::new();
        varint::put(&mut blocks, next - 1 - low);
        varint::put(&mut blocks, next - low);
        blocks.push(crate::wire::report::RUNS);
        varint::put(&mut blocks, next - low);
        let front = ArrivalSample {
            number: next - 1,
            time_us: 0,
        };
        let mut lie = Vec::new();
        frame::put_feedback_type(&mut lie);
        Report::new(next - 1, front, 0, 0)
            .with_parts(&[], &blocks)
            .put(&mut lie);
        let lie = sealed_by_b(&mut sites, &lie);
        sites.hand_a(&lie);
    }
    assert!(sites.a.connections.is_empty(), "A goes on");
    assert!(sent_packets < 1200, "{sent_packets}");
}

#[test]
fn a_last_flight_from_elsewhere_sends_no_data_there() {
    let mut sites = SitePair::new();
    // The peer is A here, and B answers.
    let mut has_moved = false;
    let mut brought = 0;
    for _ in 0..200 {
        sites.pass(Duration::from_millis(10));
        for datagram in sites.sent_by_a() {
            if sites.b.connections.is_empty() && datagram[0] == HANDSHAKE {
                has_moved = true;
                brought += datagram.len();
                sites.hand_b(&datagram, victim());
            } else if !has_moved {
                sites.hand_b(&datagram, at_a());
            }
        }
        for datagram in sites.sent_by_b() {
            sites.hand_a(&datagram);
        }
        if !sites.b.connections.is_empty() {
            break;
        }
    }
    assert!(has_moved && !sites.b.connections.is_empty(), "B is up");
    let key = sites
        .b
        .open(0, StreamClass::Bulk, sites.now)
        .expect("A is up");
    sites.b.write(key, Bytes::from(vec![1; 500_000]));
    for _ in 0..200 {
        sites.pass(Duration::from_millis(10));
        sites.sent_by_b();
    }
    let victims = sites.bytes_by_address().remove(&victim()).unwrap_or(0);
    assert!(victims <= AMPLIFICATION_MAX * brought, "{victims} bytes");

    // The peer receives data at its own address.
    let before = sites.bytes_by_address().remove(&at_a()).unwrap_or(0);
    sites.exchange(200);
    let after = sites.bytes_by_address().remove(&at_a()).unwrap_or(0);
    assert!(after - before > 500_000, "{} bytes", after - before);
}

#[test]
fn a_stream_that_goes_on_cannot_be_called_done() {
    let mut sites = SitePair::new();
    sites.exchange(50);
    let key = a_sends_much(&mut sites);
    let done = payload(&Frame::Done { stream: key.stream });
    let done = sealed_by_b(&mut sites, &done);
    sites.hand_a(&done);
    let mut events = Vec::new();
    while let Some(event) = sites.a.poll_event() {
        events.push(event);
    }
    let is_lost = |event: &EndpointEvent| matches!(event, EndpointEvent::Lost { key: lost, .. } if *lost == key);
    assert!(events.iter().any(is_lost), "{events:?}");
}

#[test]
fn a_peer_that_asks_for_long_reports_again_and_again_gets_few() {
    let mut sites = SitePair::new();
    sites.exchange(50);
    // Every second packet of B is missing.
    for _ in 0..30_000 {
        sealed_by_b(&mut sites, &payload(&Frame::Ping));
        let ping = sealed_by_b(&mut sites, &payload(&Frame::Ping));
        sites.hand_a(&ping);
    }
    sent_by_a_in(&mut sites, 100);
    let ask = payload(&Frame::TellFrom { number: 0 });
    let mut bytes = 0;
    let mut asked = 0;
    let began = sites.now;
    while sites.now - began < Duration::from_secs(2) {
        let question = sealed_by_b(&mut sites, &ask);
        asked += question.len();
        sites.hand_a(&question);
        bytes += sent_by_a_in(&mut sites, 1).values().sum::<usize>();
    }
    assert!(bytes > 7_000, "the first question is answered");
    assert!(bytes < 1_000_000, "{bytes} bytes for {asked}");
}

#[test]
fn a_peer_that_lets_us_say_nothing_cannot_make_us_remember_what_we_have_to_say() {
    let mut sites = SitePair::new();
    sites.exchange(50);
    let crawl = payload(&Frame::RateMax { bytes_per_s: 1 });
    let crawl = sealed_by_b(&mut sites, &crawl);
    sites.hand_a(&crawl);
    let hash = xxhash_rust::xxh3::xxh3_64(b"x");
    let mut waiting_max = 0;
    let mut streams = 0;
    for count in 0..5_000 {
        let stream = count << 2 | 2;
        let mut frames = Vec::new();
        frame::put_chunk(&mut frames, stream, 0, 1);
        frames.push(b'x');
        let end = Frame::End {
            stream,
            chunks: 1,
            bytes: 1,
            hash,
        };
        end.put(&mut frames);
        let frames = sealed_by_b(&mut sites, &frames);
        sites.hand_a(&frames);
        while let Some(event) = sites.a.poll_event() {
            if let EndpointEvent::Readable { key } = event {
                streams += 1;
                while let crate::StreamRead::Data(_) = sites.a.read(key, 100, sites.now) {}
                sites.a.finish(key);
            }
        }
        let done = payload(&Frame::Done { stream });
        let done = sealed_by_b(&mut sites, &done);
        sites.hand_a(&done);
        sent_by_a_in(&mut sites, 1);
        let connections = sites.a.connections.values();
        let waiting = connections.map(|it| it.streams.controls.len()).sum();
        waiting_max = waiting_max.max(waiting);
    }
    assert!(streams > 100, "they were opened, read and ended: {streams}");
    // For each stream, two frames may wait: the end record, and the frame that states that the
    // peer's bytes were read.
    let streams_max = crate::stream::memory::streams_max(64 << 20) as usize;
    assert!(waiting_max <= 4 * streams_max, "{waiting_max} frames wait");
}

/// On each of eight streams of B, sends one byte to A in every 16th slot. The first slot is
/// missing, so A must store all these slots.
fn fill_memory(sites: &mut SitePair) {
    for count in 0..8 {
        for index in (16..5_700).step_by(16) {
            let mut frames = Vec::new();
            frame::put_chunk(&mut frames, count << 2 | 2 | sites.b_began, index, 1);
            frames.push(b'x');
            let frames = sealed_by_b(sites, &frames);
            sites.hand_a(&frames);
        }
    }
}

#[test]
fn connections_of_a_peer_take_its_memory_together() {
    let mut sites = SitePair::new();
    sites.exchange(50);
    let used_bytes = |sites: &SitePair| {
        let connections = sites.a.connections.values();
        connections
            .map(|it| it.streams.memory.used_bytes())
            .sum::<u64>()
    };
    fill_memory(&mut sites);
    assert!(
        used_bytes(&sites) > 40 << 20,
        "{} bytes",
        used_bytes(&sites)
    );
    // The peer connects again, and does not report a restart.
    sites.b = endpoint(2, 1, sites.now);
    sites.b.config.unix_ns += 10_000_000_000;
    sites.b.peers[0].has_endpoint = true;
    sites.b_began = 1;
    sites.b.set_address(0, Some(at_a()), sites.now);
    sites.exchange(50);
    assert_eq!(sites.a.connections.len(), 2, "the old one stands beside");
    fill_memory(&mut sites);
    let used_bytes = used_bytes(&sites);
    assert!(used_bytes <= 64 << 20, "{used_bytes} bytes");
    assert!(sites.b.is_up(0));
}
