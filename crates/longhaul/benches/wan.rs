//! A bulk transfer through a pair of gateways against TCP directly, over an emulated WAN and the
//! kernel: 500 MB, acknowledged end to end by an echo of the last bytes.
//!
//! Both ways are interleaved on the same path, median of `--runs` (5). The link is warm: 100 MB went
//! before. TCP has 512 MB buffers. Processor time of each gateway is read from the kernel.
#![allow(
    clippy::disallowed_methods,
    reason = "a bench over real sockets and the real clock"
)]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use lab::{
    gateways::{GatewayPlan, Gateways},
    wan::{Site, Wan, WanConfig, privilege},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

const SIZE: ByteCount = ByteCount::megabytes(500);
const WARM_UP: ByteCount = ByteCount::megabytes(100);
const TCP_BUFFER_BYTES: u64 = 512 << 20;
const STEP: usize = 1 << 20;

struct Cell {
    rate: BitRate,
    rtt: Duration,
    loss: f64,
}

fn main() -> anyhow::Result<()> {
    let mut runs = 5;
    let mut congestion_control = "bbr".to_owned();
    let mut only = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--runs" => runs = arguments.next().context("--runs N")?.parse()?,
            "--tcp" => congestion_control = arguments.next().context("--tcp NAME")?,
            "--rate" => {
                only = Some(
                    arguments
                        .next()
                        .context("--rate RATE")?
                        .parse::<BitRate>()?,
                )
            }
            "--bench" => {}
            other => {
                anyhow::bail!("unknown argument {other}; known: --runs N, --tcp NAME, --rate RATE")
            }
        }
    }
    privilege::acquire()?;
    let rtt = Duration::from_millis(200);
    for rate in [BitRate::gbit(1), BitRate::mbit(300)] {
        if only.is_none_or(|only| only == rate) {
            measure(
                &Cell {
                    rate,
                    rtt,
                    loss: 0.001,
                },
                runs,
                &congestion_control,
            )?;
        }
    }
    Ok(())
}

fn measure(cell: &Cell, runs: usize, congestion_control: &str) -> anyhow::Result<()> {
    let Cell { rate, rtt, loss } = cell;
    let path = PathConfig {
        rate: Some(*rate),
        queue: PathConfig::default_queue(*rate, *rtt),
        delay: *rtt / 2,
        loss: *loss,
        ..PathConfig::default()
    };
    let mut config = WanConfig {
        paths: [path.clone(), path],
        ..WanConfig::default()
    };
    for site in &mut config.sites {
        site.name = format!("bench-{}-{}", std::process::id(), site.name);
    }
    let mut wan = Wan::up(config)?;
    for site in Site::BOTH {
        wan.enter(site, || -> std::io::Result<()> {
            for (file, low) in [("tcp_rmem", "4096 131072"), ("tcp_wmem", "4096 16384")] {
                let text = format!("{low} {TCP_BUFFER_BYTES}");
                std::fs::write(format!("/proc/sys/net/ipv4/{file}"), text)?;
            }
            Ok(())
        })??;
        wan.set_congestion_control(site, congestion_control)?;
    }
    let addresses = wan.config().sites.each_ref().map(|site| site.ipv4);
    let sink = SocketAddr::from((addresses[1], 6200));
    let listener = wan.enter(Site::B, || TcpListener::bind(sink))??;
    std::thread::spawn(move || serve(&listener));
    let door = SocketAddr::from((addresses[0], 6201));
    let link_b = SocketAddr::from((addresses[1], 4810));
    let plan = GatewayPlan {
        listen_a: SocketAddr::from((addresses[0], 4810)),
        listen_b: link_b,
        endpoint_b: link_b,
        doors: format!("[[forward]]\nlisten = \"{door}\"\ntarget = \"{sink}\"\n"),
        allow: vec![sink],
    };
    let program = Path::new(env!("CARGO_BIN_EXE_longhaul"));
    let mut gateways = Gateways::start(&plan, |site| Ok(wan.command(site, program)?))?;
    gateways.wait_until(|| Ok(wan.enter(Site::A, || TcpStream::connect(door).is_ok())?))?;
    send(&wan, door, WARM_UP).with_context(|| format!("warming up; {}", gateways.last_words()))?;
    let goodput = rate.as_bytes_per_s() * 0.94 * (1.0 - loss);
    let ideal_s = SIZE.bytes() as f64 / goodput + 2.0 * rtt.as_secs_f64();
    println!(
        "\n{rate}, RTT {} ms, {} % loss each way: {SIZE}, ideal {ideal_s:.2} s",
        rtt.as_millis(),
        loss * 100.0
    );
    let (mut through, mut direct, mut cpu) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    for run in 1..=runs {
        let before = gateways.cpu_time()?;
        let took = send(&wan, door, SIZE)
            .with_context(|| format!("run {run}; {}", gateways.last_words()))?;
        let after = gateways.cpu_time()?;
        through.push(took);
        for site in 0..2 {
            let used = (after[site] - before[site]).as_secs_f64();
            cpu[site].push(used / (SIZE.bytes() as f64 * 1e-9));
        }
        let tcp = send(&wan, sink, SIZE)?;
        direct.push(tcp);
        println!(
            "  run {run}: gateways {took:.2} s ({:.3} of ideal), TCP {congestion_control} {tcp:.2} s ({:.3})",
            ideal_s / took,
            ideal_s / tcp
        );
    }
    let (through, direct) = (spread(&mut through), spread(&mut direct));
    println!(
        "  gateways: median {:.2} s ({:.2} to {:.2}), {:.3} of ideal",
        through.1,
        through.0,
        through.2,
        ideal_s / through.1
    );
    println!(
        "  TCP {congestion_control}: median {:.2} s ({:.2} to {:.2}), {:.3} of ideal",
        direct.1,
        direct.0,
        direct.2,
        ideal_s / direct.1
    );
    println!("  ratio {:.2}", direct.1 / through.1);
    for (site, used) in ["sending", "receiving"].iter().zip(&mut cpu) {
        let used = spread(used);
        println!(
            "  {site} gateway: {:.2} s of processor time per GB ({:.2} to {:.2})",
            used.1, used.0, used.2
        );
    }
    let report = wan.report();
    println!(
        "  emulator: {:.0} % of a core at its busiest{}",
        report.thread.busy_max * 100.0,
        if report.saturated() {
            "; it could not keep up, the figures are too low"
        } else {
            ""
        }
    );
    Ok(())
}

/// Sends `size` bytes to `address` from site A. Returns the seconds from connecting to the echo of
/// the last bytes.
fn send(wan: &Wan, address: SocketAddr, size: ByteCount) -> anyhow::Result<f64> {
    wan.enter(Site::A, || {
        let began = Instant::now();
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(&size.bytes().to_be_bytes())?;
        let mut block = vec![0; STEP];
        let mut state = began.elapsed().as_nanos() as u64 | 1;
        for word in block.chunks_mut(8) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        let mut left = size.bytes() as usize;
        let mut last = 0;
        while left > 0 {
            last = left.min(STEP);
            stream.write_all(&block[..last])?;
            left -= last;
        }
        let mut echo = [0; 8];
        stream.read_exact(&mut echo)?;
        ensure!(
            echo == block[last - 8..last],
            "the echo is not what was sent last"
        );
        Ok(began.elapsed().as_secs_f64())
    })?
}

/// Answers each connection with the last eight of the bytes that it announced.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        std::thread::spawn(move || -> std::io::Result<()> {
            let mut size = [0; 8];
            stream.read_exact(&mut size)?;
            let mut left = u64::from_be_bytes(size) as usize;
            let mut block = vec![0; STEP];
            let mut last = [0; 8];
            while left > 0 {
                let count = stream.read(&mut block[..left.min(STEP)])?;
                if count == 0 {
                    return Ok(());
                }
                // The last eight bytes so far, across reads of any size.
                let tail = &block[count.saturating_sub(8)..count];
                last.rotate_left(tail.len());
                last[8 - tail.len()..].copy_from_slice(tail);
                left -= count;
            }
            stream.write_all(&last)
        });
    }
}

/// Minimum, median and maximum.
fn spread(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    )
}
