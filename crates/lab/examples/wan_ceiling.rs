//! Prints how much the emulator carries on this machine, with and without segmentation offload,
//! while senders and receivers run on the same processors.
//!
//! `cargo run --release -p lab --example wan_ceiling`
#![allow(clippy::disallowed_methods, reason = "measures in real time")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{thread, time::Duration};

use lab::wan::{Report, Site, Wan, WanConfig, WanError, privilege};
use support::{FULL_PAYLOAD, UdpLoad, start_udp, tcp_goodput};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

fn main() -> anyhow::Result<()> {
    privilege::acquire()?;
    println!("UDP, 1500-byte packets both ways at once, rate each way on the wire; 20 ms each way");
    println!("offload  offered      delivered              lost   emulator CPU  latest  verdict");
    for offload in [false, true] {
        for mbit in [100, 300, 500, 750, 1000, 1500, 2000, 3000, 5000] {
            let path = PathConfig {
                delay: Duration::from_millis(20),
                ..PathConfig::default()
            };
            udp(offload, BitRate::mbit(mbit), path)?;
        }
    }
    println!("\nThe same through a bottleneck of that rate, 100 ms each way, 0.1 % loss");
    for offload in [false, true] {
        for mbit in [300, 1000] {
            let rate = BitRate::mbit(mbit);
            let path = PathConfig {
                rate: Some(rate),
                queue: ByteCount::megabytes(12),
                delay: Duration::from_millis(100),
                loss: 0.001,
                ..PathConfig::default()
            };
            udp(offload, rate, path)?;
        }
    }
    println!("\nTCP, one flow, no rate limit, no delay");
    println!("offload  directions  goodput                emulator CPU  verdict");
    for offload in [false, true] {
        for both in [false, true] {
            tcp(offload, both)?;
        }
    }
    Ok(())
}

fn wan(offload: bool, path: PathConfig) -> Result<Wan, WanError> {
    let paths = [path.clone(), path];
    Wan::up(WanConfig {
        offload,
        paths,
        ..WanConfig::default()
    })
}

fn udp(offload: bool, rate: BitRate, path: PathConfig) -> anyhow::Result<()> {
    let wan = wan(offload, path)?;
    let packets = rate.bytes_in(Duration::from_secs(2)).bytes() / 1538;
    let load = |from| UdpLoad {
        from,
        ipv6: false,
        payload: FULL_PAYLOAD,
        rate,
        packets,
        offload,
    };
    let flows = Site::BOTH.map(|site| start_udp(&wan, load(site)));
    let before = wan.report();
    thread::sleep(Duration::from_millis(1500));
    let cpu = cpu_share(&before, &wan.report());
    let received = flows.map(|flow| flow.join().expect("no panic"));
    let report = wan.report();
    let rates = received
        .each_ref()
        .map(|r| r.rate_bits_per_s(FULL_PAYLOAD, rate) / 1e6);
    let arrived: usize = received.iter().map(|r| r.numbers.len()).sum();
    let lost = 1.0 - arrived as f64 / (2 * packets) as f64;
    let latest = report
        .directions
        .iter()
        .map(|d| d.load.latest_us)
        .max()
        .unwrap_or(0);
    println!(
        "{offload:<7}  {:<11}  {:>5.0} + {:>5.0} Mbit/s  {:>6.2} %  {:>11.0} %  {:>4.1} ms  {}",
        rate.to_string(),
        rates[0],
        rates[1],
        lost * 100.0,
        cpu * 100.0,
        latest as f64 / 1e3,
        verdict(&report),
    );
    Ok(())
}

fn tcp(offload: bool, both: bool) -> anyhow::Result<()> {
    let wan = wan(offload, PathConfig::default())?;
    let time = Duration::from_secs(3);
    let before = wan.report();
    let rates: Vec<BitRate> = thread::scope(|scope| {
        let sites = if both {
            &Site::BOTH[..]
        } else {
            &Site::BOTH[..1]
        };
        let flows: Vec<_> = sites
            .iter()
            .map(|site| scope.spawn(|| tcp_goodput(&wan, *site, false, time)))
            .collect();
        flows
            .into_iter()
            .map(|flow| flow.join().expect("no panic"))
            .collect()
    });
    let report = wan.report();
    let rates: Vec<_> = rates.iter().map(BitRate::to_string).collect();
    println!(
        "{offload:<7}  {:<10}  {:<21}  {:>11.0} %  {}",
        if both { "both" } else { "one" },
        rates.join(" + "),
        cpu_share(&before, &report) * 100.0,
        verdict(&report),
    );
    Ok(())
}

fn cpu_share(before: &Report, after: &Report) -> f64 {
    let cpu = after.thread.cpu_time - before.thread.cpu_time;
    cpu.as_secs_f64() / (after.thread.uptime - before.thread.uptime).as_secs_f64()
}

fn verdict(report: &Report) -> String {
    let drops: u64 = report.directions.iter().map(|d| d.load.receive_drops).sum();
    let failures: u64 = report.directions.iter().map(|d| d.load.send_failures).sum();
    let late: u64 = report.directions.iter().map(|d| d.load.late_packets).sum();
    let frames: u64 = report.directions.iter().map(|d| d.load.frames_out).sum();
    let packets: u64 = report.directions.iter().map(|d| d.counters.delivered).sum();
    let per_frame = packets as f64 / frames.max(1) as f64;
    let word = if report.saturated() {
        "saturated"
    } else {
        "fine"
    };
    format!("{word} ({drops} dropped, {failures} refused, {late} late, {per_frame:.1} a frame)")
}
