//! The bench in virtual time: cores of the link compete with models of TCP, and with other links.
//!
//! The path has 100 Mbit/s. A run takes 120 s, and the figures exclude the first 30 s, unless a row
//! states otherwise. A row passes if the figures of every seed are within the limits. There is one
//! exception: for the share that CUBIC keeps, only the mean over all seeds must be within the
//! limit.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use bench_kit::{
    figure::{BenchCase, Figure},
    jobs,
    stats::mean,
};
use link::{
    Policy,
    sim::{Crowd, FlowConfig, FlowKind, SymmetricPath, offset},
};
use units::{BitRate, ByteCount};
use wansim::{PathConfig, Policer};

use crate::{
    FairOptions, MS, S,
    report::{FairnessReport, RowOutcome},
    shares::{least, rates, seconds_to_converge},
};

/// Rows that answer the same question, under one heading.
struct Group {
    name: &'static str,
    rows: Vec<BenchCase<RowOutcome>>,
}

/// Runs the selected rows with all seeds, prints the table and writes the page of plots.
pub fn run(options: &FairOptions) -> anyhow::Result<()> {
    let mut groups = groups();
    for group in &mut groups {
        group
            .rows
            .retain(|row| options.wants(group.name, &row.name));
    }
    groups.retain(|group| !group.rows.is_empty());
    anyhow::ensure!(!groups.is_empty(), "no row has such a name");
    let began = Instant::now();
    let mut report = FairnessReport::open(NOTE, options.trace);
    for group in &groups {
        report.group(group.name);
        let jobs: Vec<(&BenchCase<RowOutcome>, u64)> = group
            .rows
            .iter()
            .flat_map(|row| (1..=options.seeds).map(move |seed| (row, seed)))
            .collect();
        let outcomes = jobs::map(&jobs, |(row, seed)| (row.run)(*seed));
        for (row, outcomes) in group
            .rows
            .iter()
            .zip(outcomes.chunks(options.seeds as usize))
        {
            report.row(&row.name, outcomes);
        }
    }
    println!("\ntook {:.0} s", began.elapsed().as_secs_f64());
    report.finish(options.out.as_deref(), "fair.html")
}

/// Returns all rows. Change the first line of this function to bench another policy.
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
            name: "late: others have had the path for 20 s",
            rows: late(policy),
        },
        Group {
            name: "early: CUBIC comes when we have had the path for 20 s",
            rows: early(policy),
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

const NOTE: &str = "The core in virtual time beside models of TCP; the first seed of each row. The figures are \
     the median of the seeds (the mean for what CUBIC keeps) and the worst.";
const END: Duration = Duration::from_secs(120);
const JUDGED: Range<Duration> = Duration::from_secs(30)..END;

/// Returns a flow that begins within the first second. The seed determines its exact start time.
fn soon(kind: FlowKind, seed: u64, which: u64) -> FlowConfig {
    kind.flow().starting_at(offset(seed, which, S))
}

/// Runs flows over a path until [`END`].
fn crowd(line: &SymmetricPath, seed: u64, flows: impl IntoIterator<Item = FlowConfig>) -> Crowd {
    let mut crowd = line.shared(seed);
    for flow in flows {
        crowd.add(flow);
    }
    crowd.run_to(END);
    crowd
}

fn outcome(line: &SymmetricPath, crowd: &Crowd, figures: Vec<Figure>) -> RowOutcome {
    RowOutcome {
        figures,
        record: crowd.record().clone(),
        line: *line,
        is_distorted: false,
    }
}

/// Returns rows in which the first flow is a link, and the other flows are CUBIC.
///
/// Each row is run twice: with the link, and with another CUBIC flow in the link's place. The share
/// that CUBIC keeps is its mean rate in the first run divided by its mean rate in the second run.
fn beside_cubic(policy: Policy) -> Vec<BenchCase<RowOutcome>> {
    let mut rows = Vec::new();
    for rtt_ms in [40, 100] {
        for queue in [0.5, 1.0, 4.0] {
            for count in [1, 2, 4] {
                let line = SymmetricPath::new(100, rtt_ms, queue);
                let name = format!("{rtt_ms} ms, queue {queue} BDP, {count} CUBIC");
                rows.push(BenchCase::new(name, move |seed| {
                    let cubics = (1..=count).map(|which| soon(FlowKind::cubic(), seed, which));
                    let other = soon(FlowKind::cubic(), seed, 0);
                    let control = crowd(&line, seed, cubics.clone().chain([other]));
                    let without_us = mean(&rates(control.record(), &JUDGED));
                    let first = soon(FlowKind::for_policy(policy), seed, 0);
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

/// Returns rows with CUBIC on lossy paths. The share that CUBIC keeps is its rate divided by the
/// lower of two rates. The first rate is CUBIC's fair share of the path's goodput. The second rate
/// is the rate of a CUBIC flow without competing flows on this path.
fn beside_cubic_with_loss(policy: Policy) -> Vec<BenchCase<RowOutcome>> {
    let mut rows = Vec::new();
    for rtt_ms in [40, 100] {
        for (loss, text) in [(0.0001, "0.01 %"), (0.001, "0.1 %"), (0.01, "1 %")] {
            for count in [1, 2] {
                let line = SymmetricPath::new(100, rtt_ms, 1.0).losing(loss);
                let name = format!("{rtt_ms} ms, loss {text}, {count} CUBIC");
                rows.push(BenchCase::new(name, move |seed| {
                    let solo = crowd(&line, seed, [soon(FlowKind::cubic(), seed, 1)]);
                    let solo = solo.record().rate(0, &JUDGED);
                    let cubics = (1..=count).map(|which| soon(FlowKind::cubic(), seed, which));
                    let first = soon(FlowKind::for_policy(policy), seed, 0);
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

/// Returns rows in which the link competes with Reno or BBR flows.
///
/// Each row is run twice: with the link, and with a CUBIC flow in the link's place. The share that
/// Reno or BBR keeps is its mean rate in the first run divided by its mean rate in the second run.
///
/// The requirement that no flow starves applies only to rows with Reno. On a path with a short
/// queue, BBR starves even CUBIC flows.
fn beside_others(policy: Policy) -> Vec<BenchCase<RowOutcome>> {
    let kinds = [("Reno", FlowKind::reno()), ("BBR", FlowKind::bbr())];
    let mut rows = Vec::new();
    for (name, kind) in kinds {
        for queue in [0.5, 1.0, 4.0] {
            for count in [1, 2] {
                let line = SymmetricPath::new(100, 40, queue);
                let title = format!("40 ms, queue {queue} BDP, {count} {name}");
                let kind = kind.clone();
                rows.push(BenchCase::new(title, move |seed| {
                    let run = |first: FlowKind| {
                        let others = (1..=count).map(|which| soon(kind.clone(), seed, which));
                        let first = soon(first, seed, 0);
                        crowd(&line, seed, [first].into_iter().chain(others))
                    };
                    let cubic = run(FlowKind::cubic());
                    let crowd = run(FlowKind::for_policy(policy));
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

fn visited(policy: Policy) -> Vec<BenchCase<RowOutcome>> {
    let mut rows = Vec::new();
    for queue in [1.0, 4.0] {
        let line = SymmetricPath::new(100, 40, queue);
        rows.push(BenchCase::new(
            format!("40 ms, queue {queue} BDP"),
            move |seed| {
                let begins = 30 * S + offset(seed, 1, S);
                let cubic = FlowKind::cubic().flow().starting_at(begins).until(80 * S);
                let crowd = crowd(
                    &line,
                    seed,
                    [soon(FlowKind::for_policy(policy), seed, 0), cubic],
                );
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

/// Start time of the flow that starts late.
const LATE: Duration = Duration::from_secs(20);

/// Returns the paths of the rows with a flow that starts late.
fn late_paths() -> impl Iterator<Item = SymmetricPath> {
    [50, 100].into_iter().flat_map(|mbit| {
        [20, 100, 173].into_iter().flat_map(move |rtt_ms| {
            [0.5, 1.0, 4.0]
                .into_iter()
                .map(move |queue| SymmetricPath::new(mbit, rtt_ms, queue))
        })
    })
}

fn path_name(line: &SymmetricPath) -> String {
    let mbit = line.rate.as_bits_per_s() / 1_000_000;
    let rtt_ms = line.rtt.as_millis();
    format!("{mbit} Mbit/s, {rtt_ms} ms, queue {} BDP", line.queue_bdp)
}

/// Runs `count` flows that start at the beginning, and one flow that starts late.
fn come_late(
    line: &SymmetricPath,
    seed: u64,
    kind: FlowKind,
    others: &FlowKind,
    count: u64,
) -> Crowd {
    let late = kind.flow().starting_at(LATE + offset(seed, 0, S));
    let others = (1..=count).map(|which| soon(others.clone(), seed, which));
    crowd(line, seed, [late].into_iter().chain(others))
}

/// Returns the mean rates of all flows in a span. The span is in seconds after [`LATE`].
fn rates_late(crowd: &Crowd, span_s: Range<u32>) -> Vec<f64> {
    rates(
        crowd.record(),
        &(LATE + S * span_s.start..LATE + S * span_s.end),
    )
}

/// Returns rows in which the link starts late. A CUBIC flow that starts late beside BBR gets a
/// small share. In rows with BBR, the shares are therefore compared with a run in which such a
/// CUBIC flow replaces the link.
fn late(policy: Policy) -> Vec<BenchCase<RowOutcome>> {
    let mut rows = Vec::new();
    let others = [
        ("CUBIC", FlowKind::cubic(), 1),
        ("4 CUBIC", FlowKind::cubic(), 4),
        ("BBR", FlowKind::bbr(), 1),
        ("ours", FlowKind::for_policy(policy), 1),
    ];
    for (name, kind, count) in others {
        let is_in_full = matches!(name, "CUBIC" | "BBR");
        let is_typical =
            |line: &SymmetricPath| line.rtt == 100 * MS && line.rate == BitRate::mbit(100);
        for line in late_paths().filter(|line| is_in_full || is_typical(line)) {
            let kind = kind.clone();
            rows.push(BenchCase::new(
                format!("{}, {name}", path_name(&line)),
                move |seed| {
                    let ours = FlowKind::for_policy(policy);
                    let crowd = come_late(&line, seed, ours, &kind, count);
                    let fair = line.bits_per_s() / (count + 1) as f64;
                    let share = |span_s| rates_late(&crowd, span_s)[0] / fair;
                    let figures = if name == "BBR" {
                        let cubic = come_late(&line, seed, FlowKind::cubic(), &kind, count);
                        let [with_us, with_cubic] =
                            [&crowd, &cubic].map(|crowd| rates_late(crowd, 5..60));
                        vec![
                            Figure::at_least(
                                "ours / a late CUBIC",
                                1.5,
                                with_us[0] / with_cubic[0],
                            )
                            .by_mean(),
                            Figure::at_most("ours / fair", 1.0, with_us[0] / fair).by_mean(),
                            Figure::at_least("BBR keeps", 0.7, with_us[1] / with_cubic[1])
                                .by_mean(),
                            Figure::shown("a late CUBIC / fair", with_cubic[0] / fair),
                        ]
                    } else {
                        vec![
                            Figure::at_least("ours / fair, 5-15 s", 0.7, share(5..15)).by_mean(),
                            Figure::at_most("ours / fair, 5-15 s", 1.3, share(5..15)).by_mean(),
                            Figure::shown("ours / fair, 15-30 s", share(15..30)),
                            Figure::at_least("ours / fair, 30-60 s", 0.8, share(30..60)).by_mean(),
                            Figure::at_most("ours / fair, 30-60 s", 1.2, share(30..60)).by_mean(),
                        ]
                    };
                    outcome(&line, &crowd, figures)
                },
            ));
        }
    }
    rows
}

/// Returns rows in which a CUBIC flow starts after the link.
fn early(policy: Policy) -> Vec<BenchCase<RowOutcome>> {
    late_paths()
        .map(|line| {
            BenchCase::new(path_name(&line), move |seed| {
                let ours = FlowKind::for_policy(policy);
                let beside_us = come_late(&line, seed, FlowKind::cubic(), &ours, 1);
                let beside_cubic = come_late(&line, seed, FlowKind::cubic(), &FlowKind::cubic(), 1);
                let fair = line.bits_per_s() / 2.0;
                let share = |crowd, span_s| rates_late(crowd, span_s)[0] / fair;
                let figures = vec![
                    Figure::shown("CUBIC / fair, 5-15 s", share(&beside_us, 5..15)),
                    Figure::at_least("CUBIC / fair, 15-30 s", 0.7, share(&beside_us, 15..30))
                        .by_mean(),
                    Figure::shown("the same beside CUBIC", share(&beside_cubic, 15..30)),
                ];
                outcome(&line, &beside_us, figures)
            })
        })
        .collect()
}

fn among_ourselves(policy: Policy) -> Vec<BenchCase<RowOutcome>> {
    let mut rows = Vec::new();
    for count in [2, 4] {
        for apart_s in [0, 5] {
            for (queue, loss) in [(0.5, 0.0), (1.0, 0.0), (4.0, 0.0), (1.0, 0.01), (1.0, 0.1)] {
                let line = SymmetricPath::new(100, 40, queue).losing(loss);
                let name = format!("{count}, {apart_s} s apart, queue {queue}, loss {loss}");
                rows.push(BenchCase::new(name, move |seed| {
                    let flows = (0..count).map(|which| {
                        let begins = which as u32 * apart_s * S + offset(seed, which, 100 * MS);
                        FlowKind::for_policy(policy).flow().starting_at(begins)
                    });
                    let crowd = crowd(&line, seed, flows);
                    let all = (count as u32 - 1) * apart_s * S + 100 * MS;
                    let judged = all + 30 * S..END;
                    let record = crowd.record();
                    let fair = line.bits_per_s() * (1.0 - loss) / count as f64;
                    let figures = vec![
                        Figure::at_least("Jain from 30 s on", 0.95, record.jain(&judged)),
                        Figure::at_most(
                            "seconds to 0.95",
                            30.0,
                            seconds_to_converge(record, all, END),
                        ),
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

fn policers(policy: Policy) -> Vec<BenchCase<RowOutcome>> {
    let line = SymmetricPath::new(100, 40, 1.0);
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
        rows.push(BenchCase::new(
            format!("one link, bucket {bucket_ms} ms"),
            move |seed| {
                let crowd = run(
                    bucket_ms,
                    seed,
                    vec![soon(FlowKind::for_policy(policy), seed, 0)],
                );
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
        rows.push(BenchCase::new(name, move |seed| {
            let own = (0..links).map(|which| soon(FlowKind::for_policy(policy), seed, which));
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

fn small_user(policy: Policy) -> Vec<BenchCase<RowOutcome>> {
    let line = SymmetricPath::new(100, 173, 1.0);
    vec![BenchCase::new("173 ms, queue 1 BDP", move |seed| {
        let user = || {
            soon(
                FlowKind::cubic_with_window(ByteCount::kibibytes(128)),
                seed,
                1,
            )
        };
        let solo = crowd(&line, seed, [user()]).record().rate(0, &JUDGED);
        let crowd = crowd(
            &line,
            seed,
            [soon(FlowKind::for_policy(policy), seed, 0), user()],
        );
        let rates = rates(crowd.record(), &JUDGED);
        let rest = line.bits_per_s() - rates[1];
        let figures = vec![
            Figure::at_least("it keeps", 0.9, rates[1] / solo),
            Figure::at_least("ours / the rest", 0.9, rates[0] / rest),
        ];
        outcome(&line, &crowd, figures)
    })]
}

fn alone(policy: Policy) -> Vec<BenchCase<RowOutcome>> {
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
        let line = SymmetricPath::new(100, rtt_ms, queue);
        rows.push(BenchCase::new(
            format!("{rtt_ms} ms, queue {queue} BDP"),
            move |seed| {
                let mut crowd = line.alone(seed);
                crowd.add(soon(FlowKind::for_policy(policy), seed, 0));
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
