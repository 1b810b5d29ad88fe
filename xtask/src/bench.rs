//! `cargo xtask bench`: runs benches, and prints their figures with the conditions of the
//! measurement.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::{
    Failure, conformance, packages,
    shell::{Build, cargo, read_lines, root, succeeds, tool},
    wheels,
};

#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// Measure the link in virtual time, and compare its goodput and completion times with required
    /// values
    #[command(visible_alias = "matrix")]
    Link {
        /// Arguments for the bench: `-- --seeds N`, `-- --only matrix`, `-- --cell RTT_MS LOSS`,
        /// `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Run the regression scenarios of the congestion controller in virtual time, and compare the
    /// figures with required values
    Controller {
        /// Arguments for the bench: `-- --scenario N`, `-- --seeds K`, `-- --full`, `-- --ablate`,
        /// `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure how the link shares a bottleneck with CUBIC, Reno, BBR and other links, and draw
    /// plots
    Fair {
        /// Use emulated paths and the TCP of the kernel instead of virtual time; takes 20 min
        #[arg(long)]
        kernel: bool,
        /// Arguments for the bench: `-- --row TEXT`, `-- --trace`, `-- --out FILE`, `-- --seeds K`,
        /// `-- --help`; with --kernel also `-- --quick`, `-- --runs K`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure bulk transfers through two gateways over an emulated WAN, and compare them with TCP
    /// and with required values; half an hour
    Wan {
        /// Arguments for the bench: `-- --quick`, `-- --cell RTT_MS LOSS_PERCENT`, `-- --out FILE`,
        /// `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure the processor time per gigabyte that the link, bare UDP and a QUIC library need on
    /// the same path
    Cpu {
        /// Arguments for the bench: `-- --runs N`, `-- --only link`, `-- --profile DIR`,
        /// `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Count the link's processor instructions per packet with Valgrind, and compare the counts
    /// with stored limits
    ///
    /// If Valgrind is missing and the user is root, the command installs Valgrind first.
    Instructions {
        /// Arguments for the bench: `-- sender` counts only rows with `sender` in their name
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure the waiting times of FTP users at a round-trip time of 600 ms, and compare them with
    /// targets (root only); 12 min
    RoundTrips {
        /// Arguments for the bench: `-- --quick`, `-- --write`, `-- --runs N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure rate and latency of FTP on a short path without loss, with and without gateways
    /// (root only); 12 min
    NothingAdded {
        /// Arguments for the bench: `-- --quick`, `-- --write`, `-- --runs N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure transfers of 10,000 files of 10 KB by `lftp mirror` or FileZilla (root only)
    SmallFiles {
        /// Arguments for the bench: `-- --quick`, `-- --write`, `-- --client filezilla`,
        /// `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure the memory per session with 1000 idle sessions, and check that each session gets
    /// replies (root only)
    IdleSessions {
        /// Arguments for the bench: `-- --quick`, `-- --write`, `-- --sessions N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Run 1000 FTP sessions of 35 commands, alternately through two gateways and directly (root
    /// only)
    Sessions {
        /// Arguments for the bench: `-- --quick`, `-- --write`, `-- --arrivals PER_S`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure first and later uploads to a server in fast mode, at round-trip times of 400 ms and
    /// 1000 ms (root only); 5 min
    Uploads {
        /// Arguments for the bench: `-- --quick`, `-- --write`, `-- --runs N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Compare rates with the optimiser, without the optimiser, and by rsync, zstd and MODE Z, for
    /// several kinds of content (root only); 100 min
    Optimiser {
        /// Arguments for the bench: `-- --quick`, `-- --write`, `-- --only NAME`, `-- --processor`,
        /// `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Compare SFTP, scp and rsync through an SSH listener, directly and through a forward (root
    /// only); 2 h
    Ssh {
        /// Arguments for the bench: `-- --quick`, `-- --write`, `-- --only NAME`, `-- --runs N`,
        /// `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Measure uploads on a route whose round-trip time changes during an upload or between uploads
    /// (root only); 10 min
    Routes {
        /// Arguments for the bench: `-- --quick`, `-- --write`, `-- --runs N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Run 200 small downloads a second through a listener with 1000 passive ports (root only); 5
    /// min
    PassivePorts {
        /// Arguments for the bench: `-- --quick`, `-- --write`, `-- --seconds N`,
        /// `-- --rate-per-s N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Compare the rates that `longhaul probe tcp` and iperf3 measure on the same path (root only);
    /// 7 min
    Probe {
        /// Arguments for the bench: `-- --quick`, `-- --write`, `-- --runs N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

/// A Python script in `benches/` that measures something.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Script {
    RoundTrips,
    NothingAdded,
    SmallFiles,
    IdleSessions,
    Sessions,
    PassivePorts,
    Uploads,
    Optimiser,
    Ssh,
    Routes,
    Probe,
    Soak,
    Faults,
}

impl Script {
    /// Returns the name of the script as a subcommand of `cargo xtask bench`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RoundTrips => "round-trips",
            Self::NothingAdded => "nothing-added",
            Self::SmallFiles => "small-files",
            Self::IdleSessions => "idle-sessions",
            Self::Sessions => "sessions",
            Self::PassivePorts => "passive-ports",
            Self::Uploads => "uploads",
            Self::Optimiser => "optimiser",
            Self::Ssh => "ssh",
            Self::Routes => "routes",
            Self::Probe => "probe",
            Self::Soak => "soak",
            Self::Faults => "faults",
        }
    }

    pub(crate) fn path(self) -> PathBuf {
        let file = format!("{}.py", self.name().replace('-', "_"));
        root().join("benches").join(file)
    }
}

pub(crate) fn run(bench: &Bench) -> Result<Result<(), Failure>> {
    let mut command = match bench {
        Bench::Link { arguments } => of_link("link", arguments),
        Bench::Controller { arguments } => of_link("controller", arguments),
        Bench::Fair { kernel, arguments } => {
            let mut command = of("longhaul-eval", "fair", arguments);
            command.args(kernel.then_some("--kernel"));
            command
        }
        Bench::Wan { arguments } => of("longhaul", "wan", arguments),
        Bench::Cpu { arguments } => of("longhaul-eval", "cpu", arguments),
        Bench::Instructions { arguments } => return instructions(arguments),
        Bench::RoundTrips { arguments } => return measure(Script::RoundTrips, arguments),
        Bench::NothingAdded { arguments } => return measure(Script::NothingAdded, arguments),
        Bench::SmallFiles { arguments } => return measure(Script::SmallFiles, arguments),
        Bench::IdleSessions { arguments } => return measure(Script::IdleSessions, arguments),
        Bench::Sessions { arguments } => return measure(Script::Sessions, arguments),
        Bench::Uploads { arguments } => return measure(Script::Uploads, arguments),
        Bench::Optimiser { arguments } => return measure(Script::Optimiser, arguments),
        Bench::Ssh { arguments } => return measure(Script::Ssh, arguments),
        Bench::Routes { arguments } => return measure(Script::Routes, arguments),
        Bench::PassivePorts { arguments } => return measure(Script::PassivePorts, arguments),
        Bench::Probe { arguments } => return measure(Script::Probe, arguments),
    };
    Ok(succeeds(&mut command)?.then_some(()).ok_or(Failure::Failed))
}

/// Runs a measuring script.
pub(crate) fn measure(script: Script, arguments: &[String]) -> Result<Result<(), Failure>> {
    let program = match conformance::prepare()? {
        Ok(program) => program,
        Err(failure) => return Ok(Err(failure)),
    };
    if matches!(script, Script::Ssh) {
        wheels::provide(conformance::SSH_LIBRARIES, conformance::SSH_FOLDER)?;
    }
    let mut command = conformance::python();
    command
        .arg(script.path())
        .arg("--longhaul")
        .arg(program)
        .args(arguments);
    Ok(succeeds(&mut command)?.then_some(()).ok_or(Failure::Failed))
}

/// Returns the command that runs a bench. The package of the bench has its default features.
fn of(package: &str, name: &str, arguments: &[String]) -> Command {
    let mut command = cargo(["bench", "-p", package, "--bench", name, "--"]);
    command.args(arguments);
    command
}

/// Returns the command that runs a bench of the link, with the simulator. The bench of the
/// congestion controller also needs the feature that can disable parts of the controller.
fn of_link(name: &str, arguments: &[String]) -> Command {
    let features = match name {
        "controller" => "ablation",
        _ => "sim",
    };
    let mut command = cargo(["bench", "-p", "longhaul-link", "--features", features]);
    command.args(["--bench", name, "--"]).args(arguments);
    command
}

/// Version of the crate gungraun. It equals the version in the workspace's manifest.
const GUNGRAUN_VERSION: &str = "0.20.0";
/// Number of packets in one measurement of `crates/link/benches/packets.rs`.
const PACKETS: f64 = 10_000.0;

/// Runs the bench of instructions, and prints the counts per packet.
fn instructions(arguments: &[String]) -> Result<Result<(), Failure>> {
    if let Err(failure) = packages::provide(packages::INSTRUCTIONS)? {
        return Ok(Err(failure));
    }
    let runner = tool("gungraun-runner", GUNGRAUN_VERSION, Build::Optimised)?;
    let mut command = of_link("packets", arguments);
    command.env("GUNGRAUN_RUNNER", runner);
    let mut counted = Vec::new();
    let mut name = String::new();
    let is_kept = read_lines(&mut command, |line| {
        println!("{line}");
        if line.starts_with("packets::") {
            name = line.trim_start_matches("packets::").to_owned();
        } else if let Some(count) = instruction_count(line) {
            counted.push((name.clone(), count));
        }
    })?;
    println!("\ninstructions a packet");
    for (name, count) in &counted {
        println!("  {name:<60} {:>8.0}", count / PACKETS);
    }
    Ok((is_kept && !counted.is_empty())
        .then_some(())
        .ok_or(Failure::Failed))
}

/// Returns the new count from a line of gungraun's output, such as `Instructions: 1234|1200
/// (+2.8%)`.
fn instruction_count(line: &str) -> Option<f64> {
    let (_, counts) = line.trim_start().split_once("Instructions:")?;
    counts.split('|').next()?.trim().parse().ok()
}
