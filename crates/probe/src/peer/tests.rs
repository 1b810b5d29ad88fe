use std::net::UdpSocket;

use units::{BitRate, ByteCount};

use super::*;
use crate::{
    Arrivals,
    bulk::{self, BulkProbe, Proxy},
    datagram::{self, HEADER_BYTES, Header},
    ping::{self, PingProbe},
    tcp::{StreamLimit, TcpDirection, TcpProbe},
    transaction::TransactionProbe,
    udp::UdpProbe,
};

const SECOND: Duration = Duration::from_secs(1);

fn peer() -> ProbePeer {
    ProbePeer::start("127.0.0.1:0".parse().expect("an address")).expect("a free port")
}

fn tcp_probe(peer: &ProbePeer, task: tcp::TcpTask) -> TcpProbe {
    TcpProbe {
        peer: peer.address(),
        task,
        timeout: 5 * SECOND,
    }
}

#[test]
fn a_port_in_use_by_udp_is_replaced_by_another_one() {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let mut tried = Vec::new();
    let (listener, udp) = bind(any, |address| {
        tried.push(address);
        match tried.len() {
            ..4 => Err(io::ErrorKind::AddrInUse.into()),
            _ => UdpSocket::bind(any),
        }
    })
    .expect("the fourth port is free");
    assert_eq!(tried.last(), listener.local_addr().ok().as_ref());
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), 4, "no port is tried twice");
    drop(udp);

    let mut count = 0;
    let in_use = |kind: io::ErrorKind, count: &mut usize, address| {
        let bound = bind(address, |_| {
            *count += 1;
            Err(kind.into())
        });
        bound.expect_err("no port is free").kind()
    };
    let kind = io::ErrorKind::AddrInUse;
    assert_eq!(in_use(kind, &mut count, any), kind);
    assert_eq!(count, PORTS_TRIED_MAX, "the attempts have a limit");
    let other = io::ErrorKind::PermissionDenied;
    assert_eq!(in_use(other, &mut count, any), other);
    assert_eq!(count, PORTS_TRIED_MAX + 1, "another error is final");
}

#[test]
fn a_configured_port_in_use_by_udp_is_an_error() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let error = ProbePeer::start(address).expect_err("the port is in use");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn transactions_and_bulk_transfers_are_answered() {
    let peer = peer();
    let mut probe = TransactionProbe::new(peer.address());
    probe.arrivals = Arrivals {
        count: 50,
        at_once: 10,
        ..Arrivals::default()
    };
    let all = transaction::run(&probe, |_| {}).expect("it runs");
    let summary = transaction::TransactionSummary::of(all.iter());
    assert_eq!((summary.complete, summary.tried), (50, 50), "{:?}", all[0]);
    let mut probe = BulkProbe::new(peer.address());
    for size in [ECHO_BYTES as u64, 17, 1_000_003] {
        probe.size = ByteCount::new(size);
        let all = bulk::run(&probe, |_| {}).expect("it runs");
        assert_eq!(all[0].failure, None);
        assert_eq!(all[0].bytes, size);
        assert!(all[0].taken_us <= Some(all[0].ended_us));
    }
}

#[test]
fn bulk_goes_through_proxies() {
    let peer = peer();
    let target = peer.address();
    let proxy = |talk: fn(&mut TcpStream)| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            talk(&mut client);
            let mut server = TcpStream::connect(target).expect("the peer");
            let (mut from, mut to) = (
                client.try_clone().expect("a"),
                server.try_clone().expect("b"),
            );
            let up = thread::spawn(move || io::copy(&mut from, &mut to));
            let _ = io::copy(&mut server, &mut client);
            drop((client, server));
            drop(up);
        });
        address
    };
    let socks = proxy(|client| {
        let mut bytes = [0; 13];
        client.read_exact(&mut bytes[..3]).expect("greeting");
        client.write_all(&[5, 0]).expect("choice");
        client.read_exact(&mut bytes[..10]).expect("request");
        client
            .write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
            .expect("reply");
    });
    let http = proxy(|client| {
        let mut bytes = [0; 500];
        let count = client.read(&mut bytes).expect("request");
        assert!(bytes[..count].starts_with(b"CONNECT 127.0.0.1:"));
        client
            .write_all(b"HTTP/1.1 200 Fine\r\nX: y\r\n\r\n")
            .expect("reply");
    });
    for proxy in [Proxy::Socks5(socks), Proxy::Http(http)] {
        let probe = BulkProbe {
            proxy: Some(proxy),
            ..BulkProbe::new(target)
        };
        let all = bulk::run(&probe, |_| {}).expect("it runs");
        assert_eq!(all[0].failure, None, "{proxy:?}");
    }
}

#[test]
fn round_trips_are_answered_only_while_their_connection_lasts() {
    let peer = peer();
    let probe = PingProbe {
        count: 20,
        interval: Duration::from_millis(5),
        timeout: SECOND,
        ..PingProbe::new(peer.address())
    };
    let pings = ping::run(&probe, |_| {}).expect("it runs");
    let summary = ping::PingSummary::of(&pings);
    assert_eq!((summary.sent, summary.lost, summary.duplicates), (20, 0, 0));

    let mut control = line::connect(peer.address(), &ProbeHello::Ping {}, SECOND).expect("a peer");
    let ready: TestReady = line::answer(&mut control, "x", SECOND).expect("an answer");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket
        .set_read_timeout(Some(SECOND / 2))
        .expect("a timeout");
    let echoes = |id: u64| {
        let mut bytes = [0; HEADER_BYTES];
        let header = Header {
            kind: datagram::DatagramPurpose::Echo,
            id,
            number: 0,
            sent_ns: 0,
        };
        header.write(&mut bytes);
        socket.send_to(&bytes, peer.address()).expect("sent");
        socket.recv(&mut [0; 100]).is_ok()
    };
    assert!(echoes(ready.id) && !echoes(ready.id ^ 1));
    drop(control);
    let deadline = Instant::now() + 5 * SECOND;
    while echoes(ready.id) {
        assert!(Instant::now() < deadline, "the peer must forget its client");
    }
}

#[test]
fn bulk_tcp_goes_both_ways_and_both_ends_agree() {
    let peer = peer();
    for direction in [TcpDirection::Up, TcpDirection::Down, TcpDirection::Both] {
        let task = tcp::TcpTask {
            direction,
            streams: 2,
            window_bytes: Some(65_536),
            congestion: Some("reno".to_owned()),
            limit: StreamLimit::Bytes { count: 3_000_001 },
        };
        let record = tcp::run(&tcp_probe(&peer, task), |_| {}).expect("it runs");
        let streams = if direction == TcpDirection::Both {
            4
        } else {
            2
        };
        assert_eq!(record.streams.len(), streams);
        for stream in &record.streams {
            assert_eq!(stream.receiver.bytes, 3_000_001);
            assert_eq!(stream.sender.bytes, 3_000_001);
            assert_eq!(
                (&stream.sender.failure, &stream.receiver.failure),
                (&None, &None)
            );
            let intervals: u64 = stream.receiver.interval_bytes.iter().sum();
            assert_eq!(intervals, stream.receiver.bytes);
            assert!(
                !stream.is_rewritten() && !stream.is_translated(),
                "{stream:#?}"
            );
            assert!(stream.sender.info.sent_wscale.is_some());
            for end in [&stream.sender, &stream.receiver] {
                assert_eq!(end.receive_buffer_bytes, Some(2 * 65_536));
                assert_eq!(end.send_buffer_bytes, Some(2 * 65_536));
            }
        }
        assert!(record.goodput_bits_per_s(direction != TcpDirection::Down) > 1e6);
    }
}

/// In this test, a forward leads to the well-known port. No forward leads to the port with the
/// fixed window.
#[test]
fn streams_with_a_window_pass_a_forward() {
    let peer = peer();
    let target = peer.address();
    let forward = TcpListener::bind("127.0.0.2:0").expect("a port");
    let at = forward.local_addr().expect("bound");
    thread::spawn(move || {
        while let Ok((client, _)) = forward.accept() {
            let server = TcpStream::connect(target).expect("the peer");
            for (mut from, mut to) in [(&client, &server), (&server, &client)]
                .map(|(from, to)| (from.try_clone().expect("a"), to.try_clone().expect("b")))
            {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    let task = tcp::TcpTask {
        window_bytes: Some(65_536),
        limit: StreamLimit::Bytes { count: 100_000 },
        ..tcp::TcpTask::new()
    };
    let mut probe = tcp_probe(&peer, task);
    probe.peer = at;
    let record = tcp::run(&probe, |_| {}).expect("it runs");
    let stream = &record.streams[0];
    assert_eq!(stream.receiver.failure, None);
    assert_eq!(stream.receiver.bytes, 100_000);
    assert!(stream.is_translated(), "{stream:#?}");
}

#[test]
fn an_unknown_congestion_control_is_reported() {
    let peer = peer();
    let task = tcp::TcpTask {
        congestion: Some("nonesuch".to_owned()),
        ..tcp::TcpTask::new()
    };
    let error = tcp::run(&tcp_probe(&peer, task), |_| {}).expect_err("no such thing");
    assert!(error.to_string().contains("connecting a stream"), "{error}");
}

#[test]
fn memory_of_udp_tests_is_bounded_and_given_back() {
    let all = AtomicU64::new(0);
    let half = UDP_MEMORY_MAX_BYTES / 2;
    let first = MemoryPermit::take(&all, half).expect("there is room");
    let second = MemoryPermit::take(&all, half).expect("there is room");
    assert!(MemoryPermit::take(&all, 1).is_none());
    drop(first);
    assert!(MemoryPermit::take(&all, half).is_some());
    drop(second);
    assert_eq!(all.load(Ordering::Relaxed), 0);
}

#[test]
fn a_trickle_keeps_no_place() {
    assert_eq!(reply_timeout(0), tcp::STALL_MAX);
    // A client that sends one byte every 29 s exceeds the time limit.
    assert!(reply_timeout(2) < 2 * Duration::from_secs(29));
    assert_eq!(
        reply_timeout(1_000_000),
        tcp::STALL_MAX + Duration::from_secs(1000)
    );
    assert_eq!(reply_timeout(u64::MAX), BULK_MAX);
}

#[test]
fn datagrams_are_counted_both_ways() {
    let peer = peer();
    for direction in [udp::UdpDirection::Up, udp::UdpDirection::Down] {
        let task = udp::UdpTask::new(direction, BitRate::mbit(20), 1000, SECOND / 4);
        let probe = UdpProbe {
            peer: peer.address(),
            task,
            timeout: 5 * SECOND,
        };
        let record = udp::run(&probe, |_| {}).expect("it runs");
        assert_eq!(record.sent.packets, 625);
        assert_eq!(record.received.packets, 625, "{direction:?}: {record:#?}");
        assert_eq!(
            (record.received.duplicates, record.received.reordered),
            (0, 0)
        );
        assert_eq!((record.lost(), record.received.bytes), (0, 625_000));
    }
}

#[test]
fn nonsense_ends_a_connection_and_nothing_else() {
    let peer = peer();
    let say = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(peer.address()).expect("listening");
        stream
            .set_read_timeout(Some(5 * SECOND))
            .expect("a timeout");
        // The peer may close the connection during the write.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert!(say(b"GET / HTTP/1.1\r\n\r\n").contains("not a probe of this version"));
    assert!(say(b"longhaul-probe/1 {\"tcp\":7}\n").contains("not understood"));
    assert_eq!(say(&[b'x'; 5000]), "");
    assert_eq!(say(b""), "");
    assert_eq!(
        say(ProbeHello::Stream { id: 1, index: 0 }.line().as_bytes()),
        ""
    );
    let all = transaction::run(&TransactionProbe::new(peer.address()), |_| {}).expect("it runs");
    assert_eq!(all[0].failure, None);
}

#[test]
fn a_full_house_turns_away_and_has_room_again() {
    let peer = peer();
    let idle: Vec<_> = (0..CLIENTS_MAX)
        .map(|_| TcpStream::connect(peer.address()).expect("listening"))
        .collect();
    let is_served = || {
        let all = transaction::run(&TransactionProbe::new(peer.address()), |_| {});
        all.expect("it runs")[0].failure.is_none()
    };
    let deadline = Instant::now() + 5 * SECOND;
    while is_served() {
        assert!(
            Instant::now() < deadline,
            "idle connections take all places"
        );
    }
    let probe = PingProbe::new(peer.address());
    let error = ping::run(&probe, |_| {}).expect_err("there is no place");
    assert!(error.to_string().contains("no room"), "{error}");
    drop(idle);
    let deadline = Instant::now() + 5 * SECOND;
    while !is_served() {
        assert!(Instant::now() < deadline, "the places are free again");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_dropped_peer_takes_no_more() {
    let peer = peer();
    let address = peer.address();
    assert!(TcpStream::connect(address).is_ok());
    drop(peer);
    let deadline = Instant::now() + 5 * SECOND;
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(10));
    }
}

/// The tests of this module measure real time. `cargo xtask test` runs them alone.
mod real_time {
    use super::*;

    #[test]
    fn a_test_by_time_lasts_as_long() {
        let peer = peer();
        let task = tcp::TcpTask {
            limit: StreamLimit::Time { ms: 3000 },
            ..tcp::TcpTask::new()
        };
        let record = tcp::run(&tcp_probe(&peer, task), |_| {}).expect("it runs");
        let stream = &record.streams[0];
        assert!((2.5..6.0).contains(&stream.receiver.seconds), "{stream:#?}");
        assert_eq!(stream.sender.bytes, stream.receiver.bytes);
    }

    #[test]
    fn a_stream_that_the_peer_cannot_use_is_reported_at_once() {
        let peer = peer();
        let task = tcp::TcpTask {
            congestion: Some("nonesuch".to_owned()),
            ..tcp::TcpTask::new()
        };
        let began = Instant::now();
        let hello = ProbeHello::Tcp(task);
        let mut control = line::connect(peer.address(), &hello, 5 * SECOND).expect("a peer");
        let ready: TestReady = line::answer(&mut control, "x", 5 * SECOND).expect("an answer");
        let hello = ProbeHello::Stream {
            id: ready.id,
            index: 0,
        };
        let _stream = line::connect(peer.address(), &hello, 5 * SECOND).expect("a stream");
        let joined: StreamsJoined = line::answer(&mut control, "x", 5 * SECOND).expect("an answer");
        let failure = joined.failure.expect("there is no such congestion control");
        assert!(
            failure.to_string().contains("a stream at the peer"),
            "{failure}"
        );
        assert!(began.elapsed() < 2 * SECOND);
    }

    #[test]
    fn a_rate_above_the_machines_ends_in_time() {
        let peer = peer();
        for direction in [udp::UdpDirection::Up, udp::UdpDirection::Down] {
            let task = udp::UdpTask::new(direction, BitRate::gbit(90), 100, SECOND / 2);
            let probe = UdpProbe {
                peer: peer.address(),
                task,
                timeout: 5 * SECOND,
            };
            let began = Instant::now();
            let record = udp::run(&probe, |_| {}).expect("it runs");
            assert!(
                record.sent.packets < task.packets,
                "no machine sends so many"
            );
            assert!(record.sent.packets > 0 && record.received.packets > 0);
            assert!(
                began.elapsed() < 12 * SECOND,
                "{direction:?}: {:?}",
                began.elapsed()
            );
        }
    }

    #[test]
    fn a_peer_stops_when_its_client_goes() {
        let peer = peer();
        let task = udp::UdpTask::new(udp::UdpDirection::Down, BitRate::gbit(10), 100, SECOND * 5);
        let mut control =
            line::connect(peer.address(), &ProbeHello::Udp(task), SECOND).expect("a peer");
        let ready: TestReady = line::answer(&mut control, "x", SECOND).expect("an answer");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(SECOND)).expect("a timeout");
        let mut open = [0; HEADER_BYTES];
        let header = Header {
            kind: datagram::DatagramPurpose::Open,
            id: ready.id,
            number: 0,
            sent_ns: 0,
        };
        header.write(&mut open);
        socket.send_to(&open, peer.address()).expect("sent");
        let mut bytes = [0; 200];
        assert!(socket.recv(&mut bytes).is_ok(), "it must send");
        drop(control);
        let went = Instant::now();
        while socket.recv(&mut bytes).is_ok() {
            assert!(went.elapsed() < 3 * SECOND, "it goes on sending to nobody");
        }
    }

    #[test]
    fn late_datagrams_hold_a_test_of_udp_for_a_bounded_time() {
        let peer = peer();
        let task = udp::UdpTask::new(udp::UdpDirection::Up, BitRate::mbit(1), 100, SECOND);
        let mut control =
            line::connect(peer.address(), &ProbeHello::Udp(task), SECOND).expect("a peer");
        let ready: TestReady = line::answer(&mut control, "x", SECOND).expect("an answer");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let mut bytes = [0; HEADER_BYTES];
        control.write_all(b"sent\n").expect("a peer");
        let began = Instant::now();
        control.set_nonblocking(true).expect("a socket");
        let mut number = 0;
        while control.peek(&mut [0]).is_err() {
            assert!(
                began.elapsed() < DRAIN_MAX + 3 * SECOND,
                "it waits for ever"
            );
            let header = Header {
                kind: datagram::DatagramPurpose::Data,
                id: ready.id,
                number,
                sent_ns: 0,
            };
            header.write(&mut bytes);
            socket.send_to(&bytes, peer.address()).expect("sent");
            number += 1;
            thread::sleep(SECOND / 2);
        }
        assert!(began.elapsed() > udp::GRACE, "late ones are awaited");
    }
}
