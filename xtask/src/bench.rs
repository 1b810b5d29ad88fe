//! `cargo xtask bench`: figures, and the conditions under which they were measured.

use std::process::Command;

use anyhow::Result;

use crate::{
    Failure, packages,
    shell::{cargo, read_lines, succeeds, tool},
};

#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// The link in virtual time: goodput over loss, bursts, reordering, and times, against what is required
    #[command(visible_alias = "matrix")]
    Link {
        /// Passed on: `-- --seeds N`, `-- --only matrix`, `-- --cell RTT_MS LOSS`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// The regression scenarios of the congestion controller in virtual time: required and reached
    Controller {
        /// Passed on: `-- --scenario N`, `-- --seeds K`, `-- --full`, `-- --verbose`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// How the link shares with CUBIC, Reno, BBR and itself, with a page of plots
    Fair {
        /// Over emulated paths and the kernel, beside its own TCP, instead of in virtual time; 20 min
        #[arg(long)]
        kernel: bool,
        /// Passed on: `-- --row TEXT`, `-- --trace`, `-- --out FILE`, `-- --seeds K`; for the kernel's
        /// `-- --quick`, `-- --runs K`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Bulk transfers through a pair of gateways over the emulated WAN and the kernel, against TCP and
    /// what is required; half an hour
    Wan {
        /// Passed on: `-- --quick`, `-- --cell RTT_MS LOSS_PERCENT`, `-- --out FILE`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Processor time of the link for a GB, beside bare UDP and a QUIC library on the same wire
    Cpu {
        /// Passed on: `-- --runs N`, `-- --only link`, `-- --profile DIR`, `-- --help`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Instructions that the link takes for a packet, counted by Valgrind, each within a stored bound
    ///
    /// As root, Valgrind is installed first if it is missing.
    Instructions {
        /// Passed on: `-- sender` counts only what has this in its name
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

pub(crate) fn run(bench: &Bench) -> Result<Result<(), Failure>> {
    let mut command = match bench {
        Bench::Link { arguments } => of_link("link", arguments),
        Bench::Controller { arguments } => of_link("controller", arguments),
        Bench::Fair { kernel, arguments } => {
            let mut command = of("eval", "fair", arguments);
            command.args(kernel.then_some("--kernel"));
            command
        }
        Bench::Wan { arguments } => of("longhaul", "wan", arguments),
        Bench::Cpu { arguments } => of("eval", "cpu", arguments),
        Bench::Instructions { arguments } => return instructions(arguments),
    };
    Ok(succeeds(&mut command)?.then_some(()).ok_or(Failure::Failed))
}

/// A bench of a package with its default features.
fn of(package: &str, name: &str, arguments: &[String]) -> Command {
    let mut command = cargo(["bench", "-p", package, "--bench", name, "--"]);
    command.args(arguments);
    command
}

/// A bench of the link, which needs the simulator.
fn of_link(name: &str, arguments: &[String]) -> Command {
    let mut command = cargo(["bench", "-p", "link", "--features", "sim"]);
    command.args(["--bench", name, "--"]).args(arguments);
    command
}

/// Of the crate gungraun, to which the workspace's manifest pins it.
const GUNGRAUN_VERSION: &str = "0.20.0";
/// Packets counted at once: `crates/link/benches/packets.rs`.
const PACKETS: f64 = 10_000.0;

/// Runs the bench and tells its counts by packet.
fn instructions(arguments: &[String]) -> Result<Result<(), Failure>> {
    if let Err(failure) = packages::provide(packages::INSTRUCTIONS)? {
        return Ok(Err(failure));
    }
    let runner = tool("gungraun-runner", GUNGRAUN_VERSION)?;
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

/// The new count in a line of gungraun's such as `Instructions: 1234|1200 (+2.8%)`.
fn instruction_count(line: &str) -> Option<f64> {
    let (_, counts) = line.trim_start().split_once("Instructions:")?;
    counts.split('|').next()?.trim().parse().ok()
}
