//! Bench of bulk transfers through a pair of gateways, over the kernel and an emulated WAN. It
//! compares each transfer with the ideal, with the required result, and with the kernel's TCP on
//! the same path.
//!
//! The time of a transfer starts with the connection to the near gateway. It ends when the echo of
//! the last bytes arrives. The option `--only` selects *sections* of the bench. The default section
//! is `plain`, whose paths only lose packets. In this section the link is warm. If the link has
//! been idle for 10 s, a transfer of four bandwidth-delay products warms it up before the
//! measurement.
//!
//! The kernel's TCP has buffers of 512 MB. In each cell of `plain`, the bench makes one TCP
//! transfer with each selected congestion control. After 15 s, the bench aborts such a transfer and
//! uses its rate so far. In the other sections, each run starts new gateways. All sections except
//! `plain` and `sequences` also show the same trial in virtual time. `--help` lists the options.
//! The exit code is 1 if a required result is missed.
#![allow(
    clippy::disallowed_methods,
    reason = "a bench over real sockets and the real clock"
)]
#![allow(missing_docs, unreachable_pub, reason = "a program of several files")]

mod cell;
mod changes;
mod cold;
mod impaired;
mod lost_time;
mod measure;
mod page;
mod path_pair;
mod plain;
mod sequences;
mod series;
mod setting;
mod table;
mod virtual_time;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use bench_kit::options;
use clap::{Parser, ValueEnum, value_parser};
use emulator::privilege;
use units::{BitRate, ByteCount};

use crate::{cell::PathCell, measure::Plan, page::ResultsPage};

/// Measure bulk transfers through two gateways over an emulated WAN, and compare them with the
/// ideal and with the kernel's TCP
///
/// The options --quick, --cell, --rate and --tcp apply to the section `plain`. The option --name
/// applies to all other sections except `cold`.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench wan --")]
struct Options {
    /// Sections to measure, in this order
    #[arg(
        long,
        value_name = "SECTION",
        value_delimiter = ',',
        default_value = "plain"
    )]
    only: Vec<Section>,
    /// Measure only rows whose name contains SUBSTRING
    #[arg(
        long,
        value_name = "SUBSTRING",
        default_value = "",
        hide_default_value = true
    )]
    name: String,
    /// Number of runs of each row, or number of transfers in each cell of `plain` [default: 3; for
    /// `plain` 5, or 2 with --quick]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Number of sequences for each row of the section `sequences`
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u64).range(1..))]
    sequences: u64,
    /// Measure only three cells, with shorter transfers
    #[arg(long)]
    quick: bool,
    /// Measure only the cell with this round-trip time and loss, at the rate of --rate or at 300
    /// Mbit/s
    #[arg(long, num_args = 2, value_names = ["RTT_MS", "LOSS_PERCENT"])]
    cell: Option<Vec<f64>>,
    /// Measure only cells with this rate, such as '1 Gbit/s'
    #[arg(long)]
    rate: Option<BitRate>,
    /// Congestion controls of the kernel's TCP to compare with; `none` for no comparison
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "cubic,bbr"
    )]
    tcp: Vec<String>,
    /// Also write the tables to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Section {
    /// Warm transfers by the link and by the kernel's TCP, on paths with random loss as the only
    /// impairment; half an hour
    Plain,
    /// Cold and warm transfers with heavy loss, loss bursts, corruption, reordering and jitter; 15
    /// min
    Impaired,
    /// Transfers on routes whose delay or rate changes, during a transfer and between transfers; 16
    /// min
    Changes,
    /// First transfer on an unknown path, and on a path that an earlier run has measured; 1 min
    Cold,
    /// Many sequences of five transfers on paths that reorder packets; 1 h
    Sequences,
}

fn main() -> ExitCode {
    match run(&options::read()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    /// Returns the number of runs of each row in sections other than `plain`.
    fn runs(&self) -> usize {
        self.runs.unwrap_or(3) as usize
    }

    fn plan(&self) -> Plan {
        let (runs, limit_s, least_mb) = if self.quick {
            (2, 8, 150)
        } else {
            (5, 15, 500)
        };
        let rivals = self.tcp.iter().filter(|name| *name != "none");
        Plan {
            runs: self.runs.unwrap_or(runs) as usize,
            rivals: rivals.cloned().collect(),
            rival_limit: Duration::from_secs(limit_s),
            least: ByteCount::megabytes(least_mb),
        }
    }

    fn cells(&self) -> Vec<PathCell> {
        if let Some([rtt_ms, loss_percent]) = self.cell.as_deref() {
            let rate = self.rate.unwrap_or(BitRate::mbit(300));
            return vec![PathCell::new(rate, *rtt_ms as u64, loss_percent / 100.0)];
        }
        let mut cells = if self.quick {
            cell::quick()
        } else {
            cell::all()
        };
        cells.retain(|cell| self.rate.is_none_or(|rate| cell.rate == rate));
        cells
    }
}

/// Runs the selected sections. Returns whether all required results were reached.
fn run(options: &Options) -> anyhow::Result<bool> {
    privilege::acquire()?;
    let mut page = ResultsPage::new(options.out.clone());
    let mut is_reached = true;
    for section in &options.only {
        is_reached &= match section {
            Section::Plain => plain::run(&options.cells(), &options.plan(), &mut page),
            Section::Impaired => impaired::run(&options.name, options.runs(), &mut page),
            Section::Changes => changes::run(&options.name, options.runs(), &mut page),
            Section::Cold => cold::run(options.runs(), &mut page),
            Section::Sequences => {
                sequences::run(&options.name, options.sequences as usize, &mut page)
            }
        }?;
    }
    Ok(is_reached)
}
