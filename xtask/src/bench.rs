//! `cargo xtask bench`: figures, and the conditions under which they were measured.

use std::process::Command;

use anyhow::Result;

use crate::{
    Failure,
    shell::{cargo, succeeds},
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
}

pub(crate) fn run(bench: &Bench) -> Result<Result<(), Failure>> {
    let mut command = match bench {
        Bench::Link { arguments } => of_link("link", arguments),
        Bench::Controller { arguments } => of_link("controller", arguments),
        Bench::Fair {
            kernel: false,
            arguments,
        } => of_link("fair", arguments),
        Bench::Fair {
            kernel: true,
            arguments,
        } => real("lab", "fair", arguments),
        Bench::Wan { arguments } => real("longhaul", "wan", arguments),
    };
    Ok(succeeds(&mut command)?.then_some(()).ok_or(Failure::Failed))
}

/// A bench in real time.
fn real(package: &str, name: &str, arguments: &[String]) -> Command {
    let mut command = cargo(["bench", "-p", package, "--bench", name, "--"]);
    command.args(arguments);
    command
}

/// A bench of the link in virtual time.
fn of_link(name: &str, arguments: &[String]) -> Command {
    let mut command = cargo(["bench", "-p", "link", "--features", "sim"]);
    command.args(["--bench", name, "--"]).args(arguments);
    command
}
