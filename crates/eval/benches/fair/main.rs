//! Bench of how the link shares a bottleneck. It prints required and measured figures, and writes a
//! page of plots.
//!
//! The default is virtual time. The shipped core of the link, with its encryption, shares a
//! `wansim` path with the TCP models of `rivals`, and with other links. With `--kernel`, the
//! shipped link with its driver shares emulated paths with the kernel's TCP. Both variants of the
//! bench produce the same figures, table and page.
//!
//! All rates count the arriving bytes on the wire. "Fair" is the rate of the bottleneck divided by
//! the number of flows. `--help` lists the options. The exit code does not depend on the figures:
//! the table is the result.
#![allow(
    clippy::disallowed_methods,
    reason = "a bench over real sockets and the real clock"
)]
#![allow(missing_docs, unreachable_pub, reason = "a program of several files")]

mod kernel;
mod plots;
mod report;
mod shares;
mod simulated;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use bench_kit::options;
use clap::{Parser, value_parser};

/// Measure how the link shares a bottleneck with other flows, compare the shares with required
/// values, and draw plots
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench fair --")]
pub struct FairOptions {
    /// Measure only rows whose full name, 'GROUP: ROW', contains TEXT
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
    /// Print samples over time of the first run of each row
    #[arg(long)]
    trace: bool,
    /// Write the page of plots to this file [default: fair.html, or fair-kernel.html with --kernel,
    /// in cargo's target folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Number of seeds for each row in virtual time; each seed is one run
    #[arg(long, value_name = "K", default_value_t = 3, conflicts_with = "kernel",
        value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// Use emulated paths and the TCP of the kernel instead of virtual time
    #[arg(long)]
    kernel: bool,
    #[command(flatten)]
    of_kernel: kernel::KernelOptions,
}

fn main() -> ExitCode {
    let options: FairOptions = options::read();
    let result = if options.kernel {
        kernel::run(&options)
    } else {
        simulated::run(&options)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl FairOptions {
    /// Returns whether the options select this row.
    fn wants(&self, group: &str, row: &str) -> bool {
        let wanted = self.row.as_ref();
        wanted.is_none_or(|text| format!("{group}: {row}").contains(text))
    }
}

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
