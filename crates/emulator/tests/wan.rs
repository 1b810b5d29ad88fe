//! Tests of the emulator with a real kernel: calibration, integrity, and changes while traffic
//! flows.
//!
//! The tests run in real time. Other work on the machine can only make packets late, or make a
//! sender pause.
//!
//! The tests therefore compare the packets with the least delay, the emulator's own counters and
//! processor time, and the kernel's arrival times. `emulator::calibrate` describes the details.
#![allow(clippy::disallowed_methods, reason = "drives the kernel in real time")]

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant, SystemTime},
};

use emulator::{
    CaptureOptions, Direction, Site, Wan, WanConfig, WanError,
    calibrate::{CalibrationSubject, CalibrationVerdict},
    load::{FULL_PAYLOAD, LoadResult, UdpLoad, address, tcp_goodput},
    privilege::{self, Privilege},
};
use libtest_mimic::{Arguments, Trial};
use pcap_file::pcap::{PcapPacket, PcapReader};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use units::{BitRate, ByteCount};
use wansim::{PathConfig, Reordering, Straggler};

const MS: Duration = Duration::from_millis(1);

/// Runs the tests. On systems that forbid namespaces, skips all tests and states the reason.
fn main() -> ExitCode {
    let privilege = privilege::acquire();
    let mut arguments = Arguments::from_args();
    // The tests measure time, and the machine may have few processors. Therefore they run one after
    // another by default.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let mut trials = vec![
        trial(
            "tcp_survives_every_impairment_intact",
            tcp_survives_every_impairment_intact,
        ),
        trial(
            "settings_change_while_traffic_flows",
            settings_change_while_traffic_flows,
        ),
        trial(
            "a_capture_holds_every_packet_of_the_wire",
            a_capture_holds_every_packet,
        ),
        trial(
            "a_site_with_its_interface_down_is_cut_off",
            a_site_down_is_cut_off,
        ),
        trial(
            "wans_of_one_machine_do_not_meet",
            wans_of_one_machine_do_not_meet,
        ),
        trial(
            "offload_multiplies_what_the_machine_carries",
            offload_multiplies_the_ceiling,
        ),
    ];
    trials.extend(CalibrationSubject::all().into_iter().map(|subject| {
        Trial::test(
            format!("real_time::namespaces::calibrated_{}", subject.name),
            move || {
                is_calibrated(subject);
                Ok(())
            },
        )
    }));
    trials.push(trial(
        "visible_sites_come_and_go",
        visible_sites_come_and_go,
    ));
    let can_run = |trial: &Trial| match &privilege {
        Ok(Privilege::Root) => true,
        Ok(Privilege::UserNamespace) => !trial.name().ends_with("visible_sites_come_and_go"),
        Err(_) => false,
    };
    match &privilege {
        Ok(Privilege::Root) => {}
        Ok(Privilege::UserNamespace) => {
            eprintln!("skipped: only root can make sites that `ip netns` shows");
        }
        Err(error) => eprintln!("skipped: {error}"),
    }
    let trials = trials.into_iter().map(|trial| {
        let can_run = can_run(&trial);
        trial.with_ignored_flag(!can_run)
    });
    let trials = trials.collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(format!("real_time::namespaces::{name}"), move || {
        test();
        Ok(())
    })
}

fn up(offload: bool, path: &PathConfig) -> Wan {
    let paths = [path.clone(), path.clone()];
    Wan::up(WanConfig {
        offload,
        paths,
        ..WanConfig::default()
    })
    .expect("a WAN")
}

fn udp(wan: &Wan, load: UdpLoad) -> LoadResult {
    load.run(wan).expect("traffic")
}

fn load(rate: BitRate, packets: u64) -> UdpLoad {
    UdpLoad {
        from: Site::A,
        ipv6: false,
        payload: FULL_PAYLOAD,
        rate,
        packets,
        offload: true,
    }
}

/// Asserts that no packet took less than `delay`, and that half of the packets took less than
/// `delay` plus 0.5 ms.
///
/// An emulator without real-time priority may wait for a processor. In that case only the fastest
/// tenth of the packets must be on time.
fn assert_delay(wan: &Wan, mut delays: Vec<Duration>, delay: Duration) {
    delays.sort();
    let real_time = wan.report().thread.real_time;
    let share = if real_time { 2 } else { 10 };
    let (least, most) = (delays[0], delays[delays.len() / share]);
    println!("delays {least:?}, 1 of {share} up to {most:?} instead of {delay:?}");
    assert!(least >= delay, "{least:?}");
    assert!(most < delay + MS / 2, "1 of {share} up to {most:?} only");
}

/// Asserts that the measurements of `longhaul wan calibrate` are within their tolerances.
fn is_calibrated(subject: CalibrationSubject) {
    let rows = subject.measure().expect("traffic");
    assert!(!rows.is_empty(), "something is measured");
    for row in &rows {
        println!("{row:?}");
    }
    assert!(
        rows.iter()
            .all(|row| row.verdict == CalibrationVerdict::Within),
        "{rows:?}"
    );
}

fn tcp_survives_every_impairment_intact() {
    for (offload, ipv6) in [(true, false), (true, true), (false, false)] {
        let path = PathConfig {
            rate: Some(BitRate::mbit(400)),
            queue: ByteCount::new(300_000),
            delay: 2 * MS,
            loss: 0.001,
            corruption: 0.001,
            duplication: 0.005,
            reordering: Reordering {
                probability: 0.01,
                correlation: 0.2,
                straggler: Straggler::Late(MS),
            },
            ..PathConfig::default()
        };
        let wan = up(offload, &path);
        let mut data = vec![0; 16 << 20];
        Pcg64::seed_from_u64(7).fill_bytes(&mut data);
        let to = address(&wan, Site::B, ipv6, 0);
        let listener = wan
            .enter(Site::B, || TcpListener::bind(to))
            .expect("enter")
            .expect("bind");
        let to = listener.local_addr().expect("bound");
        let receiver = thread::spawn(move || {
            let mut arrived = Vec::new();
            let (mut stream, _) = listener.accept().expect("accept");
            stream.read_to_end(&mut arrived).expect("read");
            arrived
        });
        let mut stream = wan
            .enter(Site::A, || TcpStream::connect(to))
            .expect("enter")
            .expect("connect");
        stream.write_all(&data).expect("write");
        drop(stream);
        let arrived = receiver.join().expect("no panic");
        let counters = wan.report().directions[0].counters;
        let hit = [
            counters.random_losses,
            counters.corrupted,
            counters.duplicated,
        ];
        assert!(
            hit.iter().all(|count| *count > 0),
            "every impairment must hit: {counters:?}"
        );
        assert!(counters.reordered > 0);
        assert!(
            arrived == data,
            "offload {offload}, IPv6 {ipv6}: the data differ"
        );
    }
}

fn settings_change_while_traffic_flows() {
    let wan = up(
        true,
        &PathConfig {
            delay: 20 * MS,
            ..PathConfig::default()
        },
    );
    let load = UdpLoad {
        payload: 100,
        offload: false,
        ..load(BitRate::mbit(1), 1500)
    };
    let file = std::env::temp_dir().join(format!("settings-{}.pcap", std::process::id()));
    let target = File::create(&file).expect("a file");
    let capture = wan.capture(Site::A, target, CaptureOptions::default());
    let capture = capture.expect("a capture");
    let flow = load.start(&wan).expect("traffic");
    let before = PathConfig {
        delay: 20 * MS,
        ..PathConfig::default()
    };
    // Changes the path. Returns the times before and after the change.
    let set = |config| {
        let asked = SystemTime::now();
        wan.set(Direction::AToB, config);
        (asked, SystemTime::now())
    };
    thread::sleep(400 * MS);
    let cut = set(PathConfig {
        outage: true,
        ..before.clone()
    });
    thread::sleep(400 * MS);
    let mended = set(PathConfig {
        delay: 60 * MS,
        ..before
    });
    let received = flow.wait().expect("traffic");
    let dropped = wan.report().directions[0].counters.outage_drops;
    assert_eq!(received.numbers.len() as u64 + dropped, 1500);
    let lost: Vec<u64> = (0..1500)
        .filter(|number| !received.numbers.contains(number))
        .collect();
    let (Some(first), Some(last)) = (lost.first(), lost.last()) else {
        panic!("the outage must hit the flow")
    };
    assert_eq!(last - first + 1, dropped, "one outage, one gap: {lost:?}");
    // The captured times show which packets the emulator received during the outage, regardless of
    // the machine's delays. One packet is sent every 1.3 ms.
    let captured = capture.finish().expect("a file");
    assert_eq!(captured.left_out, 0, "the capture must have all packets");
    let packets = read_capture(&file);
    fs::remove_file(&file).expect("it was there");
    let taken: Vec<SystemTime> = packets
        .iter()
        .filter(|packet| packet.orig_len as usize == 14 + 20 + 8 + load.payload)
        .map(|packet| SystemTime::UNIX_EPOCH + packet.timestamp)
        .collect();
    assert_eq!(taken.len(), 1500);
    let taken_within = |from, to| {
        let within = taken.iter().filter(|at| (from..to).contains(*at));
        within.count() as u64
    };
    let (least, most) = (
        taken_within(cut.1, mended.0).saturating_sub(EDGE_PACKETS),
        taken_within(cut.0, mended.1) + EDGE_PACKETS,
    );
    println!("{dropped} lost, {least} to {most} expected");
    assert!(least > 100, "the outage is one of many packets");
    assert!((least..=most).contains(&dropped), "{dropped} lost");
    let delays = received.delays();
    for (when, set, range) in [
        ("before", 20 * MS, 0..*first as usize),
        ("after", 60 * MS, *first as usize..delays.len()),
    ] {
        println!("{when} the outage:");
        assert_delay(&wan, delays[range].to_vec(), set);
    }
}

/// Reads a capture file, and returns its packets with their times.
fn read_capture(path: &Path) -> Vec<PcapPacket<'static>> {
    let mut file = PcapReader::new(File::open(path).expect("open")).expect("a pcap file");
    let mut packets = Vec::new();
    while let Some(packet) = file.next_packet() {
        packets.push(packet.expect("a whole packet").into_owned());
    }
    packets
}

/// Checks that captures at both sites, complete and truncated, agree with the emulator's counters
/// and with the received packets.
fn a_capture_holds_every_packet() {
    const HEADERS: usize = 14 + 20 + 8;
    const N: u64 = 5000;
    let delay = 5 * MS;
    let path = PathConfig {
        delay,
        loss: 0.05,
        duplication: 0.02,
        corruption: 0.01,
        ..PathConfig::default()
    };
    let folder = std::env::temp_dir().join(format!("capture-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder");
    let wan = up(true, &path);
    let begin = |site: Site, snap_bytes, packets| {
        let file = folder.join(format!("{site:?}-{snap_bytes}.pcap"));
        let options = CaptureOptions {
            snap_bytes,
            packets,
        };
        let target = File::create(&file).expect("a file");
        (wan.capture(site, target, options).expect("a capture"), file)
    };
    let short = begin(Site::A, 128, None);
    let whole = begin(Site::B, 65_535, None);
    let bounded = begin(Site::A, 60, Some(100));
    let load = UdpLoad {
        payload: 500,
        ..load(BitRate::mbit(100), N)
    };
    let received = udp(&wan, load);
    assert!(bounded.0.has_ended(), "of itself");
    let report = wan.report();
    let [there, back] = &report.directions;
    assert!(
        there.load.frames_in < N / 2,
        "the test is about super-packets"
    );
    let [short, whole, bounded] = [short, whole, bounded].map(|(capture, file)| {
        let report = capture.finish().expect("a file");
        assert_eq!(report.left_out, 0);
        let packets = read_capture(&file);
        assert_eq!(report.packets, packets.len() as u64);
        packets
    });
    fs::remove_dir_all(&folder).expect("its files are closed");
    assert_eq!(bounded.len(), 100);
    let (there, back) = (&there.counters, &back.counters);
    assert_eq!(short.len() as u64, there.sent + back.delivered);
    assert_eq!(whole.len() as u64, there.delivered + back.sent);

    let number = |packet: &PcapPacket<'_>| {
        let number = &packet.data[HEADERS..HEADERS + 8];
        u64::from_be_bytes(number.try_into().expect("8 bytes"))
    };
    let from_a = |packet: &&PcapPacket<'_>| packet.data[26..30] == [10, 77, 0, 1];
    let left: Vec<_> = short.iter().filter(from_a).collect();
    let numbers: Vec<_> = left.iter().map(|packet| number(packet)).collect();
    assert_eq!(numbers, (0..N).collect::<Vec<_>>());
    assert!(
        left.iter()
            .all(|packet| packet.data.len() == 128 && packet.orig_len == 542)
    );
    // The receiver's kernel must accept exactly the packets without corruption.
    let mut arrived: Vec<u64> = Vec::new();
    let mut spoiled = 0;
    for packet in &whole {
        if udp_is_sound(&packet.data) {
            arrived.push(number(packet));
            let took = packet.timestamp - left[number(packet) as usize].timestamp;
            assert!(took >= delay, "{took:?} for {}", number(packet));
        } else {
            spoiled += 1;
        }
    }
    assert_eq!(arrived, received.numbers);
    let copies = there.corrupted..=there.corrupted + there.duplicated;
    assert!(copies.contains(&spoiled), "{spoiled} of {there:?}");
    assert!(whole.is_sorted_by_key(|packet| packet.timestamp));
}

/// Returns whether the checksums of IPv4 and UDP are correct.
fn udp_is_sound(frame: &[u8]) -> bool {
    let sum = |bytes: &[u8]| -> u32 {
        let words = bytes.chunks(2);
        words
            .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)))
            .sum()
    };
    let is_right = |sum: u32| (sum >> 16) + (sum & 0xffff) == 0xffff;
    let (ip, udp) = frame[14..].split_at(20);
    let pseudo = sum(&ip[12..]) + 17 + udp.len() as u32;
    frame[12..15] == [8, 0, 0x45] && is_right(sum(ip)) && is_right(pseudo + sum(udp))
}

/// Sends a datagram, and returns whether the opposite site receives it.
fn reaches(wan: &Wan, from: Site, ipv6: bool) -> bool {
    let bind = |site| wan.enter(site, || UdpSocket::bind(address(wan, site, ipv6, 0)));
    let sockets = (
        bind(from).expect("enter"),
        bind(from.other()).expect("enter"),
    );
    // If an interface is down, it has lost its IPv6 address, and `bind` fails.
    let (Ok(sender), Ok(receiver)) = sockets else {
        return false;
    };
    receiver.set_read_timeout(Some(300 * MS)).expect("timeout");
    let to = receiver.local_addr().expect("bound");
    sender.send_to(b"hello", to).is_ok() && receiver.recv(&mut [0; 8]).is_ok()
}

fn a_site_down_is_cut_off() {
    let mut wan = up(true, &PathConfig::default());
    let reach = |wan: &Wan| {
        let all = Site::BOTH.map(|from| [false, true].map(|ipv6| reaches(wan, from, ipv6)));
        all.concat()
    };
    assert_eq!(reach(&wan), [true; 4]);
    wan.set_interface_up(Site::A, false).expect("down");
    assert_eq!(reach(&wan), [false; 4]);
    wan.set_interface_up(Site::A, true).expect("up");
    assert_eq!(reach(&wan), [true; 4]);
}

fn wans_of_one_machine_do_not_meet() {
    let (one, two) = (
        up(true, &PathConfig::default()),
        up(true, &PathConfig::default()),
    );
    let bound = [&one, &two].map(|wan| {
        wan.enter(Site::B, || TcpListener::bind((wan.address(Site::B), 2121)))
            .expect("enter")
            .expect("the same address and port")
    });
    let listening = bound[0].local_addr().expect("bound");
    drop(one);
    let reached = two.spawn_thread_in(Site::A, move || TcpStream::connect(listening));
    let reached = reached
        .expect("a thread")
        .join()
        .expect("no panic")
        .expect("inside");
    reached.expect("the other WAN works on");
    let status = two
        .command(Site::A, "false")
        .expect("command")
        .status()
        .expect("run");
    assert_eq!(status.code(), Some(1));
}

fn visible_sites_come_and_go() {
    let mut config = WanConfig {
        visible: true,
        ..WanConfig::default()
    };
    let suffix = format!(
        "{}-{}",
        std::process::id(),
        Instant::now().elapsed().subsec_nanos()
    );
    config.sites[0].name = format!("test-a-{suffix}");
    config.sites[1].name = format!("test-b-{suffix}");
    let files = config
        .sites
        .each_ref()
        .map(|site| Path::new("/run/netns").join(&site.name));
    let wan = Wan::up(config.clone()).expect("a WAN");
    assert!(files.iter().all(|file| file.exists()));
    let refused = Wan::up(config).expect_err("the names are taken");
    assert!(matches!(refused, WanError::NameTaken { .. }), "{refused}");
    assert!(
        reaches(&wan, Site::A, false),
        "the refused one has left the first alone"
    );
    drop(wan);
    assert!(!files.iter().any(|file| file.exists()));
}

/// Checks that segmentation offload multiplies the emulator's capacity. The capacity is the
/// reciprocal of the emulator thread's processor time per packet. Goodput would also depend on
/// other work of the machine.
fn offload_multiplies_the_ceiling() {
    let costs = [false, true].map(|offload| {
        let wan = up(offload, &PathConfig::default());
        let rate = tcp_goodput(&wan, Site::A, false, 700 * MS).expect("traffic");
        let report = wan.report();
        let packets = report.directions[0].counters.delivered;
        assert!(
            packets > 5000,
            "{packets} packets tell nothing of bulk data"
        );
        let cost = report.thread.cpu_time.as_secs_f64() * 1e6 / packets as f64;
        println!("offload {offload}: TCP {rate}, {cost:.2} us for a packet");
        cost
    });
    assert!(costs[0] > 2.0 * costs[1], "{costs:?} us for a packet");
}

/// Tolerance for packets at the start and the end of a capture. The clocks of the capture and of
/// the test are not read at the same moment.
const EDGE_PACKETS: u64 = 1;
