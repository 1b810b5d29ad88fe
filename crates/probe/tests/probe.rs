//! Tests of the probe over the network emulator. The probe's measurements must match the emulator's
//! events for each packet.
#![allow(clippy::disallowed_methods, reason = "drives the kernel in real time")]

use std::{
    fs::File,
    net::SocketAddr,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use emulator::{CaptureOptions, Site, Wan, WanConfig, privilege};
use libtest_mimic::{Arguments, Trial};
use pcap_file::pcap::PcapReader;
use probe::{
    ProbePeer,
    datagram::{DatagramPurpose, Header},
    tcp::{self, TcpProbe},
    udp::{self, ReceiverRecord, UdpDirection, UdpProbe, UdpTask},
};
use units::BitRate;
use wansim::{PathConfig, Reordering};

/// Runs the tests. If network namespaces are not permitted, the tests are skipped. The output
/// counts them as skipped, and states the reason.
fn main() -> ExitCode {
    let privilege = privilege::acquire();
    if let Err(error) = &privilege {
        eprintln!("skipped: {error}");
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let trials = vec![
        trial(
            "loss_and_duplication_are_the_emulators_and_order_is_that_of_the_wire",
            udp_is_exact,
        ),
        trial(
            "a_window_bounds_tcp_as_the_formula_says",
            a_window_bounds_tcp,
        ),
        trial(
            "many_streams_begin_together_whatever_the_round_trip",
            streams_begin_together,
        ),
    ];
    let trials = trials.into_iter();
    let trials = trials.map(|trial| trial.with_ignored_flag(privilege.is_err()));
    let trials = trials.collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(format!("real_time::namespaces::{name}"), move || {
        test();
        Ok(())
    })
}

fn up(path: &PathConfig) -> (Wan, ProbePeer) {
    let mut config = WanConfig {
        paths: [path.clone(), path.clone()],
        ..WanConfig::default()
    };
    for site in &mut config.sites {
        site.ipv6 = None;
    }
    let wan = Wan::up(config).expect("a WAN");
    let address = SocketAddr::from((wan.address(Site::B), PORT));
    let peer = wan.enter(Site::B, || ProbePeer::start(address));
    (wan, peer.expect("a site").expect("a peer"))
}

fn clean() -> PathConfig {
    PathConfig {
        delay: Duration::from_millis(10),
        ..PathConfig::default()
    }
}

fn udp_is_exact() {
    for direction in [UdpDirection::Up, UdpDirection::Down] {
        let (wan, peer) = up(&clean());
        let (way, receiver) = match direction {
            UdpDirection::Up => (emulator::Direction::AToB, Site::B),
            UdpDirection::Down => (emulator::Direction::BToA, Site::A),
        };
        let file = std::env::temp_dir().join(format!(
            "longhaul-probe-{}-{direction:?}.pcap",
            std::process::id()
        ));
        let target = File::create(&file).expect("room");
        let capture = wan.capture(receiver, target, CaptureOptions::default());
        let capture = capture.expect("a capture");
        let probe = UdpProbe {
            peer: peer.address(),
            task: UdpTask::new(direction, BitRate::mbit(20), 1000, 8 * STEP),
            timeout: 10 * STEP,
        };
        let client = wan.spawn_thread_in(Site::A, move || udp::run(&probe, |_| {}));
        let client = client.expect("a thread");
        // The settings change while only datagrams are in flight. The control connection is already
        // open, and carries no bytes.
        let impaired = [
            PathConfig {
                loss: 0.03,
                ..clean()
            },
            PathConfig {
                duplication: 0.02,
                reordering: Reordering {
                    probability: 0.05,
                    ..Reordering::default()
                },
                ..clean()
            },
            clean(),
        ];
        for path in impaired {
            thread::sleep(2 * STEP);
            assert!(!client.is_finished(), "datagrams must be on the way");
            wan.set(way, path);
        }
        let record = client.join().expect("no panic").expect("a site");
        let record = record.expect("a test");
        let captured = capture.finish().expect("a file");
        assert_eq!(captured.left_out, 0, "the capture must have all packets");
        let counters = &wan.report().directions[way as usize].counters;
        assert!(counters.random_losses > 20 && counters.duplicated > 20 && counters.reordered > 50);
        let received = &record.received;
        assert_eq!((record.sent.refused, received.dropped_here), (0, Some(0)));
        assert_eq!(record.lost(), counters.random_losses, "{direction:?}");
        assert_eq!(received.duplicates, counters.duplicated, "{direction:?}");

        let wire = numbers(&file);
        let _ = std::fs::remove_file(&file);
        assert_eq!(wire.len() as u64, received.packets + received.duplicates);
        assert_same_order(&wire, received);
    }
}

/// Returns the numbers of the stream's datagrams in the order of their arrival at a host.
fn numbers(file: &std::path::Path) -> Vec<u64> {
    let mut reader = PcapReader::new(File::open(file).expect("captured")).expect("a capture");
    let mut numbers = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a packet");
        // The headers of Ethernet, IPv4 without options, and UDP precede the payload.
        let header = packet.data.get(14 + 20 + 8..).and_then(Header::parse);
        if let Some(header) = header.filter(|header| header.kind == DatagramPurpose::Data) {
            numbers.push(header.number);
        }
    }
    numbers
}

/// Computes reordering again, directly from the definitions in RFC 4737, and compares the results.
fn assert_same_order(wire: &[u64], received: &ReceiverRecord) {
    let mut firsts: Vec<u64> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    firsts.extend(wire.iter().filter(|number| seen.insert(**number)));
    let (mut reordered, mut extent_max, mut extent_sum) = (0u64, 0, 0);
    let mut degrees = vec![0u64; received.n_reordered.len()];
    let mut largest = None;
    for (i, number) in firsts.iter().enumerate() {
        if largest.replace(largest.unwrap_or(*number).max(*number)) <= Some(*number) {
            continue;
        }
        let first = firsts[..i].iter().position(|other| other > number);
        let extent = (i - first.expect("one was larger")) as u64;
        reordered += 1;
        extent_max = extent_max.max(extent);
        extent_sum += extent;
        let degree = firsts[..i].iter().rev().take_while(|other| *other > number);
        let degree = degree.count();
        assert!(degree <= degrees.len());
        degrees[..degree].iter_mut().for_each(|count| *count += 1);
    }
    assert!(reordered > 20, "there must be reordering");
    assert_eq!(received.reordered, reordered);
    assert_eq!(received.extent_max, extent_max);
    let mean = extent_sum as f64 / reordered as f64;
    assert!((received.extent_mean - mean).abs() < 1e-9);
    assert_eq!(received.n_reordered, degrees);
    assert!(!received.extent_is_bounded);
}

/// Checks that a fixed window limits TCP: one window is sent in each round trip. The limit in the
/// test includes the kernel's overhead.
fn a_window_bounds_tcp() {
    let rtt = Duration::from_millis(100);
    let (wan, peer) = up(&PathConfig {
        delay: rtt / 2,
        ..PathConfig::default()
    });
    let goodput = |window_bytes| {
        let probe = TcpProbe {
            peer: peer.address(),
            task: tcp::TcpTask {
                window_bytes,
                limit: tcp::StreamLimit::Time { ms: 3000 },
                ..tcp::TcpTask::new()
            },
            timeout: 10 * STEP,
        };
        let run = || tcp::run(&probe, |_| {});
        let record = wan.enter(Site::A, run).expect("a site").expect("a test");
        let stream = &record.streams[0];
        assert_eq!(stream.receiver.failure, None);
        assert!(!stream.is_rewritten() && !stream.is_translated());
        if window_bytes.is_some() {
            // The kernel doubles the requested buffer, and uses half of it for its own overhead.
            let scales = [&stream.sender, &stream.receiver].map(|end| end.info.sent_wscale);
            assert_eq!(scales, [Some(0), Some(0)]);
        }
        let least = Duration::from_micros(u64::from(stream.sender.info.min_rtt_us));
        assert!(least >= rtt && least < 2 * rtt, "{least:?}");
        record.goodput_bits_per_s(true)
    };
    let began = Instant::now();
    let (small, large) = (goodput(Some(32_768)), goodput(None));
    let bound = 2.0 * 32_768.0 * 8.0 / rtt.as_secs_f64();
    assert!(small < bound && small > bound / 8.0, "{small} of {bound}");
    assert!(large > 4.0 * bound, "{large} after {:?}", began.elapsed());
}

/// Checks that all streams begin together. If they were opened one after another, the last stream
/// would begin 2 s after the first.
fn streams_begin_together() {
    let rtt = Duration::from_millis(200);
    let (wan, peer) = up(&PathConfig {
        delay: rtt / 2,
        ..PathConfig::default()
    });
    let time = Duration::from_secs(2);
    for direction in [
        tcp::TcpDirection::Up,
        tcp::TcpDirection::Down,
        tcp::TcpDirection::Both,
    ] {
        let probe = TcpProbe {
            peer: peer.address(),
            task: tcp::TcpTask {
                direction,
                streams: 10,
                window_bytes: Some(65_536),
                limit: tcp::StreamLimit::Time {
                    ms: time.as_millis() as u64,
                },
                ..tcp::TcpTask::new()
            },
            timeout: 10 * STEP,
        };
        let run = || tcp::run(&probe, |_| {});
        let record = wan.enter(Site::A, run).expect("a site").expect("a test");
        for stream in &record.streams {
            let receiver = &stream.receiver;
            assert_eq!(receiver.failure, None);
            // The last window may arrive up to one round trip before the time ends. Bytes in
            // flight, at most a window and a send buffer, arrive after the time has ended.
            let (least, most) = (time - rtt, time + 4 * rtt);
            let seconds = Duration::from_secs_f64(receiver.seconds);
            assert!(
                seconds > least && seconds < most,
                "{direction:?}: {seconds:?}"
            );
            assert!(receiver.interval_bytes[0] > 0, "{direction:?}");
        }
        let is_up = direction != tcp::TcpDirection::Down;
        let sums: u64 = record.intervals(is_up).iter().map(|b| b.bytes()).sum();
        let mine = record.streams.iter().filter(|stream| stream.is_up == is_up);
        let bytes: u64 = mine.map(|stream| stream.receiver.bytes).sum();
        assert_eq!(sums, bytes);
    }
}

const PORT: u16 = 4811;
const STEP: Duration = Duration::from_millis(400);
