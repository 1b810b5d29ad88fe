//! How the link shares a bottleneck, in virtual time: required and reached, and a page of plots.
//!
//! The shipped core with its encryption runs over `wansim` beside the models of TCP in `rivals`, and
//! beside itself: 100 Mbit/s, 120 s, judged after the first 30 s, where a row says nothing else. All
//! rates count bytes on the wire that arrive. "Fair" is the line's rate by the number of flows. A row
//! is reached when every seed keeps the bound; what CUBIC keeps is judged by the mean of the seeds.
//!
//! `--seeds K` runs that many (3), `--row TEXT` only the rows whose name contains it, `--trace` prints
//! the first seed of each over time, `--out FILE` says where the page goes. The exit code is 0
//! whatever is reached: the table is the result.
#![allow(clippy::disallowed_methods, reason = "the bench says how long it took")]

mod bench;

use std::{
    ops::Range,
    path::PathBuf,
    time::{Duration, Instant},
};

use link::{
    Policy,
    sim::{Crowd, FlowConfig, FlowKind, Record},
};
use units::{BitRate, ByteCount};
use wansim::{PathConfig, Policer};

use self::bench::{
    Cell, Figure, Line, MS, S, mean, median, offset, ours,
    page::{Plot, Section},
    parallel, trace,
};

/// Rows that belong together, and what they show.
struct Group {
    name: &'static str,
    rows: Vec<Cell<Outcome>>,
}

struct Outcome {
    figures: Vec<Figure>,
    record: Record,
    plot: Plot,
}

fn main() {
    let mut seeds = 3;
    let mut filter = None;
    let mut is_traced = false;
    let mut out = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seeds" => {
                let count = arguments.next().and_then(|text| text.parse().ok());
                seeds = count.unwrap_or_else(|| usage("--seeds takes a number"));
            }
            "--row" => filter = arguments.next(),
            "--out" => out = arguments.next().map(PathBuf::from),
            "--trace" => is_traced = true,
            // What cargo passes to every bench.
            "--bench" => {}
            other => usage(&format!("unknown argument {other}")),
        }
    }
    let out = out.unwrap_or_else(|| bench::target_directory().join("fair.html"));
    let began = Instant::now();
    println!(
        "{:<44} {:<30} {:>8} {:>8} {:>8} {:>8}",
        "row", "figure", "required", "median", "worst", ""
    );
    let (mut reached, mut count) = (0, 0);
    let mut sections = Vec::new();
    for mut group in groups() {
        group.rows.retain(|row| {
            let name = format!("{}: {}", group.name, row.name);
            filter.as_ref().is_none_or(|text| name.contains(text))
        });
        if group.rows.is_empty() {
            continue;
        }
        println!("{}", group.name);
        let (plots, kept) = run(&group, seeds, is_traced);
        reached += kept;
        count += plots.len();
        sections.push(Section {
            name: group.name,
            plots,
        });
    }
    println!("\ntook {:.0} s", began.elapsed().as_secs_f64());
    match std::fs::write(&out, bench::page::render(NOTE, &sections)) {
        Ok(()) => println!("plots: {}", out.display()),
        Err(error) => println!("plots: {} cannot be written: {error}", out.display()),
    }
    println!("{reached} of {count} reached");
}

fn usage(problem: &str) -> ! {
    eprintln!("{problem}; known: --seeds K, --row TEXT, --trace, --out FILE");
    std::process::exit(2);
}

/// Runs and prints a group. Returns the plots of the first seed, and how many rows are reached.
fn run(group: &Group, seeds: u64, is_traced: bool) -> (Vec<Plot>, usize) {
    let rows = group.rows.len();
    let jobs: Vec<(usize, u64)> = (0..rows)
        .flat_map(|row| (1..=seeds.max(1)).map(move |seed| (row, seed)))
        .collect();
    let mut results = parallel(&jobs, |(row, seed)| (group.rows[*row].run)(*seed)).into_iter();
    let mut plots = Vec::new();
    let mut reached = 0;
    for row in &group.rows {
        let outcomes: Vec<Outcome> = results.by_ref().take(seeds.max(1) as usize).collect();
        let mut is_reached = true;
        let mut captions = Vec::new();
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
            let is_kept = figure
                .bound
                .holds(if figure.is_mean { middle } else { worst });
            is_reached &= is_kept;
            let name = if index == 0 { row.name.as_str() } else { "" };
            let mark = if is_kept { "" } else { "MISSED" };
            println!(
                "  {name:<42} {:<30} {:>8} {middle:>8.3} {worst:>8.3} {mark:>8}",
                figure.label, figure.bound
            );
            captions.push((
                format!(
                    "{} {} ({middle:.2}, worst {worst:.2})",
                    figure.label, figure.bound
                ),
                is_kept,
            ));
        }
        reached += usize::from(is_reached);
        let first = outcomes.into_iter().next().expect("at least one seed runs");
        if is_traced {
            print!("{}", trace(&first.record));
        }
        let mut plot = first.plot;
        plot.title = row.name.clone();
        plot.captions = captions;
        plots.push(plot);
    }
    (plots, reached)
}

/// The table. Another policy is another line here.
fn groups() -> Vec<Group> {
    let policy = Policy::Fair;
    vec![
        Group {
            name: "beside CUBIC",
            rows: beside_cubic(policy),
        },
        Group {
            name: "beside CUBIC, with random loss",
            rows: beside_cubic_with_loss(policy),
        },
        Group {
            name: "beside Reno and BBR",
            rows: beside_others(policy),
        },
        Group {
            name: "CUBIC comes at 30 s and goes at 80 s",
            rows: visited(policy),
        },
        Group {
            name: "among ourselves",
            rows: among_ourselves(policy),
        },
        Group {
            name: "policers of 100 Mbit/s behind 1 Gbit/s, 40 ms",
            rows: policers(policy),
        },
        Group {
            name: "a TCP user with a window of 128 KiB",
            rows: small_user(policy),
        },
        Group {
            name: "alone: caused loss and standing queue",
            rows: alone(policy),
        },
    ]
}

const NOTE: &str = "The core in virtual time beside models of TCP; the first seed of each row. Figures are \
     the median of the seeds (the mean for what CUBIC keeps) and the worst.";
const END: Duration = Duration::from_secs(120);
const JUDGED: Range<Duration> = Duration::from_secs(30)..END;

/// A flow that begins within the first second, as the seed says.
fn soon(kind: FlowKind, seed: u64, which: u64) -> FlowConfig {
    kind.flow().starting_at(offset(seed, which, S))
}

/// Runs `flows` over a line to the end.
fn crowd(line: &Line, seed: u64, flows: impl IntoIterator<Item = FlowConfig>) -> Crowd {
    let mut crowd = line.shared(seed);
    for flow in flows {
        crowd.add(flow);
    }
    crowd.run_to(END);
    crowd
}

fn outcome(line: &Line, crowd: &Crowd, figures: Vec<Figure>) -> Outcome {
    Outcome {
        figures,
        record: crowd.record().clone(),
        plot: Plot::of(crowd.record(), line.bits_per_s()),
    }
}

fn rates(record: &Record, span: &Range<Duration>) -> Vec<f64> {
    (0..record.flows())
        .map(|flow| record.rate(flow, span))
        .collect()
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The first is ours; harm is what the others keep of what they get beside one more of their kind.
fn beside_cubic(policy: Policy) -> Vec<Cell<Outcome>> {
    let mut rows = Vec::new();
    for rtt_ms in [40, 100] {
        for queue in [0.5, 1.0, 4.0] {
            for count in [1, 2, 4] {
                let line = Line::new(100, rtt_ms, queue);
                let name = format!("{rtt_ms} ms, queue {queue} BDP, {count} CUBIC");
                rows.push(Cell::new(name, move |seed| {
                    let cubics = (1..=count).map(|which| soon(FlowKind::cubic(), seed, which));
                    let other = soon(FlowKind::cubic(), seed, 0);
                    let control = crowd(&line, seed, cubics.clone().chain([other]));
                    let without_us = mean(&rates(control.record(), &JUDGED));
                    let first = soon(ours(policy), seed, 0);
                    let crowd = crowd(&line, seed, [first].into_iter().chain(cubics));
                    let rates = rates(crowd.record(), &JUDGED);
                    let fair = line.bits_per_s() / rates.len() as f64;
                    let queue = crowd.record().queue_mean(&JUDGED);
                    let figures = vec![
                        Figure::at_most("ours / fair", 1.5, rates[0] / fair),
                        Figure::at_least("ours / fair", 0.5, rates[0] / fair),
                        Figure::at_least("CUBIC keeps", 0.7, mean(&rates[1..]) / without_us)
                            .by_mean(),
                        Figure::at_least("least flow / fair", 0.25, least(&rates) / fair),
                        Figure::shown("line in use", line.used(crowd.record(), &JUDGED)),
                        Figure::shown("mean queue, ms", queue.as_secs_f64() * 1e3),
                    ];
                    outcome(&line, &crowd, figures)
                }));
            }
        }
    }
    rows
}

/// What CUBIC could have: its part of what the path does not lose, or what the loss leaves it alone.
fn beside_cubic_with_loss(policy: Policy) -> Vec<Cell<Outcome>> {
    let mut rows = Vec::new();
    for rtt_ms in [40, 100] {
        for (loss, text) in [(0.0001, "0.01 %"), (0.001, "0.1 %"), (0.01, "1 %")] {
            for count in [1, 2] {
                let line = Line::new(100, rtt_ms, 1.0).losing(loss);
                let name = format!("{rtt_ms} ms, loss {text}, {count} CUBIC");
                rows.push(Cell::new(name, move |seed| {
                    let solo = crowd(&line, seed, [soon(FlowKind::cubic(), seed, 1)]);
                    let solo = solo.record().rate(0, &JUDGED);
                    let cubics = (1..=count).map(|which| soon(FlowKind::cubic(), seed, which));
                    let first = soon(ours(policy), seed, 0);
                    let crowd = crowd(&line, seed, [first].into_iter().chain(cubics));
                    let rates = rates(crowd.record(), &JUDGED);
                    let fair = line.bits_per_s() * (1.0 - loss) / rates.len() as f64;
                    let kept = mean(&rates[1..]) / fair.min(solo);
                    let figures = vec![
                        Figure::at_least("CUBIC keeps", 0.8, kept).by_mean(),
                        Figure::at_least("least flow / what it can have", 0.25, {
                            let cubic = least(&rates[1..]) / fair.min(solo);
                            cubic.min(rates[0] / fair)
                        }),
                        Figure::shown("line in use", line.used(crowd.record(), &JUDGED)),
                    ];
                    outcome(&line, &crowd, figures)
                }));
            }
        }
    }
    rows
}

/// Harm as with CUBIC: what the others keep of what they get with one CUBIC in our place. That nobody
/// starves can be asked beside Reno only: beside BBR with a short queue CUBIC does, too.
fn beside_others(policy: Policy) -> Vec<Cell<Outcome>> {
    let kinds = [("Reno", FlowKind::reno()), ("BBR", FlowKind::bbr())];
    let mut rows = Vec::new();
    for (name, kind) in kinds {
        for queue in [0.5, 1.0, 4.0] {
            for count in [1, 2] {
                let line = Line::new(100, 40, queue);
                let title = format!("40 ms, queue {queue} BDP, {count} {name}");
                let kind = kind.clone();
                rows.push(Cell::new(title, move |seed| {
                    let run = |first: FlowKind| {
                        let others = (1..=count).map(|which| soon(kind.clone(), seed, which));
                        let first = soon(first, seed, 0);
                        crowd(&line, seed, [first].into_iter().chain(others))
                    };
                    let cubic = run(FlowKind::cubic());
                    let crowd = run(ours(policy));
                    let without_us = rates(cubic.record(), &JUDGED);
                    let rates = rates(crowd.record(), &JUDGED);
                    let fair = line.bits_per_s() / rates.len() as f64;
                    let kept = mean(&rates[1..]) / mean(&without_us[1..]);
                    let lowest = least(&rates) / fair;
                    let figures = vec![
                        Figure::at_least("they keep", 0.7, kept).by_mean(),
                        match name {
                            "Reno" => Figure::at_least("least flow / fair", 0.25, lowest),
                            _ => Figure::shown("least flow / fair", lowest),
                        },
                        Figure::shown("ours / fair", rates[0] / fair),
                        Figure::shown("CUBIC in our place / fair", without_us[0] / fair),
                    ];
                    outcome(&line, &crowd, figures)
                }));
            }
        }
    }
    rows
}

fn visited(policy: Policy) -> Vec<Cell<Outcome>> {
    let mut rows = Vec::new();
    for queue in [1.0, 4.0] {
        let line = Line::new(100, 40, queue);
        rows.push(Cell::new(
            format!("40 ms, queue {queue} BDP"),
            move |seed| {
                let begins = 30 * S + offset(seed, 1, S);
                let cubic = FlowKind::cubic().flow().starting_at(begins).until(80 * S);
                let crowd = crowd(&line, seed, [soon(ours(policy), seed, 0), cubic]);
                let record = crowd.record();
                let together = rates(record, &(50 * S..80 * S));
                let fair = line.bits_per_s() / 2.0;
                let after = record.rate(0, &(90 * S..END)) / line.bits_per_s();
                let figures = vec![
                    Figure::at_least("least flow / fair, 50-80 s", 0.25, least(&together) / fair),
                    Figure::shown("ours / fair, 50-80 s", together[0] / fair),
                    Figure::at_least("line in use, 90-120 s", 0.9, after),
                ];
                outcome(&line, &crowd, figures)
            },
        ));
    }
    rows
}

/// Seconds from `from` until Jain's index stays at 0.95 or more: in each two seconds of ten.
fn seconds_to_converge(record: &Record, from: Duration) -> f64 {
    let is_even = |at: Duration| record.jain(&(at..at + 2 * S)) >= 0.95;
    let starts = (0..).map(|step| from + 500 * MS * step);
    starts
        .take_while(|at| *at + 10 * S <= END)
        .find(|at| (0..5).all(|step| is_even(*at + 2 * S * step)))
        .map_or(f64::INFINITY, |at| (at - from).as_secs_f64())
}

fn among_ourselves(policy: Policy) -> Vec<Cell<Outcome>> {
    let mut rows = Vec::new();
    for count in [2, 4] {
        for apart_s in [0, 5] {
            for (queue, loss) in [(0.5, 0.0), (1.0, 0.0), (4.0, 0.0), (1.0, 0.01), (1.0, 0.1)] {
                let line = Line::new(100, 40, queue).losing(loss);
                let name = format!("{count}, {apart_s} s apart, queue {queue}, loss {loss}");
                rows.push(Cell::new(name, move |seed| {
                    let flows = (0..count).map(|which| {
                        let begins = which as u32 * apart_s * S + offset(seed, which, 100 * MS);
                        ours(policy).flow().starting_at(begins)
                    });
                    let crowd = crowd(&line, seed, flows);
                    let all = (count as u32 - 1) * apart_s * S + 100 * MS;
                    let judged = all + 30 * S..END;
                    let record = crowd.record();
                    let fair = line.bits_per_s() * (1.0 - loss) / count as f64;
                    let figures = vec![
                        Figure::at_least("Jain from 30 s on", 0.95, record.jain(&judged)),
                        Figure::at_most("seconds to 0.95", 30.0, seconds_to_converge(record, all)),
                        Figure::at_least(
                            "least flow / fair",
                            0.25,
                            least(&rates(record, &judged)) / fair,
                        ),
                        Figure::shown("line in use", line.used(record, &judged)),
                        Figure::shown(
                            "mean queue, ms",
                            record.queue_mean(&judged).as_secs_f64() * 1e3,
                        ),
                    ];
                    outcome(&line, &crowd, figures)
                }));
            }
        }
    }
    rows
}

fn policers(policy: Policy) -> Vec<Cell<Outcome>> {
    let line = Line::new(100, 40, 1.0);
    let run = move |bucket_ms: u64, seed: u64, flows: Vec<FlowConfig>| {
        let path = PathConfig {
            rate: Some(BitRate::gbit(1)),
            policer: Some(Policer {
                rate: line.rate,
                burst: line.rate.bytes_in(Duration::from_millis(bucket_ms)),
            }),
            ..line.path()
        };
        let mut crowd = line.with(path, line.path(), line.packet_time(), seed);
        for flow in flows {
            crowd.add(flow);
        }
        crowd.run_to(60 * S);
        crowd
    };
    let judged = 10 * S..60 * S;
    let mut rows = Vec::new();
    for bucket_ms in [20, 100, 500] {
        let judged = judged.clone();
        rows.push(Cell::new(
            format!("one link, bucket {bucket_ms} ms"),
            move |seed| {
                let crowd = run(bucket_ms, seed, vec![soon(ours(policy), seed, 0)]);
                let record = crowd.record();
                let figures = vec![
                    Figure::at_least(
                        "of the rate",
                        0.9,
                        record.rate(0, &judged) / line.bits_per_s(),
                    ),
                    Figure::at_most("caused loss", 0.05, record.caused_loss(&judged)),
                ];
                outcome(&line, &crowd, figures)
            },
        ));
    }
    for (links, cubics) in [(2, 0), (4, 0), (1, 1), (1, 2)] {
        let name = match cubics {
            0 => format!("{links} links, bucket 100 ms"),
            _ => format!("one link, {cubics} CUBIC, bucket 100 ms"),
        };
        let judged = judged.clone();
        rows.push(Cell::new(name, move |seed| {
            let own = (0..links).map(|which| soon(ours(policy), seed, which));
            let others = (0..cubics).map(|which| soon(FlowKind::cubic(), seed, 10 + which));
            let crowd = run(100, seed, own.chain(others).collect());
            let record = crowd.record();
            let rates = rates(record, &judged);
            let fair = line.bits_per_s() / rates.len() as f64;
            let figures = vec![
                Figure::at_most("caused loss", 0.1, record.caused_loss(&judged)),
                Figure::at_least("least flow / fair", 0.3, least(&rates) / fair),
                Figure::shown("ours / fair", rates[0] / fair),
                Figure::shown("of the rate", rates.iter().sum::<f64>() / line.bits_per_s()),
            ];
            outcome(&line, &crowd, figures)
        }));
    }
    rows
}

fn small_user(policy: Policy) -> Vec<Cell<Outcome>> {
    let line = Line::new(100, 173, 1.0);
    vec![Cell::new("173 ms, queue 1 BDP", move |seed| {
        let user = || {
            soon(
                FlowKind::cubic_with_window(ByteCount::kibibytes(128)),
                seed,
                1,
            )
        };
        let solo = crowd(&line, seed, [user()]).record().rate(0, &JUDGED);
        let crowd = crowd(&line, seed, [soon(ours(policy), seed, 0), user()]);
        let rates = rates(crowd.record(), &JUDGED);
        let rest = line.bits_per_s() - rates[1];
        let figures = vec![
            Figure::at_least("it keeps", 0.9, rates[1] / solo),
            Figure::at_least("ours / the rest", 0.9, rates[0] / rest),
        ];
        outcome(&line, &crowd, figures)
    })]
}

fn alone(policy: Policy) -> Vec<Cell<Outcome>> {
    let mut rows = Vec::new();
    for (rtt_ms, queue) in [
        (20, 1.0),
        (40, 0.1),
        (40, 0.5),
        (40, 1.0),
        (100, 0.1),
        (100, 1.0),
        (200, 1.0),
    ] {
        let line = Line::new(100, rtt_ms, queue);
        rows.push(Cell::new(
            format!("{rtt_ms} ms, queue {queue} BDP"),
            move |seed| {
                let mut crowd = line.alone(seed);
                crowd.add(soon(ours(policy), seed, 0));
                crowd.run_to(60 * S);
                let record = crowd.record();
                let begins = crowd.connected(0).unwrap_or_default();
                let caused = record.caused_loss(&(begins + 10 * line.rtt..60 * S));
                let judged = 30 * S..60 * S;
                let mut figures = vec![
                    Figure::at_most("caused loss after 10 RTT", 0.02, caused),
                    Figure::shown("line in use", line.used(record, &judged)),
                ];
                if queue == 1.0 {
                    let mean_ms = record.queue_mean(&judged).as_secs_f64() * 1e3;
                    let high_ms = record.queue_quantile(0.95, &judged).as_secs_f64() * 1e3;
                    let rtt_ms = line.rtt.as_secs_f64() * 1e3;
                    figures.extend([
                        Figure::at_most("mean queue, ms", (0.1 * rtt_ms).max(5.0), mean_ms),
                        Figure::at_most("queue at 95 %, ms", (0.25 * rtt_ms).max(10.0), high_ms),
                    ]);
                }
                outcome(&line, &crowd, figures)
            },
        ));
    }
    rows
}
