//! Regression scenarios of the congestion controller in virtual time: required and measured
//! figures.
//!
//! The real endpoints with encryption run over the simulated network `wansim`, alone and together
//! with the TCP models in `rivals`. The same scenarios and limits were used to select the
//! controller, in a separate simulation. The comment on a scenario states any difference from that
//! simulation.
//!
//! A scenario succeeds if every figure of every cell and seed stays within its limit.
//!
//! The figure "used" is a fraction: the bytes that arrived, divided by the bytes that the
//! bottleneck and the random loss permit. The fraction shows the controller's contribution to
//! goodput. `bench link` measures the whole goodput.
//!
//! `--help` lists the options. The exit code is always 0: the table is the result.
#![allow(clippy::disallowed_methods, reason = "the bench says how long it took")]

mod ablate;
mod alone;
mod competing;
#[path = "../link/main.rs"]
#[allow(
    dead_code,
    reason = "`--ablate` runs some of its rows and prints its own table"
)]
mod goodput;
mod impaired;
mod runs;

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use bench_kit::{
    figure::{BenchCase, Figure, FigureBound},
    jobs, options,
    stats::median,
};
use clap::{Parser, value_parser};

use self::runs::{TRACED, print_invariants};

/// Run the regression scenarios of the congestion controller in virtual time, and compare the
/// figures with required values
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench controller --")]
struct Options {
    /// Run only the scenario with this number
    #[arg(long, value_name = "N")]
    scenario: Option<u32>,
    /// Run only cells whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    cell: Option<String>,
    /// Number of seeds for each cell [default: set by each scenario]
    #[arg(long, value_name = "K", value_parser = value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Run all cells of the first scenario, and as many seeds as the required values assume
    #[arg(long)]
    full: bool,
    /// Print the figures of each cell and seed
    #[arg(long)]
    verbose: bool,
    /// Print the samples of each run, ten per second; best with one cell and one seed
    #[arg(long)]
    trace: bool,
    /// Disable one mechanism of the controller after another, and print the rows that change
    #[arg(long, conflicts_with_all = ["scenario", "full", "trace"])]
    ablate: bool,
    /// With `--ablate`: disable only the mechanism with this name
    #[arg(long, value_name = "NAME", requires = "ablate")]
    only: Option<String>,
}

struct Scenario {
    number: u32,
    name: &'static str,
    /// Default number of seeds for each cell. The second value applies with `--full`.
    seeds: (u64, u64),
    cases: Vec<BenchCase<Vec<Figure>>>,
}

fn main() {
    let options: Options = options::read();
    TRACED.store(options.trace, Ordering::Relaxed);
    if options.ablate {
        ablate::run(&options);
        return;
    }
    let began = Instant::now();
    println!(
        "{:>2}  {:<52} {:<28} {:>9} {:>9} {:>9}  {:>7}",
        "#", "scenario", "figure", "required", "median", "worst", "missed"
    );
    let mut reached = 0;
    let mut count = 0;
    let mut scenarios = scenarios(options.full);
    let is_wanted = |number: u32| options.scenario.is_none_or(|wanted| wanted == number);
    // The check of the invariants needs the runs of all other scenarios.
    scenarios.retain(|scenario| is_wanted(scenario.number) || options.scenario == Some(INVARIANTS));
    for scenario in &mut scenarios {
        if let Some(text) = &options.cell {
            scenario.cases.retain(|cell| cell.name.contains(text));
        }
        if scenario.cases.is_empty() {
            continue;
        }
        let (few, many) = scenario.seeds;
        let seeds = options
            .seeds
            .unwrap_or(if options.full { many } else { few });
        count += 1;
        reached += u32::from(run(scenario, seeds, options.verbose));
    }
    if is_wanted(INVARIANTS) {
        count += 1;
        reached += u32::from(print_invariants());
    }
    println!("\ntook {:.0} s", began.elapsed().as_secs_f64());
    println!("{reached} of {count} reached");
}

/// Runs a scenario and prints its figures. Returns whether all figures stayed within their limits.
fn run(scenario: &Scenario, seeds: u64, is_verbose: bool) -> bool {
    let began = Instant::now();
    let jobs: Vec<(usize, u64)> = (0..scenario.cases.len())
        .flat_map(|cell| (1..=seeds).map(move |seed| (cell, seed)))
        .collect();
    let results = jobs::map(&jobs, |(cell, seed)| {
        let cell = &scenario.cases[*cell];
        let figures = (cell.run)(cell.seed(*seed));
        (format!("{}, seed {seed}", cell.name), figures)
    });
    if is_verbose {
        for (name, figures) in &results {
            let text: Vec<_> = figures
                .iter()
                .map(|figure| {
                    let mark = if figure.is_reached() { "" } else { " !" };
                    format!("{} {:.3}{mark}", figure.label, figure.value)
                })
                .collect();
            println!("    {name}: {}", text.join(", "));
        }
    }
    let mut kinds: Vec<(&'static str, FigureBound)> = Vec::new();
    for figure in results.iter().flat_map(|(_, figures)| figures) {
        if !kinds.contains(&(figure.label, figure.bound)) {
            kinds.push((figure.label, figure.bound));
        }
    }
    let mut is_reached = true;
    for (index, (label, bound)) in kinds.iter().enumerate() {
        let values: Vec<f64> = results
            .iter()
            .flat_map(|(_, figures)| figures)
            .filter(|figure| (figure.label, figure.bound) == (*label, *bound))
            .map(|figure| figure.value)
            .collect();
        let missed = values.iter().filter(|value| !bound.holds(**value)).count();
        is_reached &= missed == 0;
        let number = if index == 0 {
            scenario.number.to_string()
        } else {
            String::new()
        };
        let name = if index == 0 { scenario.name } else { "" };
        println!(
            "{number:>2}  {name:<52} {label:<28} {bound:>9} {:>9.3} {:>9.3}  {:>7}",
            median(&values).expect("there is a value of each kind"),
            bound.worst(&values),
            format!("{missed}/{}", values.len()),
        );
    }
    println!(
        "    {} in {:.0} s",
        if is_reached { "reached" } else { "MISSED" },
        began.elapsed().as_secs_f64()
    );
    is_reached
}

/// Number of the table row for the invariants.
const INVARIANTS: u32 = 18;
const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn scenarios(is_full: bool) -> Vec<Scenario> {
    vec![
        Scenario {
            number: 1,
            name: "alone: rate, RTT, queue and loss",
            seeds: (1, 1),
            cases: alone::alone(is_full),
        },
        Scenario {
            number: 2,
            name: "ramp on an unknown path",
            seeds: (3, 5),
            cases: alone::ramp(),
        },
        Scenario {
            number: 3,
            name: "ramp with a cached rate, queue 0.1, loss 10 %",
            seeds: (2, 5),
            cases: alone::cached(),
        },
        Scenario {
            number: 4,
            name: "change of capacity and of RTT",
            seeds: (5, 5),
            cases: alone::path_changes(),
        },
        Scenario {
            number: 5,
            name: "loss comes at 15 s and goes at 30 s",
            seeds: (5, 5),
            cases: alone::loss_changes(),
        },
        Scenario {
            number: 6,
            name: "policer of 100 Mbit/s behind 1 Gbit/s",
            seeds: (5, 5),
            cases: alone::policer(),
        },
        Scenario {
            number: 7,
            name: "beside CUBIC, 100 Mbit/s, 40 ms",
            seeds: (3, 6),
            cases: competing::beside_cubic(),
        },
        Scenario {
            number: 8,
            name: "CUBIC from 20 to 60 s",
            seeds: (3, 5),
            cases: competing::visited_by_cubic(),
        },
        Scenario {
            number: 9,
            name: "TCP with a window of 128 KB, 173 ms",
            seeds: (5, 5),
            cases: competing::small_user(),
        },
        Scenario {
            number: 10,
            name: "two and four of ours",
            seeds: (2, 5),
            cases: competing::among_ourselves(),
        },
        Scenario {
            number: 11,
            name: "ours at 20 and 200 ms",
            seeds: (5, 5),
            cases: competing::unequal_rtts(),
        },
        Scenario {
            number: 12,
            name: "several of ours at a policer, a short queue",
            seeds: (4, 6),
            cases: competing::crowded_policer(),
        },
        Scenario {
            number: 13,
            name: "ours and CUBIC at a policer",
            seeds: (5, 5),
            cases: competing::policer_with_cubic(),
        },
        Scenario {
            number: 14,
            name: "bursts: 1 % / 10, 10 % / 50, 30 % / 50 packets",
            seeds: (5, 5),
            cases: impaired::bursts(),
        },
        Scenario {
            number: 15,
            name: "reordering and jitter",
            seeds: (5, 5),
            cases: impaired::reordering(),
        },
        Scenario {
            number: 16,
            name: "reports lost: 50 % of them, 64 % both ways",
            seeds: (5, 5),
            cases: impaired::lost_reports(),
        },
        Scenario {
            number: 17,
            name: "background beside CUBIC",
            seeds: (2, 5),
            cases: competing::background(),
        },
    ]
}
