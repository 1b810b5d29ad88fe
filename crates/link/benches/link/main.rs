//! Goodput and waiting times of the link in virtual time, compared with the requirements. The bench
//! uses the real endpoints, congestion controller and encryption.
//!
//! A transfer of the matrix or of a row moves 500 MB over 1 Gbit/s. The size is larger if 500 MB
//! would take less than 20 round trips. The queue holds half of the bandwidth-delay product, and at
//! least 300 KB.
//!
//! The link is warm: an earlier transfer of four bandwidth-delay products used the same connection.
//! `--help` lists the options.
#![allow(clippy::disallowed_methods, reason = "the bench says how long it took")]
#![allow(missing_docs, unreachable_pub, reason = "a program of several files")]

pub mod matrix;
mod radio;
mod rows;
pub mod sequences;
mod times;
mod trace;
mod trial;

use std::time::Instant;

use bench_kit::{options, stats::Summary};
use clap::{Parser, ValueEnum, value_parser};

/// Figure that did not reach its requirement.
pub struct MissedFigure {
    what: String,
    reached: f64,
    required: f64,
}

impl MissedFigure {
    pub fn new(what: String, reached: f64, required: f64) -> Self {
        Self {
            what,
            reached,
            required,
        }
    }
}

/// Measure goodput and completion times of the link in virtual time, and compare them with required
/// values
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench link --")]
struct Options {
    /// Number of seeds for each cell; each seed is one run
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// Use paths of 100 Mbit/s and files of 50 MB in the matrix, instead of 1 Gbit/s and 500 MB
    #[arg(long)]
    quick: bool,
    /// Run only this part of the bench [default: all parts]
    #[arg(long, value_name = "PART")]
    only: Option<BenchPart>,
    /// Run only rows whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
    /// Run only the first row whose name contains TEXT, and print the controller's states over time
    #[arg(long, num_args = 1..=2, value_names = ["TEXT", "SEED"])]
    trace: Option<Vec<String>>,
    /// Run only this cell of the matrix, and print the controller's states over time
    #[arg(long, num_args = 2..=3, value_names = ["RTT_MS", "LOSS", "SEED"])]
    cell: Option<Vec<f64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchPart {
    Matrix,
    Rows,
    Times,
    Radio,
    Sequences,
}

fn main() {
    let options: Options = options::read();
    if let Some([name, seed @ ..]) = options.trace.as_deref() {
        let seed = seed.first().map_or(Ok(1), |seed| seed.parse());
        let seed = seed.unwrap_or_else(|error| refuse("--trace", &error));
        match options.only {
            Some(BenchPart::Sequences) => sequences::trace(name, seed),
            _ => rows::trace(name, seed),
        }
        return;
    }
    if let Some([rtt_ms, loss, seed @ ..]) = options.cell.as_deref() {
        let seed = seed.first().map_or(1, |seed| *seed as u64);
        trace::print(&matrix::trial(*rtt_ms as u64, *loss, seed, options.quick));
        return;
    }
    let began = Instant::now();
    let only = options
        .only
        .or(options.row.as_ref().map(|_| BenchPart::Rows));
    let wanted = |part: BenchPart| only.is_none_or(|only| only == part);
    let seeds = options.seeds;
    let mut missed = Vec::new();
    if wanted(BenchPart::Matrix) {
        missed.extend(matrix::print(seeds, options.quick));
    }
    if wanted(BenchPart::Rows) {
        missed.extend(rows::print(seeds, options.row.as_deref()));
    }
    if wanted(BenchPart::Times) {
        missed.extend(times::print(seeds));
    }
    if wanted(BenchPart::Radio) {
        missed.extend(radio::print(seeds));
    }
    if wanted(BenchPart::Sequences) {
        missed.extend(sequences::print(seeds, options.row.as_deref()));
    }
    println!("\ntook {:.0} s", began.elapsed().as_secs_f64());
    for MissedFigure {
        what,
        reached,
        required,
    } in &missed
    {
        println!("missed: {what}: {reached:.3}, required {required}");
    }
    println!("{} figures missed", missed.len());
    std::process::exit(i32::from(!missed.is_empty()));
}

/// Returns the median and the smallest of the figures. A larger figure is better.
pub fn median_and_worst(figures: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let figures: Vec<f64> = figures.into_iter().collect();
    let summary = Summary::of(&figures).expect("each cell has a seed at least");
    (summary.median, summary.min)
}

/// Prints an error and ends the program with the exit code that clap uses for invalid arguments.
fn refuse(option: &str, error: &dyn std::error::Error) -> ! {
    eprintln!("error: {option}: {error}");
    std::process::exit(2);
}
