//! Attacks by a peer that sends no reports or conceals losses.

use super::{
    hostile_peer::{connection_of_a, payload, sealed_by_b, victim},
    *,
};
use crate::{
    EndpointEvent, StreamKey, StreamRead,
    wire::{
        frame::{self, Frame},
        report::{self, ArrivalSample, Report},
        varint,
    },
};

/// Returns a bulk stream of A with unlimited credit, so that only the congestion window limits it.
fn unbounded_stream(sites: &mut SitePair) -> StreamKey {
    let key = sites
        .a
        .open(0, StreamClass::Bulk, sites.now)
        .expect("B is up");
    let connection = connection_of_a(sites);
    let stream = connection.streams.get(key.stream).expect("it is open");
    stream.send.set_credit(1 << 30);
    key
}

fn fill(sites: &mut SitePair, key: StreamKey) {
    while sites.a.writable(key) > 0 {
        sites.a.write(key, Bytes::from(vec![1; 100_000]));
    }
}

/// Sends slots of one byte to A, which reads them and therefore grants credit. Returns the number
/// of bytes sent on the path.
fn provoke_credit(sites: &mut SitePair, round: u64, from: SocketAddr) -> usize {
    let mut frames = Vec::new();
    for slot in 0..8 {
        frame::put_chunk(&mut frames, 0, round * 8 + slot, 1);
        frames.push(b'x');
    }
    let mut packet = sealed_by_b(sites, &frames);
    let now = sites.now;
    sites.a.handle_datagram(&mut packet, from, now);
    while let Some(event) = sites.a.poll_event() {
        if let EndpointEvent::Readable { key } = event {
            while let StreamRead::Data(_) = sites.a.read(key, 1000, now) {}
        }
    }
    packet.len()
}

/// Regression test: each control frame was sent in a packet filled with bulk data, so 15 times the
/// congestion window was in flight.
#[test]
fn frames_of_control_let_no_bulk_pass_the_window() {
    let mut sites = SitePair::new();
    sites.exchange(50);
    let key = unbounded_stream(&mut sites);
    let mut full_rounds = 0;
    for round in 0..600 {
        provoke_credit(&mut sites, round, at_b());
        fill(&mut sites, key);
        let connection = connection_of_a(&mut sites);
        let window = connection.path.controller.window_bytes();
        let is_full = connection.bytes_in_flight() as f64 >= window;
        sites.pass(Duration::from_millis(10));
        let largest = sites.sent_by_a().iter().map(Vec::len).max();
        if is_full {
            full_rounds += 1;
            assert!(largest < Some(200), "{largest:?} bytes in round {round}");
        }
    }
    assert!(full_rounds > 100, "{full_rounds}");
}

/// Regression test: after B had left an address, A sent 24 bytes to that address for each byte that
/// came from it.
#[test]
fn a_peer_that_reports_nothing_directs_no_bulk_at_an_address_that_it_has_left() {
    let mut sites = SitePair::new();
    sites.exchange(50);
    let key = unbounded_stream(&mut sites);
    let response = answer_from_victim(&mut sites);
    let now = sites.now;
    sites
        .a
        .handle_datagram(&mut response.clone(), victim(), now);
    assert_eq!(connection_of_a(&mut sites).path.remote, victim());
    let (mut brought, mut sent_there) = (0, 0);
    for round in 0..3000 {
        let provoked = provoke_credit(&mut sites, round, victim());
        brought += if round >= 1500 { provoked } else { 0 };
        if sites.a.connections.is_empty() {
            break;
        }
        fill(&mut sites, key);
        sites.pass(Duration::from_millis(10));
        let to_victim = sent(&mut sites.a, sites.now).into_iter();
        let to_victim = to_victim.filter(|(to, _)| *to == victim());
        let bytes: usize = to_victim.map(|(_, bytes)| bytes.len()).sum();
        // The first window is an estimate. The sender sends it at once, like the first window of a
        // new connection.
        if round >= 1500 {
            sent_there += bytes;
        }
    }
    assert!(sent_there < 3 * brought, "{sent_there} bytes for {brought}");
}

/// Makes A challenge another address of B. Returns B's response to the challenge. A has not
/// received the response yet.
fn answer_from_victim(sites: &mut SitePair) -> Vec<u8> {
    let mut ping = sealed_by_b(sites, &payload(&Frame::Ping));
    let now = sites.now;
    sites.a.handle_datagram(&mut ping, victim(), now);
    let mut answers = Vec::new();
    for (to, datagram) in sent(&mut sites.a, sites.now) {
        if to == victim() {
            sites.hand_b(&datagram, at_a());
            answers.extend(sent(&mut sites.b, sites.now));
        }
    }
    let mut answers = answers.into_iter().map(|(_, bytes)| bytes);
    answers.find(|it| it.len() == RESPONSE_BYTES).expect("one")
}

/// Size in bytes of a packet that contains only a response to a challenge.
const RESPONSE_BYTES: usize = 34;

/// Regression test: an old response to a challenge could redirect the traffic to a host that B no
/// longer used.
#[test]
fn an_answer_to_a_challenge_comes_too_late_after_seconds() {
    for (wait, expected) in [(5, victim()), (7, at_b())] {
        let mut sites = SitePair::new();
        sites.exchange(50);
        let mut response = answer_from_victim(&mut sites);
        for _ in 0..wait * 100 {
            sites.pass(Duration::from_millis(10));
            for datagram in sites.sent_by_a() {
                sites.hand_b(&datagram, at_a());
            }
            for datagram in sites.sent_by_b() {
                sites.hand_a(&datagram);
            }
        }
        let now = sites.now;
        sites.a.handle_datagram(&mut response, victim(), now);
        let remote = connection_of_a(&mut sites).path.remote;
        assert_eq!(remote, expected, "after {wait} s");
    }
}

/// Returns the loss that A measures if B truthfully reports every third packet as missing.
/// `it_jumps` makes B's clock jump with each report.
fn loss_seen(it_jumps: bool) -> f64 {
    let mut sites = SitePair::new();
    sites.exchange(50);
    let key = unbounded_stream(&mut sites);
    let mut low = connection_of_a(&mut sites).next_number();
    for round in 0..300 {
        fill(&mut sites, key);
        sites.pass(Duration::from_millis(20));
        sites.sent_by_a();
        let connection = connection_of_a(&mut sites);
        let high = connection.next_number();
        let has_come = |number: &u64| !number.is_multiple_of(3) && !connection.is_skipped(*number);
        let Some(largest) = (low..high).rev().find(has_come) else {
            continue;
        };
        let from = low.saturating_sub(200);
        let mut blocks = Vec::new();
        varint::put(&mut blocks, largest - from);
        varint::put(&mut blocks, largest + 1 - from);
        blocks.push(report::BITS);
        let numbers: Vec<u64> = (from..=largest).collect();
        let bits = numbers.chunks(8).map(|chunk| {
            let bits = chunk.iter().enumerate();
            bits.fold(0, |byte, (at, number)| {
                byte | u8::from(has_come(number)) << at
            })
        });
        blocks.extend(bits);
        let jump_us = if it_jumps { round % 2 * 10_000_000 } else { 0 };
        let front = ArrivalSample {
            number: largest,
            time_us: 1_000_000_000 + round * 20_000 + jump_us,
        };
        let mut frame = Vec::new();
        frame::put_feedback_type(&mut frame);
        let report = Report::new(largest, front, 0, 1500 * round);
        report.with_parts(&[], &blocks).put(&mut frame);
        sites.pass(Duration::from_millis(1));
        let packet = sealed_by_b(&mut sites, &frame);
        sites.hand_a(&packet);
        low = high;
    }
    connection_of_a(&mut sites).loss()
}

/// Regression test: losses of packets sent before a clock jump were ignored. A peer whose clock
/// jumped all the time could conceal all losses.
#[test]
fn a_peer_whose_clock_jumps_hides_no_losses() {
    let (steady, jumping) = (loss_seen(false), loss_seen(true));
    assert!(steady > 0.2, "{steady}");
    assert!(jumping > 0.2, "{jumping} of {steady}");
}
