//! How the link shares a bottleneck on the kernel's path: required and reached, and a page of plots.
//!
//! The shipped link with its driver beside the kernel's CUBIC and BBR, and beside itself, over emulated
//! paths of 100 Mbit/s: 90 s, judged after the first 30 s. Several paths are up at once, each in
//! namespaces of its own. The same rows in virtual time, with more of them, are in the bench `fair` of
//! the crate `link`. `--help` lists the options. The exit code is 0 whatever is reached: the table is the
//! result.
#![allow(
    clippy::disallowed_methods,
    reason = "a bench over real sockets and the real clock"
)]
#![allow(missing_docs, unreachable_pub, reason = "a program of several files")]

#[path = "../../../link/benches/bench/mod.rs"]
mod bench;
mod crowd;
mod rows;

use std::{
    collections::VecDeque,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use bench_kit::machine::{self, Moment, ProcessTime};
use emulator::privilege;

use crate::{
    bench::{
        S, mean, median,
        page::{Plot, Section},
        trace,
    },
    rows::{Group, Outcome, Row, Times},
};

const HELP: &str = "\
cargo xtask bench fair --kernel -- [OPTIONS]

  --quick        one row of each group, 40 s a run
  --full         every row, 120 s a run: an hour
  --runs K       how often each row is run (1)
  --row TEXT     only rows whose name contains TEXT
  --seconds N    how long a run lasts; it is judged after 30 s, or after half of it
  --jobs N       how many paths are up at once (4)
  --trace        print the first run of each row over time
  --out FILE     where the page goes";

struct Options {
    is_quick: bool,
    is_full: bool,
    is_traced: bool,
    runs: u64,
    jobs: usize,
    row: Option<String>,
    end: Option<Duration>,
    out: PathBuf,
}

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
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    /// `None` asks for help.
    fn read(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Option<Self>> {
        let mut options = Self {
            is_quick: false,
            is_full: false,
            is_traced: false,
            runs: 1,
            jobs: 4,
            row: None,
            end: None,
            out: bench::target_directory().join("fair-kernel.html"),
        };
        while let Some(argument) = arguments.next() {
            let mut value = |what: &'static str| arguments.next().context(what);
            match argument.as_str() {
                "--quick" => options.is_quick = true,
                "--full" => options.is_full = true,
                "--trace" => options.is_traced = true,
                "--runs" => options.runs = value("--runs K")?.parse::<u64>()?.max(1),
                "--jobs" => options.jobs = value("--jobs N")?.parse::<usize>()?.max(1),
                "--row" => options.row = Some(value("--row TEXT")?),
                "--seconds" => {
                    let seconds: u64 = value("--seconds N")?.parse()?;
                    options.end = Some(Duration::from_secs(seconds.max(4)));
                }
                "--out" => options.out = PathBuf::from(value("--out FILE")?),
                // What cargo passes to every bench.
                "--bench" => {}
                "--help" => return Ok(None),
                other => anyhow::bail!("unknown argument {other}"),
            }
        }
        Ok(Some(options))
    }

    fn times(&self) -> Times {
        let end = self.end.unwrap_or(match (self.is_full, self.is_quick) {
            (true, _) => 120 * S,
            (_, true) => 40 * S,
            _ => 90 * S,
        });
        let settle = (end / 2).min(30 * S);
        Times { settle, end }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    privilege::acquire()?;
    let times = options.times();
    let mut groups = rows::groups(options.is_full, options.is_quick);
    for group in &mut groups {
        let is_wanted = |row: &Row| {
            let name = format!("{}: {}", group.name, row.name);
            let wanted = options.row.as_ref();
            wanted.is_none_or(|text| name.contains(text))
        };
        group.rows.retain(is_wanted);
    }
    groups.retain(|group| !group.rows.is_empty());
    anyhow::ensure!(!groups.is_empty(), "no row has such a name");
    let machine = machine::describe();
    println!("{machine}");
    let runs: u32 = groups
        .iter()
        .flat_map(|group| &group.rows)
        .map(|row| row.runs)
        .sum();
    let all = times.end * runs * options.runs as u32 / options.jobs as u32;
    println!(
        "{runs} runs of {} s, {} at once: about {:.0} min",
        times.end.as_secs(),
        options.jobs,
        (all.as_secs_f64() * 1.1 / 60.0).ceil()
    );
    let (began, moment) = (Instant::now(), Moment::now()?);
    let mut outcomes = measure(&groups, &times, options)?.into_iter();
    let load = moment.load_since(ProcessTime::own()?)?;
    println!(
        "\n{:<46} {:<36} {:>8} {:>8} {:>8}",
        "row", "figure", "required", "median", "worst"
    );
    let (mut reached, mut count) = (0, 0);
    let mut sections = Vec::new();
    for group in &groups {
        println!("{}", group.name);
        let mut plots = Vec::new();
        for row in &group.rows {
            let outcomes: Vec<_> = outcomes.by_ref().take(options.runs as usize).collect();
            let (plot, is_reached) = print(row, outcomes, options.is_traced);
            reached += usize::from(is_reached);
            count += 1;
            plots.push(plot);
        }
        sections.push(Section {
            name: group.name,
            plots,
        });
    }
    println!(
        "\ntook {:.0} s; machine {load}",
        began.elapsed().as_secs_f64()
    );
    let note = format!(
        "The link and the kernel's TCP over emulated paths in real time, {} s a run, judged after {} s; \
         the first run of each row. {machine}; meanwhile {load}. Figures are the median of the runs, of \
         which there are {} (the mean for what TCP keeps), and the worst.",
        times.end.as_secs(),
        times.settle.as_secs(),
        options.runs
    );
    let out = &options.out;
    std::fs::write(out, bench::page::render(&note, &sections))
        .with_context(|| out.display().to_string())?;
    println!("plots: {}", out.display());
    println!("{reached} of {count} reached");
    Ok(())
}

/// Runs all rows, several at once; outcomes come in the order of the rows, those of one row together.
fn measure(groups: &[Group], times: &Times, options: &Options) -> anyhow::Result<Vec<Outcome>> {
    let rows: Vec<&Row> = groups.iter().flat_map(|group| &group.rows).collect();
    let mut jobs: Vec<(usize, u64)> = Vec::new();
    for row in 0..rows.len() {
        jobs.extend((1..=options.runs).map(|seed| (row, seed)));
    }
    let count = jobs.len();
    let mut queue: Vec<_> = jobs.into_iter().enumerate().collect();
    // The long ones first, so that none is left alone at the end.
    queue.sort_by_key(|(_, (row, _))| std::cmp::Reverse(rows[*row].runs));
    let queue = Mutex::new(VecDeque::from(queue));
    let done = AtomicUsize::new(0);
    let began = Instant::now();
    let next = || {
        queue
            .lock()
            .expect("no holder of this lock panics")
            .pop_front()
    };
    let work = || {
        let mut outcomes = Vec::new();
        while let Some((job, (row, seed))) = next() {
            let row = rows[row];
            let outcome = (row.run)(times, seed);
            outcomes.push((job, outcome.with_context(|| row.name.clone())?));
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            eprintln!(
                "{:5.0} s  {done}/{count}  {}",
                began.elapsed().as_secs_f64(),
                row.name
            );
        }
        anyhow::Ok(outcomes)
    };
    let mut outcomes = thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs).map(|_| scope.spawn(work)).collect();
        let mut outcomes = Vec::new();
        for worker in workers {
            outcomes.extend(worker.join().expect("no worker panics")?);
        }
        anyhow::Ok(outcomes)
    })?;
    outcomes.sort_by_key(|(job, _)| *job);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Prints the figures of a row. Returns the plot of its first run, and whether all is reached.
fn print(row: &Row, outcomes: Vec<Outcome>, is_traced: bool) -> (Plot, bool) {
    let mut is_row_reached = true;
    let mut captions = Vec::new();
    let is_distorted = outcomes.iter().any(|outcome| outcome.is_distorted);
    for (index, figure) in outcomes[0].figures.iter().enumerate() {
        let values: Vec<f64> = outcomes
            .iter()
            .map(|outcome| outcome.figures[index].value)
            .collect();
        let worst = figure.bound.worst(&values);
        let middle = if figure.is_mean {
            mean(&values)
        } else {
            median(&values)
        };
        let is_reached = figure
            .bound
            .holds(if figure.is_mean { middle } else { worst });
        is_row_reached &= is_reached;
        let name = if index == 0 { row.name.as_str() } else { "" };
        let mark = if is_reached { "" } else { "  MISSED" };
        println!(
            "  {name:<44} {:<36} {:>8} {middle:>8.3} {worst:>8.3}{mark}",
            figure.label, figure.bound
        );
        let caption = if outcomes.len() == 1 {
            format!("{} {}: {middle:.2}", figure.label, figure.bound)
        } else {
            let (label, bound) = (figure.label, figure.bound);
            format!("{label} {bound}: {middle:.2}, worst {worst:.2}")
        };
        captions.push((caption, is_reached));
    }
    if is_distorted {
        println!("{:46} MACHINE TOO SLOW for the path", "");
        captions.push(("MACHINE TOO SLOW for the path".into(), true));
    }
    let first = outcomes
        .into_iter()
        .next()
        .expect("each row runs once at least");
    if is_traced {
        print!("{}", trace(&first.record));
    }
    let mut plot = first.plot;
    plot.title = row.name.clone();
    plot.captions = captions;
    (plot, is_row_reached)
}
