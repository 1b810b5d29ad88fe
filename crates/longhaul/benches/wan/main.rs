//! Bulk transfers through a pair of gateways, over the kernel and an emulated WAN, against the ideal,
//! what is required, and the kernel's TCP on the same path.
//!
//! A transfer is timed from connecting to the near gateway until the echo of the last bytes. The link
//! is warm: four bandwidth-delay products went before, not longer than 10 s ago. The kernel's TCP has
//! 512 MB buffers and one transfer in each cell, in the midst of the runs; it is cut off after 15 s and
//! scored at the rate that it reached. `--help` lists the options; the exit code is 1 if a required
//! figure is missed.
#![allow(
    clippy::disallowed_methods,
    reason = "a bench over real sockets and the real clock"
)]
#![allow(missing_docs, unreachable_pub, reason = "a program of several files")]

mod cell;
mod limit;
mod measure;
mod table;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use bench_kit::machine;
use emulator::privilege;
use units::{BitRate, ByteCount};

use crate::{
    cell::Cell,
    measure::{Outcome, Plan},
};

const HELP: &str = "\
cargo xtask bench wan -- [OPTIONS]

  --runs N                how many transfers through the gateways in each cell (5)
  --quick                 three short cells, two runs each
  --cell RTT_MS LOSS_PERCENT
                          one cell, at 300 Mbit/s or what --rate says
  --rate RATE             only cells of this rate, such as '1 Gbit/s'
  --tcp NAMES             what to compare with (cubic,bbr); none for nothing
  --out FILE              where the table goes, beside the screen";

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error:#}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    plan: Plan,
    cells: Vec<Cell>,
    out: Option<PathBuf>,
}

impl Options {
    /// `None` asks for help.
    fn read(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Option<Self>> {
        let mut plan = Plan {
            runs: 5,
            rivals: vec!["cubic".into(), "bbr".into()],
            rival_limit: Duration::from_secs(15),
            least: ByteCount::megabytes(500),
        };
        let mut cells = cell::all();
        let (mut rate, mut one, mut out) = (None, None, None);
        while let Some(argument) = arguments.next() {
            let mut value = |what: &'static str| arguments.next().context(what);
            match argument.as_str() {
                "--runs" => {
                    let runs: usize = value("--runs N")?.parse()?;
                    plan.runs = runs.max(1);
                }
                "--quick" => {
                    cells = cell::quick();
                    plan.runs = 2;
                    plan.least = ByteCount::megabytes(150);
                    plan.rival_limit = Duration::from_secs(8);
                }
                "--cell" => {
                    let what = "--cell RTT_MS LOSS_PERCENT";
                    let rtt_ms: u64 = value(what)?.parse()?;
                    one = Some((rtt_ms, value(what)?.parse::<f64>()? / 100.0));
                }
                "--rate" => rate = Some(value("--rate RATE")?.parse::<BitRate>()?),
                "--tcp" => {
                    let names = value("--tcp NAMES")?;
                    let named = names.split(',').filter(|name| *name != "none");
                    plan.rivals = named.map(str::to_owned).collect();
                }
                "--out" => out = Some(PathBuf::from(value("--out FILE")?)),
                // What cargo passes to every bench.
                "--bench" => {}
                "--help" => return Ok(None),
                other => anyhow::bail!("unknown argument {other}"),
            }
        }
        if let Some((rtt_ms, loss)) = one {
            cells = vec![Cell::new(rate.unwrap_or(BitRate::mbit(300)), rtt_ms, loss)];
        } else if let Some(rate) = rate {
            cells.retain(|cell| cell.rate == rate);
        }
        anyhow::ensure!(!cells.is_empty(), "there are no cells of that rate");
        Ok(Some(Self { plan, cells, out }))
    }
}

/// Returns whether all that is required was reached.
fn run(options: &Options) -> anyhow::Result<bool> {
    let Options { plan, cells, out } = options;
    privilege::acquire()?;
    let began = Instant::now();
    let machine = machine::describe();
    println!("{machine}");
    let expected: Duration = cells.iter().map(|cell| expected(cell, plan)).sum();
    println!(
        "{} cells, {} runs each, about {:.0} min\n",
        cells.len(),
        plan.runs,
        (expected.as_secs_f64() / 60.0).ceil()
    );
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (number, cell) in cells.iter().enumerate() {
        let outcome = measure::measure(cell, plan, |done| {
            let elapsed = began.elapsed().as_secs();
            let (minutes, seconds) = (elapsed / 60, elapsed % 60);
            let number = number + 1;
            eprintln!(
                "{minutes:3}:{seconds:02}  {number}/{}  {cell}: {done}",
                cells.len()
            );
        });
        outcomes.push(outcome.with_context(|| cell.to_string())?);
        // An interrupted bench has something to show.
        write(options, &machine, &outcomes, began.elapsed())?;
    }
    print!("\n{}", report(plan, &outcomes, began.elapsed()));
    if let Some(out) = out {
        println!("written to {}", out.display());
    }
    Ok(outcomes.iter().all(table::is_reached))
}

fn write(
    options: &Options,
    machine: &str,
    outcomes: &[Outcome],
    elapsed: Duration,
) -> anyhow::Result<()> {
    let Options {
        plan,
        out: Some(out),
        ..
    } = options
    else {
        return Ok(());
    };
    let command: Vec<_> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let text = format!(
        "# `cargo xtask bench wan -- {}`\n\n{machine}. What the columns mean: `docs/measuring.md`.\n\n{}",
        command.join(" "),
        report(plan, outcomes, elapsed)
    );
    std::fs::write(out, text).with_context(|| out.display().to_string())
}

/// The table, and what was missed.
fn report(plan: &Plan, outcomes: &[Outcome], elapsed: Duration) -> String {
    let mut text = table::render(outcomes, plan);
    let missed = outcomes
        .iter()
        .filter(|outcome| !table::is_reached(outcome))
        .count();
    text += &format!(
        "\ntook {:.0} min {:.0} s; {missed} of {} figures missed\n",
        elapsed.as_secs() / 60,
        elapsed.as_secs() % 60,
        outcomes.len()
    );
    text
}

/// How long a cell takes if all goes well.
fn expected(cell: &Cell, plan: &Plan) -> Duration {
    let run = cell.ideal(cell.size(plan.least));
    let warm_ups = 1 + plan.rivals.len() as u32;
    run * plan.runs as u32
        + cell.ideal(cell.warm_up()) * warm_ups
        + (plan.rival_limit + 3 * cell.rtt) * plan.rivals.len() as u32
        + Duration::from_secs(2)
}
