//! Goodput on paths with impairments other than independent random losses.

use std::time::Duration;

use bench_kit::jobs;
use units::{BitRate, ByteCount};
use wansim::{GilbertElliott, Jitter, PathConfig, Reordering, Straggler};

use super::{
    MissedFigure, matrix, median_and_worst, trace,
    trial::{Trial, TrialOutcome},
};

struct TrialRow {
    name: String,
    trial: Trial,
    /// Trial on the same path without the impairment of the row. If the trial is set, the bench
    /// compares the row's result with the trial's result.
    plain: Option<Trial>,
    /// Required goodput as a fraction of the goodput on the plain path. Without a plain path, the
    /// reference is the ideal goodput.
    required: f64,
    needless_max: Option<f64>,
    feedback_max: f64,
}

const GIGABIT: BitRate = BitRate::gbit(1);

fn rows() -> Vec<TrialRow> {
    let mut rows = Vec::new();
    let mut add = |name: String, trial: Trial, plain: Option<Trial>, required, needless_max| {
        let loss = 1.0 - trial.arrives;
        rows.push(TrialRow {
            name,
            trial: trial.at_least_twenty_rtts(),
            plain: plain.map(Trial::at_least_twenty_rtts),
            required,
            needless_max,
            feedback_max: if loss <= 0.1 { 0.001 } else { 0.003 },
        });
    };
    for rtt_ms in [20, 200] {
        let rtt = Duration::from_millis(rtt_ms);
        let path = |loss| Trial::symmetric(GIGABIT, rtt, loss);
        for (loss, burst) in [(0.01, 10.0), (0.1, 50.0), (0.3, 50.0)] {
            let bursts = path(loss).with(|path| {
                path.loss = 0.0;
                path.bursts = Some(GilbertElliott::bursts_of(burst, loss));
            });
            let name = format!("{rtt_ms} ms, {} % lost in bursts of {burst}", loss * 100.0);
            add(name, bursts, Some(path(loss)), 0.95, None);
        }
        for corruption in [0.01, 0.1, 0.32] {
            let corrupted = path(corruption).with(|path| {
                path.loss = 0.0;
                path.corruption = corruption;
            });
            let name = format!("{rtt_ms} ms, {} % corrupted", corruption * 100.0);
            // The requirements contain no value between 30 and 50 % of loss.
            let required = matrix::required(if corruption > 0.3 { 0.5 } else { corruption });
            add(name, corrupted, None, required, None);
        }
        let ms = Duration::from_millis;
        for (share, straggler, how) in [
            (0.25, Straggler::Late(ms(5)), "late by 5 ms".to_owned()),
            (0.01, Straggler::Late(ms(100)), "late by 100 ms".to_owned()),
            (0.8, Straggler::Late(ms(100)), "late by 100 ms".to_owned()),
            // Like netem's reordering: these packets skip the delay, and overtake the other
            // packets.
            (
                0.01,
                Straggler::Early,
                format!("overtake by {} ms", rtt_ms / 2),
            ),
            (
                0.8,
                Straggler::Early,
                format!("overtake by {} ms", rtt_ms / 2),
            ),
        ] {
            let reordered = path(0.0).with(|path: &mut PathConfig| {
                path.reordering = Reordering {
                    probability: share,
                    correlation: 0.0,
                    straggler,
                };
            });
            let name = format!("{rtt_ms} ms, {} % {how}", share * 100.0);
            add(name, reordered, Some(path(0.0)), 0.95, Some(0.01));
        }
        let jittered = path(0.0).with(|path| {
            path.jitter = Jitter {
                spread: Duration::from_millis(5),
                in_order: false,
            };
        });
        add(
            format!("{rtt_ms} ms, 5 ms of jitter"),
            jittered,
            Some(path(0.0)),
            0.95,
            Some(0.01),
        );
        for share in [0.1, 0.8] {
            let duplicated = path(0.0).with(|path| path.duplication = share);
            let name = format!("{rtt_ms} ms, {} % duplicated", share * 100.0);
            add(name, duplicated, Some(path(0.0)), 0.98, None);
        }
    }
    for (forward, back, rtt_ms, loss) in [
        (BitRate::gbit(1), BitRate::mbit(1), 200, 0.0),
        (BitRate::mbit(250), BitRate::kbit(250), 200, 0.0),
        (BitRate::mbit(250), BitRate::kbit(250), 600, 0.0),
        (BitRate::mbit(250), BitRate::kbit(250), 600, 0.01),
        (BitRate::mbit(250), BitRate::mbit(3), 600, 0.1),
    ] {
        let rtt = Duration::from_millis(rtt_ms);
        let mut trial = Trial::symmetric(forward, rtt, loss);
        trial.backward.rate = Some(back);
        trial.backward.queue = PathConfig::default_queue(back, rtt).min(ByteCount::new(300_000));
        trial.size = ByteCount::megabytes(200);
        let name = format!(
            "{rtt_ms} ms, {forward} and {back} back, {} % lost",
            loss * 100.0
        );
        add(name, trial, None, matrix::required(loss), None);
    }
    // Jitter of a shared access line, without and with overtaking.
    for in_order in [false, true] {
        let rtt = Duration::from_millis(110);
        let trial = Trial::symmetric(BitRate::mbit(270), rtt, 0.0).with(|path| {
            path.jitter = Jitter {
                spread: Duration::from_millis(6),
                in_order,
            };
        });
        let order = if in_order { "in order" } else { "any order" };
        let name = format!("110 ms, 270 Mbit/s, 6 ms of jitter, {order}");
        add(name, trial, None, 0.95, None);
    }
    rows
}

/// Prints the states of the controller over time, for the first row whose name contains `name`.
pub fn trace(name: &str, seed: u64) {
    let mut trial = named(Some(name)).swap_remove(0).trial;
    trial.seed = seed;
    trace::print(&trial);
}

fn named(name: Option<&str>) -> Vec<TrialRow> {
    let mut rows = rows();
    rows.retain(|row| name.is_none_or(|name| row.name.contains(name)));
    if rows.is_empty() {
        eprintln!("no row has that in its name");
        std::process::exit(2);
    }
    rows
}

pub fn print(seeds: u64, name: Option<&str>) -> Vec<MissedFigure> {
    let rows = named(name);
    let mut trials = Vec::new();
    for row in &rows {
        for trial in [Some(&row.trial), row.plain.as_ref()].into_iter().flatten() {
            trials.extend((1..=seeds).map(|seed| Trial {
                seed,
                ..trial.clone()
            }));
        }
    }
    let outcomes = jobs::map(&trials, Trial::run);
    println!(
        "\n{:<48} {:>8} {:>14} {:>9} {:>9} {:>10}",
        "path", "required", "reached", "reports %", "needless %", "memory MB"
    );
    let mut outcomes = outcomes.chunks(seeds as usize);
    let mut missed = Vec::new();
    for row in &rows {
        let reached = outcomes.next().expect("each trial has outcomes");
        let plain = row
            .plain
            .as_ref()
            .map(|_| outcomes.next().expect("plain ones, too"));
        print_row(row, reached, plain, &mut missed);
    }
    missed
}

fn print_row(
    row: &TrialRow,
    reached: &[TrialOutcome],
    plain: Option<&[TrialOutcome]>,
    missed: &mut Vec<MissedFigure>,
) {
    let plain = plain.map_or(1.0, |plain| {
        median_and_worst(plain.iter().map(|o| o.fraction)).0
    });
    let (median, worst) = median_and_worst(reached.iter().map(|o| o.fraction / plain));
    let feedback = reached.iter().map(|o| o.feedback).fold(0.0, f64::max);
    let needless = reached.iter().map(|o| o.needless).fold(0.0, f64::max);
    let memory = reached
        .iter()
        .map(|o| o.memory_peak_bytes)
        .max()
        .unwrap_or(0);
    let mut marks = String::new();
    let mut judge = |is_missed: bool, what: &str, got: f64, wanted: f64| {
        marks.push(if is_missed { '!' } else { ' ' });
        if is_missed {
            missed.push(MissedFigure::new(
                format!("{}{what}", row.name),
                got,
                wanted,
            ));
        }
    };
    judge(worst < row.required, "", worst, row.required);
    judge(
        feedback > row.feedback_max,
        ": reports",
        feedback,
        row.feedback_max,
    );
    let needless_max = row.needless_max.unwrap_or(f64::MAX);
    judge(
        needless > needless_max,
        ": needless",
        needless,
        needless_max,
    );
    let mut marks = marks.chars();
    let mut mark = || marks.next().unwrap_or(' ');
    println!(
        "{:<48} {:>8.2} {:>13}{} {:>8.3}{} {:>9.2}{} {:>9.0}",
        row.name,
        row.required,
        format!("{median:.3}/{worst:.3}"),
        mark(),
        feedback * 100.0,
        mark(),
        needless * 100.0,
        mark(),
        memory as f64 * 1e-6,
    );
}
