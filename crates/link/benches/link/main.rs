//! The link in virtual time, with the shipped core, controller and encryption, against what is
//! required of it.
//!
//! The matrix and the rows move 500 MB, or 20 round trips' worth, over 1 Gbit/s with a queue of half the
//! bandwidth-delay product (at least 300 KB). The link is warm: a transfer of four bandwidth-delay
//! products over the same connection went before. `--help` lists the options.
#![allow(clippy::disallowed_methods, reason = "the bench says how long it took")]
#![allow(missing_docs, unreachable_pub, reason = "a program of several files")]

#[path = "../bench/jobs.rs"]
mod jobs;
mod matrix;
mod radio;
mod rows;
mod times;
mod trace;
mod trial;

use std::time::Instant;

/// A figure that was not reached.
pub struct Missed {
    what: String,
    reached: f64,
    required: f64,
}

impl Missed {
    pub fn new(what: String, reached: f64, required: f64) -> Self {
        Self {
            what,
            reached,
            required,
        }
    }
}

const HELP: &str = "\
cargo xtask bench link -- [OPTIONS]

  --seeds N                    how many seeds of each cell (5)
  --quick                      100 Mbit/s and 50 MB in the matrix
  --only matrix|rows|times|radio
                               one part only
  --row TEXT                   only rows whose name contains TEXT
  --trace TEXT [SEED]          the first of them, with what the controller does over time
  --cell RTT_MS LOSS [SEED]    one cell of the matrix, with what the controller does over time";

fn main() {
    let mut seeds = 5;
    let mut is_quick = false;
    let mut only = None;
    let mut row = None;
    let mut arguments = std::env::args().skip(1);
    let number = |text: Option<String>| text.and_then(|text| text.parse::<f64>().ok());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => is_quick = true,
            "--seeds" => match number(arguments.next()).filter(|seeds| *seeds >= 1.0) {
                Some(count) => seeds = count as u64,
                None => usage(),
            },
            "--only" => match arguments.next().as_deref() {
                Some(part @ ("matrix" | "rows" | "times" | "radio")) => {
                    only = Some(part.to_owned())
                }
                _ => usage(),
            },
            "--trace" => {
                let name = arguments.next().unwrap_or_else(|| usage());
                let seed = number(arguments.next()).unwrap_or(1.0);
                rows::trace(&name, seed as u64);
                return;
            }
            "--row" => {
                only = Some("rows".to_owned());
                row = Some(arguments.next().unwrap_or_else(|| usage()));
            }
            "--cell" => {
                let cell = (number(arguments.next()), number(arguments.next()));
                let (Some(rtt_ms), Some(loss)) = cell else {
                    usage();
                };
                let seed = number(arguments.next()).unwrap_or(1.0);
                trace::print(&matrix::trial(rtt_ms as u64, loss, seed as u64, is_quick));
                return;
            }
            // What cargo passes to every bench.
            "--bench" => {}
            "--help" => {
                println!("{HELP}");
                return;
            }
            _ => usage(),
        }
    }
    let began = Instant::now();
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    let mut missed = Vec::new();
    if wanted("matrix") {
        missed.extend(matrix::print(seeds, is_quick));
    }
    if wanted("rows") {
        missed.extend(rows::print(seeds, row.as_deref()));
    }
    if wanted("times") {
        missed.extend(times::print(seeds));
    }
    if wanted("radio") {
        missed.extend(radio::print(seeds));
    }
    println!("\ntook {:.0} s", began.elapsed().as_secs_f64());
    for Missed {
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

fn usage() -> ! {
    eprintln!("{HELP}");
    std::process::exit(2);
}
