//! Rows of the bench over emulated paths. Each row defines its flows, its path and the required
//! shares.

use std::{ops::Range, time::Duration};

use bench_kit::{figure::Figure, stats::mean};
use link::sim::{CrowdRecord, SymmetricPath, offset};
use units::ByteCount;

use super::crowd::{self, FlowSender, KernelFlow};
use crate::{
    S,
    report::RowOutcome,
    shares::{least, rates, seconds_to_converge, seconds_to_fair},
};

/// Rows that answer the same question, under one heading.
pub struct Group {
    pub name: &'static str,
    pub rows: Vec<Row>,
}

/// One row of the table: a path with its flows.
pub struct Row {
    pub name: String,
    /// Number of consecutive runs of this row.
    pub runs: u32,
    pub run: Box<RowRunner>,
}

/// Function that runs a row once, with a seed.
pub type RowRunner = dyn Fn(&Times, u64) -> anyhow::Result<RowOutcome> + Send + Sync;

/// Duration of a run, and duration of its initial period. The figures exclude the initial period.
#[derive(Debug, Clone)]
pub struct Times {
    pub settle: Duration,
    pub end: Duration,
}

impl Times {
    fn judged(&self) -> Range<Duration> {
        self.settle..self.end
    }
}

/// Returns the default rows, which together take at most twenty minutes. With `is_full`, returns
/// all rows. With `is_quick`, returns one row of each group.
pub fn groups(is_full: bool, is_quick: bool) -> Vec<Group> {
    let cubic: &[(u64, f64, u64)] = match (is_full, is_quick) {
        (true, _) => &ALL,
        (_, true) => &[(40, 1.0, 1)],
        _ => &SOME,
    };
    let bbr: &[(u64, f64, u64)] = match (is_full, is_quick) {
        (true, _) => &ALL,
        (_, true) => &[(40, 1.0, 1)],
        _ => &SOME_BBR,
    };
    let pairs: &[(u64, f64, u32)] = if is_quick {
        &[(2, 1.0, 0)]
    } else {
        &[(2, 0.5, 0), (2, 1.0, 5), (2, 4.0, 0), (4, 1.0, 5)]
    };
    vec![
        Group {
            name: "beside the kernel's CUBIC",
            rows: beside("cubic", cubic),
        },
        Group {
            name: "beside the kernel's BBR",
            rows: beside("bbr", bbr),
        },
        Group {
            name: "among ourselves",
            rows: among_ourselves(pairs),
        },
        Group {
            name: "a TCP user whose window allows 5.35 Mbit/s",
            rows: small_user(),
        },
    ]
}

/// Cases of a row: round-trip time in ms, queue in bandwidth-delay products, and number of
/// competing flows.
const ALL: [(u64, f64, u64); 18] = [
    (40, 0.5, 1),
    (40, 0.5, 2),
    (40, 0.5, 4),
    (40, 1.0, 1),
    (40, 1.0, 2),
    (40, 1.0, 4),
    (40, 4.0, 1),
    (40, 4.0, 2),
    (40, 4.0, 4),
    (100, 0.5, 1),
    (100, 0.5, 2),
    (100, 0.5, 4),
    (100, 1.0, 1),
    (100, 1.0, 2),
    (100, 1.0, 4),
    (100, 4.0, 1),
    (100, 4.0, 2),
    (100, 4.0, 4),
];
const SOME: [(u64, f64, u64); 12] = [
    (40, 0.5, 1),
    (40, 0.5, 4),
    (40, 1.0, 1),
    (40, 1.0, 2),
    (40, 1.0, 4),
    (40, 4.0, 1),
    (40, 4.0, 4),
    (100, 0.5, 1),
    (100, 1.0, 1),
    (100, 1.0, 2),
    (100, 1.0, 4),
    (100, 4.0, 1),
];
const SOME_BBR: [(u64, f64, u64); 5] = [
    (40, 0.5, 1),
    (40, 1.0, 1),
    (40, 1.0, 2),
    (40, 4.0, 1),
    (100, 1.0, 1),
];

/// Returns rows in which one link competes with flows of the kernel's TCP.
///
/// Each row is measured twice: with the link, and with a CUBIC flow in the link's place. The share
/// that the TCP flows keep is their mean rate in the first run divided by their mean rate in the
/// second run.
fn beside(name: &'static str, cases: &[(u64, f64, u64)]) -> Vec<Row> {
    let row = |&(rtt_ms, queue, count): &(u64, f64, u64)| Row {
        name: format!(
            "{rtt_ms} ms, queue {queue} BDP, {count} {}",
            name.to_uppercase()
        ),
        runs: 2,
        run: Box::new(move |times, seed| {
            let line = SymmetricPath::new(100, rtt_ms, queue);
            let crowd = |first: FlowSender| {
                let others = (1..=count).map(|which| soon(tcp(name), seed, which));
                let flows: Vec<_> = [soon(first, seed, 0)].into_iter().chain(others).collect();
                crowd::run(&line, &flows, times.end)
            };
            let control = crowd(tcp("cubic"))?;
            let ours = crowd(FlowSender::Link)?;
            let judged = times.judged();
            let without_us = rates(&control.record, &judged);
            let record = &ours.record;
            let rates = rates(record, &judged);
            let fair = line.bits_per_s() / rates.len() as f64;
            let kept = mean(&rates[1..]) / mean(&without_us[1..]);
            let lowest = least(&rates) / fair;
            let is_cubic = name == "cubic";
            let figure = |is_required, required: Figure| {
                if is_required {
                    required
                } else {
                    Figure::shown(required.label, required.value)
                }
            };
            let mut figures = vec![
                figure(
                    is_cubic,
                    Figure::at_most("ours / fair", 1.5, rates[0] / fair),
                ),
                figure(
                    is_cubic,
                    Figure::at_least("ours / fair", 0.5, rates[0] / fair),
                ),
                Figure::at_least("they keep", 0.7, kept).by_mean(),
                figure(
                    is_cubic,
                    Figure::at_least("least flow / fair", 0.25, lowest),
                ),
                Figure::shown("CUBIC in our place / fair", without_us[0] / fair),
                Figure::shown("Jain", record.jain(&judged)),
                Figure::shown("Jain, CUBIC in our place", control.record.jain(&judged)),
                Figure::shown(
                    "seconds to 0.5..1.5 of fair",
                    seconds_to_fair(record, fair, times.end),
                ),
            ];
            if !is_cubic {
                // Without limits the first two figures would be the same.
                figures.remove(1);
            }
            figures.extend(line_figures(&line, record, &judged));
            figures.push(Figure::shown(
                "mean queue, CUBIC in our place, ms",
                ms(control.record.queue_mean(&judged)),
            ));
            let mut outcome = outcome(&line, ours, figures);
            outcome.is_distorted |= control.is_distorted;
            Ok(outcome)
        }),
    };
    cases.iter().map(row).collect()
}

fn among_ourselves(cases: &[(u64, f64, u32)]) -> Vec<Row> {
    let row = |&(count, queue, apart_s): &(u64, f64, u32)| Row {
        name: format!("40 ms, queue {queue} BDP, {count} links, {apart_s} s apart"),
        runs: 1,
        run: Box::new(move |times, seed| {
            let line = SymmetricPath::new(100, 40, queue);
            let begins = |which: u64| {
                which as u32 * apart_s * S + offset(seed, which, Duration::from_millis(100))
            };
            let flows: Vec<_> = (0..count)
                .map(|which| KernelFlow {
                    kind: FlowSender::Link,
                    starts: begins(which),
                })
                .collect();
            let all = begins(count - 1);
            let judged = all + times.settle..all + times.end;
            let crowd = crowd::run(&line, &flows, judged.end)?;
            let record = &crowd.record;
            let fair = line.bits_per_s() / count as f64;
            let mut figures = vec![
                Figure::at_least("Jain", 0.95, record.jain(&judged)),
                Figure::at_most(
                    "seconds to Jain 0.95",
                    30.0,
                    seconds_to_converge(record, all, judged.end),
                ),
                Figure::at_least(
                    "least flow / fair",
                    0.25,
                    least(&rates(record, &judged)) / fair,
                ),
            ];
            figures.extend(line_figures(&line, record, &judged));
            Ok(outcome(&line, crowd, figures))
        }),
    };
    cases.iter().map(row).collect()
}

fn small_user() -> Vec<Row> {
    vec![Row {
        name: "173 ms, queue 1 BDP".into(),
        runs: 2,
        run: Box::new(|times, seed| {
            let line = SymmetricPath::new(100, 173, 1.0);
            let user = FlowSender::Tcp {
                congestion_control: "cubic",
                buffer: Some(SMALL_BUFFER),
            };
            let user = soon(user, seed, 1);
            let judged = times.judged();
            let solo = crowd::run(&line, std::slice::from_ref(&user), times.end)?;
            let crowd = crowd::run(&line, &[soon(FlowSender::Link, seed, 0), user], times.end)?;
            let solo_rate = solo.record.rate(0, &judged);
            let rates = rates(&crowd.record, &judged);
            let rest = line.bits_per_s() - rates[1];
            let mut figures = vec![
                Figure::at_least("it keeps", 0.9, rates[1] / solo_rate),
                Figure::at_least("ours / the rest", 0.9, rates[0] / rest),
                Figure::shown("its rate alone, Mbit/s", solo_rate * 1e-6),
            ];
            figures.extend(line_figures(&line, &crowd.record, &judged));
            let mut outcome = outcome(&line, crowd, figures);
            outcome.is_distorted |= solo.is_distorted;
            Ok(outcome)
        }),
    }]
}

/// Receive buffer for which Linux 6.18 announces a window of about 116 KB. A window of 116 KB
/// permits 5.35 Mbit/s at 173 ms.
///
/// A study of such paths found this rate with windows of 128 KB. The row shows the rate without
/// competing flows.
const SMALL_BUFFER: ByteCount = ByteCount::kibibytes(92);

/// Returns the figures about the path. Every row shows these figures.
fn line_figures(
    line: &SymmetricPath,
    record: &CrowdRecord,
    judged: &Range<Duration>,
) -> [Figure; 4] {
    [
        Figure::shown("line in use", line.used(record, judged)),
        Figure::shown("mean queue, ms", ms(record.queue_mean(judged))),
        Figure::shown("queue at 95 %, ms", ms(record.queue_quantile(0.95, judged))),
        Figure::shown("caused loss, %", 100.0 * record.caused_loss(judged)),
    ]
}

fn outcome(line: &SymmetricPath, crowd: crowd::KernelOutcome, figures: Vec<Figure>) -> RowOutcome {
    RowOutcome {
        figures,
        record: crowd.record,
        line: *line,
        is_distorted: crowd.is_distorted,
    }
}

fn tcp(congestion_control: &'static str) -> FlowSender {
    FlowSender::Tcp {
        congestion_control,
        buffer: None,
    }
}

/// Returns a flow that begins within the first second. The seed determines its exact start time.
fn soon(kind: FlowSender, seed: u64, which: u64) -> KernelFlow {
    KernelFlow {
        kind,
        starts: offset(seed, which, S),
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
