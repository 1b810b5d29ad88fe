//! Comparison of processor time per GB: the link, bare UDP and a QUIC library over the same paths.
//!
//! Two processes, each in its own network namespace, move 1 GB over two paths. One path is a veth
//! pair at 1 Gbit/s, with only the kernel between the processes. The other path is emulated, with
//! 200 ms round-trip time, 0.1 % loss and 900 Mbit/s. The bench runs the three programs in turn,
//! five times.
//!
//! The bench measures the user and system time of each process from the start of data flow until
//! the end of the data. The measurement excludes handshakes, and the data that warms up the
//! emulated path. `--help` lists the options. The exit code is 1 if the link takes more than half
//! of QUIC's time at the sender or at the receiver.
#![allow(
    clippy::disallowed_methods,
    reason = "a bench over real sockets and the real clock"
)]
#![allow(missing_docs, unreachable_pub, reason = "a program of several files")]

mod link_mover;
mod quic_mover;
mod udp_mover;

use std::{
    ffi::OsStr,
    fmt::Write as _,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use bench_kit::{
    machine::{self, Moment, ProcessTime},
    options, stats,
};
use clap::{Parser, ValueEnum, value_parser};
use emulator::{Cable, Site, Wan, WanConfig, WanError, privilege};
use nix::sys::{
    resource::{Usage, UsageWho, getrusage},
    time::{TimeVal, TimeValLike},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

/// Measure the processor time per gigabyte that the link, bare UDP and a QUIC library need on the
/// same path
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench cpu --")]
struct Options {
    /// Number of runs of each program on each path
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u64).range(1..))]
    runs: u64,
    /// Megabytes that the sender transfers in each run
    #[arg(long, value_name = "MB", default_value_t = 1000)]
    size: u64,
    /// Measure on this path only [default: both paths]
    #[arg(long, value_name = "NAME")]
    path: Option<BenchPath>,
    /// Measure this program only [default: all three]
    #[arg(long, value_name = "NAME")]
    only: Option<ComparedProgram>,
    /// Profile the link with perf instead of measuring; write the recordings to DIR
    #[arg(long, value_name = "DIR")]
    profile: Option<PathBuf>,
    /// Also write the tables to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Path over which the bench moves data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchPath {
    /// A pair of connected virtual interfaces (veth), without an emulator
    Wire,
    /// A path through the WAN emulator
    Wan,
}

/// Program that the bench compares with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ComparedProgram {
    Udp,
    Link,
    Quic,
}

/// Parameters of one transfer, for the process at either site.
#[derive(Debug, Clone, Copy)]
pub struct MoverTask {
    pub size: ByteCount,
    /// Highest sending rate.
    pub rate: BitRate,
    /// Round-trip time of the path.
    pub rtt: Duration,
    /// Bytes that the sender sends before the measurement starts.
    pub warm_up: ByteCount,
    /// Addresses of the sender and the receiver.
    pub addresses: [SocketAddr; 2],
}

/// Connection between the two sites.
enum SiteConnection {
    Wire(Cable),
    Wan(Box<Wan>),
}

/// Processor usage of a process since the start of data flow.
#[derive(Debug, Clone, Copy)]
struct ProcessUsage {
    user_s: f64,
    system_s: f64,
    elapsed_s: f64,
    /// Number of voluntary context switches.
    sleeps: f64,
    bytes: u64,
}

/// Meter of a process's processor usage, started when data can flow.
#[derive(Debug)]
pub struct UsageMeter {
    began: Instant,
    before: Usage,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = options::given().collect();
    let result = match arguments.split_first() {
        Some((first, rest)) if first == CHILD => child(rest).map(|()| true),
        _ => run(&options::read()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the bench. Returns whether the link meets the requirements.
fn run(options: &Options) -> anyhow::Result<bool> {
    privilege::acquire()?;
    let machine = machine::describe();
    println!("{machine}");
    let mut text = String::new();
    let mut is_reached = true;
    for joint in BenchPath::value_variants() {
        if options.path.is_some_and(|path| path != *joint) {
            continue;
        }
        let place = SiteConnection::make(*joint)?;
        let job = place.job(ByteCount::megabytes(options.size));
        if let Some(folder) = &options.profile {
            profile(&place, &job, &folder.join(joint.name()))?;
            continue;
        }
        let _ = writeln!(
            text,
            "\n{}; {} MB each {} times\n",
            place.describe(),
            options.size,
            options.runs
        );
        is_reached &= compare(&place, &job, options, &mut text)?;
    }
    print!("{text}");
    if let Some(out) = &options.out {
        let head = format!("# `cargo xtask bench cpu`\n\n{machine}.\n");
        std::fs::write(out, head + &text).with_context(|| out.display().to_string())?;
    }
    Ok(is_reached)
}

/// Runs all programs in turn over one path, and appends the table to the output. Returns whether
/// the link meets the requirements.
fn compare(
    place: &SiteConnection,
    job: &MoverTask,
    options: &Options,
    text: &mut String,
) -> anyhow::Result<bool> {
    let (moment, own) = (Moment::now()?, ProcessTime::own()?);
    let mut ours = Duration::ZERO;
    let movers = ComparedProgram::value_variants().iter().copied();
    let mut used: Vec<(ComparedProgram, [Vec<ProcessUsage>; 2])> = movers
        .filter(|mover| options.only.is_none_or(|only| only == *mover))
        .map(|mover| (mover, [Vec::new(), Vec::new()]))
        .collect();
    for run in 1..=options.runs {
        for (mover, sides) in &mut used {
            let both = measure(place, *mover, job)
                .with_context(|| format!("{} run {run}", mover.name()))?;
            eprintln!(
                "  run {run}: {} {:.2} and {:.2} s",
                mover.name(),
                both[0].cpu_s(),
                both[1].cpu_s()
            );
            for (side, used) in sides.iter_mut().zip(both) {
                ours += Duration::from_secs_f64(used.cpu_s());
                side.push(used);
            }
        }
    }
    ours += ProcessTime::own()? - own;
    let (table, is_reached) = table(&used);
    text.push_str(&table);
    let _ = writeln!(text, "\nmachine {}", moment.load_since(ours)?);
    if place.is_distorted() {
        text.push_str("the emulator could not keep up\n");
    }
    Ok(is_reached)
}

impl SiteConnection {
    fn make(joint: BenchPath) -> anyhow::Result<Self> {
        if joint == BenchPath::Wire {
            return Ok(Self::Wire(Cable::plug(MTU)?));
        }
        let path = PathConfig {
            rate: Some(BitRate::gbit(1)),
            queue: PathConfig::default_queue(BitRate::gbit(1), WAN_RTT),
            delay: WAN_RTT / 2,
            loss: WAN_LOSS,
            ..PathConfig::default()
        };
        let mut config = WanConfig {
            paths: [path.clone(), path],
            ..WanConfig::default()
        };
        for site in &mut config.sites {
            site.name = format!("cpu-{}-{}", std::process::id(), site.name);
        }
        Ok(Self::Wan(Box::new(Wan::up(config)?)))
    }

    fn describe(&self) -> String {
        match self {
            Self::Wire(_) => format!("A veth, MTU {MTU}, 1 Gbit/s at most"),
            Self::Wan(_) => format!(
                "An emulated path of 1 Gbit/s, {} ms, {} % loss each way, 900 Mbit/s at most",
                WAN_RTT.as_millis(),
                WAN_LOSS * 100.0
            ),
        }
    }

    fn job(&self, size: ByteCount) -> MoverTask {
        let (addresses, rate, rtt) = match self {
            Self::Wire(_) => (Cable::ADDRESSES, BitRate::gbit(1), Duration::ZERO),
            // The pacing rate is below the path's rate, so the senders cause no congestion.
            Self::Wan(wan) => {
                let addresses = wan.config().sites.each_ref().map(|site| site.ipv4);
                (addresses, BitRate::mbit(900), WAN_RTT)
            }
        };
        MoverTask {
            size,
            rate,
            rtt,
            warm_up: ByteCount::new(4 * rate.bytes_in(rtt).bytes()),
            addresses: addresses.map(|address| SocketAddr::from((address, PORT))),
        }
    }

    fn command(&self, site: Site, program: impl AsRef<OsStr>) -> Result<Command, WanError> {
        match self {
            Self::Wire(cable) => cable.command(site, program),
            Self::Wan(wan) => wan.command(site, program),
        }
    }

    fn is_distorted(&self) -> bool {
        match self {
            Self::Wire(_) => false,
            Self::Wan(wan) => wan.report().saturated(),
        }
    }
}

/// Formats the table of processor seconds per GB. Also returns whether the link takes at most half
/// of QUIC's time.
fn table(used: &[(ComparedProgram, [Vec<ProcessUsage>; 2])]) -> (String, bool) {
    let mut text = format!(
        "| {:<4} | {:<9} | {:>8} | {:>6} | {:>6} | {:>6} | {:>16} | {:>6} | {:>9} | {:>6} |\n|{}\n",
        "",
        "side",
        "s per GB",
        "least",
        "most",
        "user",
        "required",
        "",
        "sleeps/MB",
        "Mbit/s",
        [6, 11, 10, 8, 8, 8, 18, 8, 11, 8]
            .map(|width| "-".repeat(width) + "|")
            .concat()
    );
    let median_of = |mover: ComparedProgram, side: usize| {
        let sides = used.iter().find(|(found, _)| *found == mover);
        sides.map(|(_, sides)| median(sides[side].iter().map(ProcessUsage::cpu_s_per_gb)))
    };
    let mut is_reached = true;
    for (mover, sides) in used {
        for (side, runs) in sides.iter().enumerate() {
            let figures = || runs.iter().map(ProcessUsage::cpu_s_per_gb);
            let reached = median(figures());
            let bound = (*mover == ComparedProgram::Link)
                .then(|| median_of(ComparedProgram::Quic, side))
                .flatten()
                .map(|quic| quic / 2.0);
            let is_kept = bound.is_none_or(|bound| reached <= bound);
            is_reached &= is_kept;
            let required = match (mover, bound) {
                (ComparedProgram::Link, Some(bound)) => format!("<= {bound:.2}, aim {AIM}"),
                (ComparedProgram::Link, None) => format!("aim {AIM}"),
                _ => String::new(),
            };
            let _ = writeln!(
                text,
                "| {:<4} | {:<9} | {reached:>8.2} | {:>6.2} | {:>6.2} | {:>6.2} | {required:>16} | {:>6} | {:>9.1} | {:>6.0} |",
                if side == 0 { mover.name() } else { "" },
                ["sending", "receiving"][side],
                figures().fold(f64::INFINITY, f64::min),
                figures().fold(0.0, f64::max),
                median(runs.iter().map(|used| used.user_s / used.gigabytes())),
                if is_kept { "" } else { "MISSED" },
                median(
                    runs.iter()
                        .map(|used| used.sleeps / used.gigabytes() * 1e-3)
                ),
                median(
                    runs.iter()
                        .map(|used| used.gigabytes() * 8e3 / used.elapsed_s)
                ),
            );
        }
    }
    (text, is_reached)
}

/// Measures one transfer, with one process at each site.
fn measure(
    place: &SiteConnection,
    mover: ComparedProgram,
    job: &MoverTask,
) -> anyhow::Result<[ProcessUsage; 2]> {
    let program = std::env::current_exe()?;
    let start = |site: Site| start(place.command(site, &program)?, mover, site, job);
    let mut receiver = start(Site::B)?;
    // The receiver reports when it listens.
    let mut said = BufReader::new(receiver.stdout.take().context("its output is a pipe")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    ensure!(line.trim() == LISTENING, "the receiver said {line:?}");
    let sender = start(Site::A)?.wait_with_output()?;
    let mut rest = String::new();
    said.read_to_string(&mut rest)?;
    let status = receiver.wait()?;
    ensure!(
        sender.status.success() && status.success(),
        "a process has failed"
    );
    let sent = ProcessUsage::read(&String::from_utf8_lossy(&sender.stdout))?;
    Ok([sent, ProcessUsage::read(&rest)?])
}

fn start(
    mut command: Command,
    mover: ComparedProgram,
    site: Site,
    job: &MoverTask,
) -> anyhow::Result<Child> {
    let side = ["send", "receive"][site as usize];
    command
        .args([CHILD, mover.name(), side])
        .arg(job.size.bytes().to_string())
        .arg(job.rate.as_bits_per_s().to_string())
        .arg(job.rtt.as_millis().to_string())
        .arg(job.warm_up.bytes().to_string())
        .args(job.addresses.map(|address| address.to_string()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command.spawn().context("starting a process")
}

/// Records the link's processes at both sites with perf, and prints the functions that use the most
/// processor time.
fn profile(place: &SiteConnection, job: &MoverTask, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let recordings = ["sending", "receiving"].map(|side| folder.join(format!("{side}.perf")));
    let program = std::env::current_exe()?;
    let start = |site: Site| {
        let mut command = place.command(site, "perf")?;
        // perf samples by the clock, since some virtual machines lack the processor's counters.
        command
            .args(["record", "-q", "-F", "2500", "-e", "cpu-clock", "-g", "-o"])
            .arg(&recordings[site as usize])
            .arg("--")
            .arg(&program);
        start(command, ComparedProgram::Link, site, job)
            .context("perf is in the package linux-perf")
    };
    let mut receiver = start(Site::B)?;
    std::thread::sleep(Duration::from_secs(1));
    let sender = start(Site::A)?.wait_with_output()?;
    ensure!(
        sender.status.success() && receiver.wait()?.success(),
        "a process has failed"
    );
    for recording in &recordings {
        println!("\n{}", recording.display());
        let report = Command::new("perf")
            .args([
                "report",
                "--stdio",
                "--no-children",
                "-g",
                "none",
                "-F",
                "overhead,symbol",
            ])
            .args(["--percent-limit", "0.7", "-i"])
            .arg(recording)
            .stderr(Stdio::null())
            .output()?;
        for line in String::from_utf8_lossy(&report.stdout).lines() {
            if !line.starts_with('#') && !line.trim().is_empty() {
                println!("{}", line.trim_end());
            }
        }
    }
    Ok(())
}

/// Runs the process of one site for [`measure`].
fn child(arguments: &[String]) -> anyhow::Result<()> {
    let [mover, side, size, rate, rtt_ms, warm_up, ours, theirs, ..] = arguments else {
        bail!("{CHILD} MOVER SIDE BYTES BITS_PER_S RTT_MS WARM_UP_BYTES SENDER RECEIVER");
    };
    let job = MoverTask {
        size: ByteCount::new(size.parse()?),
        rate: BitRate::bits_per_s(rate.parse()?),
        rtt: Duration::from_millis(rtt_ms.parse()?),
        warm_up: ByteCount::new(warm_up.parse()?),
        addresses: [ours.parse()?, theirs.parse()?],
    };
    let mover = ComparedProgram::from_str(mover, false).map_err(anyhow::Error::msg)?;
    match (mover, side.as_str()) {
        (ComparedProgram::Udp, "send") => udp_mover::send(&job),
        (ComparedProgram::Udp, _) => udp_mover::receive(&job),
        (ComparedProgram::Link, "send") => link_mover::send(&job),
        (ComparedProgram::Link, _) => link_mover::receive(&job),
        (ComparedProgram::Quic, "send") => quic_mover::send(&job),
        (ComparedProgram::Quic, _) => quic_mover::receive(&job),
    }
}

/// Prints the line that permits the sender to connect to this receiver.
pub fn say_listening() {
    println!("{LISTENING}");
}

impl UsageMeter {
    /// Starts the meter. Call it when data can flow.
    pub fn start() -> anyhow::Result<Self> {
        Ok(Self {
            before: getrusage(UsageWho::RUSAGE_SELF)?,
            began: Instant::now(),
        })
    }

    /// Prints the usage since the start, for `bytes` bytes of data.
    pub fn end(&self, bytes: u64) -> anyhow::Result<()> {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let after = getrusage(UsageWho::RUSAGE_SELF)?;
        let seconds = |time: TimeVal| time.num_microseconds() as f64 * 1e-6;
        let user = seconds(after.user_time()) - seconds(self.before.user_time());
        let system = seconds(after.system_time()) - seconds(self.before.system_time());
        let sleeps = after.voluntary_context_switches() - self.before.voluntary_context_switches();
        println!("{user} {system} {elapsed_s} {sleeps} {bytes}");
        Ok(())
    }
}

impl ProcessUsage {
    fn read(line: &str) -> anyhow::Result<Self> {
        let fields: Vec<f64> = line
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        let &[user_s, system_s, elapsed_s, sleeps, bytes] = &fields[..] else {
            bail!("a process said {line:?}");
        };
        Ok(Self {
            user_s,
            system_s,
            elapsed_s,
            sleeps,
            bytes: bytes as u64,
        })
    }

    fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    fn gigabytes(&self) -> f64 {
        self.bytes as f64 * 1e-9
    }

    fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_s() / self.gigabytes()
    }
}

impl BenchPath {
    fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Wan => "wan",
        }
    }
}

impl ComparedProgram {
    fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Link => "link",
            Self::Quic => "quic",
        }
    }
}

/// Returns the median of one value over all runs.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    stats::median(&values).expect("each side has a run at least")
}

const PORT: u16 = 4810;
/// UDP payload of a packet that fills the MTU, over IPv4.
pub const DATAGRAM_BYTES: usize = MTU as usize - 28;
const MTU: u32 = 1500;
/// Target for the link with segmentation offload, in processor seconds per GB at each endpoint.
const AIM: f64 = 1.2;
const WAN_RTT: Duration = Duration::from_millis(200);
/// Fraction of packets lost in each direction.
const WAN_LOSS: f64 = 0.001;
const CHILD: &str = "--child";
const LISTENING: &str = "listening";
