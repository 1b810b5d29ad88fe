//! The regression scenarios of the controller, in virtual time: required and reached.
//!
//! The shipped core with its encryption runs over `wansim`, alone and beside the models of TCP in
//! `rivals`. The scenarios are those by which the law was chosen in a simulation of its own, with
//! their bounds; what differs is said at the scenario. A scenario is reached when every figure of
//! every cell and seed keeps its bound.
//!
//! "Used" is what arrives on the wire as a fraction of what the line passes and the path does not
//! lose: the controller's part in goodput, which `bench link` judges as a whole.
//!
//! `--scenario N` runs one, `--seeds K` that many seeds of each cell, `--full` all cells of the first
//! with the seeds that the bounds are meant for, `--verbose` prints each cell and seed, `--cell TEXT`
//! takes only cells whose name contains it, `--trace` prints each run ten times a second (best with one
//! cell and `--seeds 1`). The exit code is 0 whatever is reached: the table is the result.
#![allow(clippy::disallowed_methods, reason = "the bench says how long it took")]

mod alone;
#[path = "../bench/mod.rs"]
mod bench;
mod company;
mod impaired;
mod runs;

use std::{sync::atomic::Ordering, time::Instant};

use self::{
    bench::{Bound, Cell, Figure, median, parallel},
    runs::{TRACED, print_invariants},
};

struct Scenario {
    number: u32,
    name: &'static str,
    /// Seeds of each cell by default, and with `--full`.
    seeds: (u64, u64),
    cells: Vec<Cell<Vec<Figure>>>,
}

fn main() {
    let mut only = None;
    let mut seeds_given = None;
    let mut is_full = false;
    let mut is_verbose = false;
    let mut cell_filter = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = |name: &str| {
            let number = arguments.next().and_then(|text| text.parse::<u64>().ok());
            number.unwrap_or_else(|| usage(&format!("{name} takes a number")))
        };
        match argument.as_str() {
            "--scenario" => only = Some(number("--scenario") as u32),
            "--seeds" => seeds_given = Some(number("--seeds").max(1)),
            "--full" => is_full = true,
            "--verbose" => is_verbose = true,
            "--cell" => cell_filter = arguments.next(),
            "--trace" => TRACED.store(true, Ordering::Relaxed),
            // What cargo passes to every bench.
            "--bench" => {}
            other => usage(&format!("unknown argument {other}")),
        }
    }
    let began = Instant::now();
    println!(
        "{:>2}  {:<52} {:<28} {:>9} {:>9} {:>9}  {:>7}",
        "#", "scenario", "figure", "required", "median", "worst", "missed"
    );
    let mut reached = 0;
    let mut count = 0;
    let mut scenarios = scenarios(is_full);
    scenarios
        .retain(|scenario| only.is_none_or(|number| number == scenario.number || number == 18));
    for scenario in &mut scenarios {
        if let Some(text) = &cell_filter {
            scenario.cells.retain(|cell| cell.name.contains(text));
        }
        if scenario.cells.is_empty() {
            continue;
        }
        let seeds = if is_full {
            scenario.seeds.1
        } else {
            scenario.seeds.0
        };
        count += 1;
        reached += u32::from(run(scenario, seeds_given.unwrap_or(seeds), is_verbose));
    }
    if only.is_none_or(|number| number == 18) {
        count += 1;
        reached += u32::from(print_invariants());
    }
    println!("\ntook {:.0} s", began.elapsed().as_secs_f64());
    println!("{reached} of {count} reached");
}

fn usage(problem: &str) -> ! {
    eprintln!("{problem}; known: --scenario N, --cell TEXT, --seeds K, --full, --verbose, --trace");
    std::process::exit(2);
}

/// Runs and prints a scenario. Returns whether all its figures kept their bounds.
fn run(scenario: &Scenario, seeds: u64, is_verbose: bool) -> bool {
    let began = Instant::now();
    let jobs: Vec<(usize, u64)> = (0..scenario.cells.len())
        .flat_map(|cell| (1..=seeds).map(move |seed| (cell, seed)))
        .collect();
    let results = parallel(&jobs, |(cell, seed)| {
        let cell = &scenario.cells[*cell];
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
    let mut kinds: Vec<(&'static str, Bound)> = Vec::new();
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
            median(&values),
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

fn scenarios(is_full: bool) -> Vec<Scenario> {
    vec![
        Scenario {
            number: 1,
            name: "alone: rate, RTT, queue and loss",
            seeds: (1, 1),
            cells: alone::alone(is_full),
        },
        Scenario {
            number: 2,
            name: "ramp on an unknown path",
            seeds: (3, 5),
            cells: alone::ramp(),
        },
        Scenario {
            number: 3,
            name: "ramp with a cached rate, queue 0.1, loss 10 %",
            seeds: (2, 5),
            cells: alone::cached(),
        },
        Scenario {
            number: 4,
            name: "change of capacity and of RTT",
            seeds: (5, 5),
            cells: alone::path_changes(),
        },
        Scenario {
            number: 5,
            name: "loss comes at 15 s and goes at 30 s",
            seeds: (5, 5),
            cells: alone::loss_changes(),
        },
        Scenario {
            number: 6,
            name: "policer of 100 Mbit/s behind 1 Gbit/s",
            seeds: (5, 5),
            cells: alone::policer(),
        },
        Scenario {
            number: 7,
            name: "beside CUBIC, 100 Mbit/s, 40 ms",
            seeds: (3, 6),
            cells: company::beside_cubic(),
        },
        Scenario {
            number: 8,
            name: "CUBIC from 20 to 60 s",
            seeds: (3, 5),
            cells: company::visited_by_cubic(),
        },
        Scenario {
            number: 9,
            name: "TCP with a window of 128 KB, 173 ms",
            seeds: (5, 5),
            cells: company::small_user(),
        },
        Scenario {
            number: 10,
            name: "two and four of ours",
            seeds: (2, 5),
            cells: company::among_ourselves(),
        },
        Scenario {
            number: 11,
            name: "ours at 20 and 200 ms",
            seeds: (5, 5),
            cells: company::unequal_rtts(),
        },
        Scenario {
            number: 12,
            name: "several of ours at a policer, a short queue",
            seeds: (4, 6),
            cells: company::crowded_policer(),
        },
        Scenario {
            number: 13,
            name: "ours and CUBIC at a policer",
            seeds: (5, 5),
            cells: company::policer_with_cubic(),
        },
        Scenario {
            number: 14,
            name: "bursts: 1 % / 10, 10 % / 50, 30 % / 50 packets",
            seeds: (5, 5),
            cells: impaired::bursts(),
        },
        Scenario {
            number: 15,
            name: "reordering and jitter",
            seeds: (5, 5),
            cells: impaired::reordering(),
        },
        Scenario {
            number: 16,
            name: "reports lost: 50 % of them, 64 % both ways",
            seeds: (5, 5),
            cells: impaired::lost_reports(),
        },
        Scenario {
            number: 17,
            name: "background beside CUBIC",
            seeds: (2, 5),
            cells: company::background(),
        },
    ]
}
