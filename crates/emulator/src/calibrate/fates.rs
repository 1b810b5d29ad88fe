//! Calibration of impairments that affect single packets: loss, corruption, duplication, MTU, and
//! outage.

use std::{thread, time::Duration, time::SystemTime};

use units::BitRate;
use wansim::{GilbertElliott, PathConfig};

use super::{CalibrationRow, load, offloaded, up};
use crate::{
    Direction, Site, Wan,
    load::{LoadError, UdpLoad},
};

/// Calibrates random loss, with and without super-packets.
pub(super) fn loss() -> Result<Vec<CalibrationRow>, LoadError> {
    let mut rows = Vec::new();
    for offload in [false, true] {
        let path = PathConfig {
            loss: 0.02,
            ..PathConfig::default()
        };
        rows.extend(lost_and_doubled(offload, false, path)?);
    }
    Ok(rows)
}

/// Calibrates loss in bursts: the fraction of lost packets, and the mean number of consecutive lost
/// packets.
pub(super) fn bursts() -> Result<Vec<CalibrationRow>, LoadError> {
    const N: u64 = 60_000;
    const SHARE: f64 = 0.05;
    const LENGTH: f64 = 10.0;
    let chain = GilbertElliott::bursts_of(LENGTH, SHARE);
    let wan = up(
        true,
        &PathConfig {
            bursts: Some(chain),
            ..PathConfig::default()
        },
    )?;
    let received = small(true, N, 60).run(&wan)?;
    let report = wan.report();
    let has_arrived = received.has_arrived();
    let lost = has_arrived.iter().filter(|arrived| !**arrived).count() as u64;
    let gaps = has_arrived
        .chunk_by(|a, b| a == b)
        .filter(|stretch| !stretch[0])
        .count()
        .max(1) as f64;
    // The lengths of bursts are geometrically distributed. Consecutive packets are correlated.
    let length_error = LENGTH * (1.0 - 1.0 / LENGTH).sqrt() / gaps.sqrt();
    Ok(vec![
        CalibrationRow::share(
            &report,
            "bursts: share lost",
            [lost, N],
            SHARE,
            1.0 - chain.enter - chain.leave,
        ),
        CalibrationRow::judge(
            &report,
            "bursts: mean length",
            "packets",
            [LENGTH, lost as f64 / gaps, 3.0 * length_error],
        ),
    ])
}

/// Calibrates the fraction of corrupted packets. Checks that the receiver's checksums reject all
/// corrupted packets.
pub(super) fn corruption() -> Result<Vec<CalibrationRow>, LoadError> {
    const N: u64 = 20_000;
    const SHARE: f64 = 0.05;
    let mut rows = Vec::new();
    for offload in [false, true] {
        let wan = up(
            offload,
            &PathConfig {
                corruption: SHARE,
                ..PathConfig::default()
            },
        )?;
        let received = load(offload, BitRate::mbit(300), N).run(&wan)?;
        let report = wan.report();
        let corrupted = report.directions[0].counters.corrupted;
        let missing = N.saturating_sub(received.numbers.len() as u64);
        let refused = refused_by_kernel(&wan, Site::B)?;
        let name = |text: &str| format!("corruption {}: {text}", offloaded(offload));
        rows.extend([
            CalibrationRow::share(&report, name("packets missing"), [missing, N], SHARE, 0.0),
            CalibrationRow::exact(&report, name("refused by checksums"), corrupted, refused),
            CalibrationRow::exact(&report, name("wrong at a program"), 0, received.wrong),
        ]);
    }
    Ok(rows)
}

pub(super) fn duplication() -> Result<Vec<CalibrationRow>, LoadError> {
    let path = PathConfig {
        duplication: 0.01,
        ..PathConfig::default()
    };
    lost_and_doubled(true, false, path)
}

/// Calibrates loss and duplication together, over IPv6.
pub(super) fn ipv6() -> Result<Vec<CalibrationRow>, LoadError> {
    let path = PathConfig {
        loss: 0.02,
        duplication: 0.01,
        ..PathConfig::default()
    };
    lost_and_doubled(true, true, path)
}

/// Calibrates the MTU: measures the longest packet that the path delivers.
pub(super) fn mtu() -> Result<Vec<CalibrationRow>, LoadError> {
    const MTU: usize = 1000;
    let wan = up(
        true,
        &PathConfig {
            mtu: MTU,
            ..PathConfig::default()
        },
    )?;
    let lengths = [MTU - 1, MTU, MTU + 1, MTU + 2];
    let flows = lengths.map(|length| {
        let load = UdpLoad {
            payload: length - 28,
            ..load(false, BitRate::mbit(1), 10)
        };
        load.start(&wan)
    });
    let mut longest = 0;
    for (length, flow) in lengths.into_iter().zip(flows) {
        if !flow?.wait()?.numbers.is_empty() {
            longest = longest.max(length);
        }
    }
    let set = MTU as f64;
    Ok(vec![CalibrationRow::judge(
        &wan.report(),
        "MTU: longest IP packet that passes",
        "bytes",
        [set, longest as f64, 0.0],
    )])
}

/// Calibrates an outage. Only the packets sent during the outage must be lost.
pub(super) fn outage() -> Result<Vec<CalibrationRow>, LoadError> {
    let path = PathConfig {
        delay: Duration::from_millis(20),
        ..PathConfig::default()
    };
    let wan = up(true, &path)?;
    let load = UdpLoad {
        payload: 100,
        ..load(false, BitRate::mbit(1), 900)
    };
    let flow = load.start(&wan)?;
    // Begins or ends the outage. Returns the times before and after this change.
    let set = |outage| {
        let asked = SystemTime::now();
        let path = PathConfig {
            outage,
            ..path.clone()
        };
        wan.set(Direction::AToB, path);
        [asked, SystemTime::now()]
    };
    thread::sleep(OUTAGE_STEP);
    let cut = set(true);
    thread::sleep(OUTAGE_STEP);
    let mended = set(false);
    let received = flow.wait()?;
    let has_arrived = received.has_arrived();
    let lost = has_arrived.iter().filter(|arrived| !**arrived).count();
    let gaps = has_arrived.chunk_by(|a, b| a == b);
    let gaps = gaps.filter(|stretch| !stretch[0]).count();
    let sent = |from, to| {
        let within = received.sent.iter().filter(|at| (from..to).contains(*at));
        within.count() as f64
    };
    let (least, most) = (sent(cut[1], mended[0]), sent(cut[0], mended[1]));
    let report = wan.report();
    Ok(vec![
        CalibrationRow::judge(
            &report,
            "outage: packets lost, of those sent meanwhile",
            "packets",
            [least, lost as f64, most - least + EDGE_PACKETS],
        ),
        CalibrationRow::exact(&report, "outage: gaps in the stream", 1, gaps as u64),
    ])
}

/// Calibrates loss and duplication with small packets. Measures the fraction of lost packets, and
/// the fraction of the delivered packets that arrive twice.
fn lost_and_doubled(
    offload: bool,
    ipv6: bool,
    path: PathConfig,
) -> Result<Vec<CalibrationRow>, LoadError> {
    let n = if offload { 40_000 } else { 20_000 };
    let wan = up(offload, &path)?;
    let load = UdpLoad {
        ipv6,
        ..small(offload, n, 40)
    };
    let received = load.run(&wan)?;
    let report = wan.report();
    if offload && report.directions[0].load.frames_in > n / 8 {
        let text = "the kernel handed over single packets instead of super-packets";
        return Err(LoadError::Nothing(text.to_owned()));
    }
    let arrived = received.has_arrived().iter().filter(|a| **a).count() as u64;
    let kind = if path.loss > 0.0 {
        "loss"
    } else {
        "duplication"
    };
    let ending = match (ipv6, offload) {
        (true, _) => "by IPv6".to_owned(),
        (false, offload) => format!("{kind} {}", offloaded(offload)),
    };
    let mut rows = Vec::new();
    if path.loss > 0.0 {
        let name = format!("{ending}: lost");
        let lost = n - arrived;
        rows.push(CalibrationRow::share(
            &report,
            name,
            [lost, n],
            path.loss,
            0.0,
        ));
    }
    if path.duplication > 0.0 {
        let name = format!("{ending}: came twice");
        let twice = received.numbers.len() as u64 - arrived;
        let of = arrived.max(1);
        rows.push(CalibrationRow::share(
            &report,
            name,
            [twice, of],
            path.duplication,
            0.0,
        ));
    }
    // The emulator must count each packet separately, and no other impairment may remove packets.
    let counters = &report.directions[0].counters;
    let came = received.numbers.len() as u64;
    let name = |text| format!("{ending}: {text}");
    rows.push(CalibrationRow::exact(
        &report,
        name("sent as counted"),
        n,
        counters.sent,
    ));
    rows.push(CalibrationRow::exact(
        &report,
        name("delivered as counted"),
        counters.delivered,
        came,
    ));
    Ok(rows)
}

/// Returns a load of `n` packets with 64 bytes of payload, at `mbit` Mbit/s.
fn small(offload: bool, n: u64, mbit: u64) -> UdpLoad {
    UdpLoad {
        payload: 64,
        ..load(offload, BitRate::mbit(mbit), n)
    }
}

/// Returns the number of packets that a site's kernel discarded because of a wrong checksum.
fn refused_by_kernel(wan: &Wan, site: Site) -> Result<u64, LoadError> {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp");
    let text = wan
        .enter(site, read)?
        .map_err(LoadError::io("reading the kernel's counters"))?;
    let mut refused = 0;
    for (prefix, names) in [
        ("Udp: ", &["InErrors"][..]),
        ("Ip: ", &["InHdrErrors", "InAddrErrors", "InDiscards"]),
    ] {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
        let (names_line, values) = (
            lines.next().unwrap_or_default(),
            lines.next().unwrap_or_default(),
        );
        let pairs = names_line.split(' ').zip(values.split(' '));
        let counted = pairs.filter(|(name, _)| names.contains(name));
        refused += counted
            .filter_map(|(_, value)| value.parse::<u64>().ok())
            .sum::<u64>();
    }
    Ok(refused)
}

/// Tolerance in packets for the start and the end of an outage, where a packet may be either lost
/// or delivered. After 13 ms without a processor, a sender sends this number of packets at once.
const EDGE_PACKETS: f64 = 10.0;
/// Time from the start of the load to the outage, and length of the outage. Each is a third of the
/// load's duration.
const OUTAGE_STEP: Duration = Duration::from_millis(400);
