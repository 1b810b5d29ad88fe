//! `cargo xtask bench`: runs benches, and prints their figures with the conditions of the
//! measurement.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::{
    Failure, conformance, packages,
    shell::{Build, cargo, read_lines, root, succeeds, tool},
};

#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// The link in virtual time: goodput over loss, bursts, reordering, and times, against required
    /// values
    #[command(visible_alias = "matrix")]
    Link {
        /// Passed on: `-- --seeds N`, `-- --only matrix`, `-- --cell RTT_MS LOSS`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// The regression scenarios of the congestion controller in virtual time: required and reached
    Controller {
        /// Passed on: `-- --scenario N`, `-- --seeds K`, `-- --full`, `-- --ablate`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// How the link shares with CUBIC, Reno, BBR and itself, with a page of plots
    Fair {
        /// Use emulated paths and the TCP of the kernel instead of virtual time; 20
        /// min
        #[arg(long)]
        kernel: bool,
        /// Passed on: `-- --row TEXT`, `-- --trace`, `-- --out FILE`, `-- --seeds K`; for the
        /// kernel's `-- --quick`, `-- --runs K`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Bulk transfers through a pair of gateways over the emulated WAN and the kernel, against TCP
    /// and required values; half an hour
    Wan {
        /// Passed on: `-- --quick`, `-- --cell RTT_MS LOSS_PERCENT`, `-- --out FILE`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Processor time per GB of the link, of bare UDP and of a QUIC library over the same wire
    Cpu {
        /// Passed on: `-- --runs N`, `-- --only link`, `-- --profile DIR`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Instructions that the link takes for a packet, counted by Valgrind, each within a stored
    /// bound
    ///
    /// As root, Valgrind is installed first if it is missing.
    Instructions {
        /// Passed on: `-- sender` counts only rows with this text in their name
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Waiting times of FTP users at 600 ms, in round trips, each with its target (root only); 12
    /// min
    RoundTrips {
        /// Passed on: `-- --quick`, `-- --write`, `-- --runs N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// FTP on a short path without loss: rate and latency through gateways and directly (root
    /// only); 12 min
    NothingAdded {
        /// Passed on: `-- --quick`, `-- --write`, `-- --runs N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// 10,000 files of 10 KB by `lftp mirror` or by FileZilla (root only)
    SmallFiles {
        /// Passed on: `-- --quick`, `-- --write`, `-- --client filezilla`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// A thousand sessions that are logged in at once: memory for each, and answers (root only)
    IdleSessions {
        /// Passed on: `-- --quick`, `-- --write`, `-- --sessions N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// A thousand FTP sessions of 35 commands, through a pair and directly by turns (root only)
    Sessions {
        /// Passed on: `-- --quick`, `-- --write`, `-- --arrivals PER_S`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Uploads in fast mode at round trips of 400 and 1000 ms, the first upload to a server and
    /// later ones (root only); 5 min
    Uploads {
        /// Passed on: `-- --quick`, `-- --write`, `-- --runs N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Text, logs, images, repeated files: rates with and without the optimiser, and of rsync, zstd
    /// and MODE Z (root only); 100 min
    Optimiser {
        /// Passed on: `-- --quick`, `-- --write`, `-- --only NAME`, `-- --processor`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Uploads while the route becomes longer and shorter, idle and in use (root only); 10 min
    Routes {
        /// Passed on: `-- --quick`, `-- --write`, `-- --runs N`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// 200 small downloads a second through a listener with a thousand passive ports (root only); 5
    /// min
    PassivePorts {
        /// Passed on: `-- --quick`, `-- --write`, `-- --seconds N`, `-- --rate-per-s N`, `--
        /// --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Rates that `longhaul probe tcp` and iperf3 measure on the same path (root only); 7 min
    Probe {
        /// Passed on: `-- --quick`, `-- --write`, `-- --runs N`, `-- --help`
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
    let mut command = conformance::python();
    command
        .arg(script.path())
        .arg("--longhaul")
        .arg(program)
        .args(arguments);
    Ok(succeeds(&mut command)?.then_some(()).ok_or(Failure::Failed))
}

/// Returns the command that runs a bench of a package with its default features.
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
