//! The bench in real time: links with their drivers compete with the kernel's CUBIC and BBR, and
//! with other links.
//!
//! Flows share emulated paths of 100 Mbit/s for 90 s, and the figures cover the time after the
//! first 30 s. Several paths run concurrently, each in its own namespaces.

mod crowd;
mod rows;

use std::{
    cmp::Reverse,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::Context;
use bench_kit::{
    jobs,
    machine::{self, Moment, ProcessTime},
};
use clap::{Args, value_parser};
use emulator::privilege;

use self::rows::{Group, Row, Times};
use crate::{
    S,
    report::{FairnessReport, RowOutcome},
};

#[derive(Args)]
#[command(next_help_heading = "With --kernel")]
pub struct KernelOptions {
    /// Measure one row of each group, with runs of 40 s
    #[arg(long, requires = "kernel")]
    quick: bool,
    /// Measure all rows, with runs of 120 s; takes an hour
    #[arg(long, requires = "kernel")]
    full: bool,
    /// Number of runs of each row
    #[arg(long, value_name = "K", default_value_t = 1, requires = "kernel",
        value_parser = value_parser!(u64).range(1..))]
    runs: u64,
    /// Duration of a run in seconds [default: 90, with --quick 40, with --full 120]. The figures
    /// ignore the first half of the run, but at most the first 30 s
    #[arg(long, value_name = "N", requires = "kernel", value_parser = value_parser!(u64).range(4..))]
    seconds: Option<u64>,
    /// Number of runs at the same time, each on an emulated path of its own
    #[arg(long, value_name = "N", default_value_t = 4, requires = "kernel",
        value_parser = value_parser!(u32).range(1..))]
    jobs: u32,
}

impl KernelOptions {
    fn times(&self) -> Times {
        let end = match (self.seconds, self.full, self.quick) {
            (Some(seconds), ..) => Duration::from_secs(seconds),
            (None, true, _) => 120 * S,
            (None, _, true) => 40 * S,
            _ => 90 * S,
        };
        let settle = (end / 2).min(30 * S);
        Times { settle, end }
    }
}

/// Runs the selected rows, prints the table and writes the page of plots.
pub fn run(all: &crate::FairOptions) -> anyhow::Result<()> {
    let options = &all.of_kernel;
    privilege::acquire()?;
    let times = options.times();
    let mut groups = rows::groups(options.full, options.quick);
    for group in &mut groups {
        group.rows.retain(|row| all.wants(group.name, &row.name));
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
    let expected = times.end * runs * options.runs as u32 / options.jobs;
    println!(
        "{runs} runs of {} s, {} at once: about {:.0} min",
        times.end.as_secs(),
        options.jobs,
        (expected.as_secs_f64() * 1.1 / 60.0).ceil()
    );
    let (began, moment) = (Instant::now(), Moment::now()?);
    let outcomes = measure(&groups, &times, options)?;
    let load = moment.load_since(ProcessTime::own()?)?;
    println!();
    let note = format!(
        "The link and the kernel's TCP over emulated paths in real time, {} s a run, judged after {} s; \
         the first run of each row. {machine}; meanwhile {load}. The figures are the median of the runs, of \
         which there are {} (the mean for what TCP keeps), and the worst.",
        times.end.as_secs(),
        times.settle.as_secs(),
        options.runs
    );
    let mut report = FairnessReport::open(&note, all.trace);
    let mut outcomes = outcomes.chunks(options.runs as usize);
    for group in &groups {
        report.group(group.name);
        for row in &group.rows {
            let outcomes = outcomes.next().expect("each row has outcomes");
            report.row(&row.name, outcomes);
        }
    }
    let took_s = began.elapsed().as_secs_f64();
    println!("\ntook {took_s:.0} s; machine {load}");
    report.finish(all.out.as_deref(), "fair-kernel.html")
}

/// Runs all rows, several of them concurrently. The outcomes are sorted by row, and all outcomes of
/// a row are adjacent.
fn measure(
    groups: &[Group],
    times: &Times,
    options: &KernelOptions,
) -> anyhow::Result<Vec<RowOutcome>> {
    let rows = groups.iter().flat_map(|group| &group.rows);
    let mut jobs: Vec<(usize, &Row, u64)> = rows
        .flat_map(|row| (1..=options.runs).map(move |seed| (row, seed)))
        .enumerate()
        .map(|(number, (row, seed))| (number, row, seed))
        .collect();
    // Rows with more runs start first, so that no such row runs alone at the end.
    jobs.sort_by_key(|(_, row, _)| Reverse(row.runs));
    let (count, done, began) = (jobs.len(), AtomicUsize::new(0), Instant::now());
    let outcomes = jobs::map_on(options.jobs as usize, &jobs, |(number, row, seed)| {
        let outcome = (row.run)(times, *seed).with_context(|| row.name.clone())?;
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        let elapsed_s = began.elapsed().as_secs_f64();
        eprintln!("{elapsed_s:5.0} s  {done}/{count}  {}", row.name);
        anyhow::Ok((*number, outcome))
    });
    let mut outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
    outcomes.sort_by_key(|(number, _)| *number);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}
