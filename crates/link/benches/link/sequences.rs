//! Three consecutive transfers over paths with reordering, jitter, corruption or burst losses.
//!
//! Each transfer of the worst seed is compared with the median of all seeds. The bench detects a
//! collapse of the rate that occurs with one seed in a hundred. The median of a row would hide such
//! a collapse.

use std::time::Duration;

use bench_kit::jobs;
use link::{
    StreamClass,
    sim::{SimSite, SimWorld},
};
use units::{BitRate, ByteCount};
use wansim::{GilbertElliott, Jitter, PathConfig, Straggler};

use super::{MissedFigure, median_and_worst, trace::TraceLines, trial::Trial};

pub struct SequenceRow {
    pub name: String,
    pub trial: Trial,
}

const RATE: BitRate = BitRate::mbit(270);
const RTT: Duration = Duration::from_millis(180);
/// Size of a transfer. At the rate of the line it takes 1.5 s, which is eight round trips.
const SIZE: ByteCount = ByteCount::megabytes(50);
const TRANSFERS: usize = 3;
/// Time for which the link is idle after each transfer.
const PAUSE: Duration = Duration::from_secs(2);
/// Time after which a transfer counts as failed.
const LIMIT: Duration = Duration::from_secs(200);
/// Goodput that even the worst seed must reach, as a fraction of the row's median.
const WORST_OF_MEDIAN: f64 = 0.75;

pub fn rows() -> Vec<SequenceRow> {
    let plain = || {
        let mut trial = Trial::symmetric(RATE, RTT, 0.0);
        for path in [&mut trial.forward, &mut trial.backward] {
            path.queue = PathConfig::default_queue(RATE, RTT / 2);
        }
        trial
    };
    let mut rows = vec![SequenceRow {
        name: "nothing else".to_owned(),
        trial: plain(),
    }];
    let mut add = |name: &str, change: &dyn Fn(&mut PathConfig)| {
        let mut forward = plain();
        change(&mut forward.forward);
        let mut backward = plain();
        change(&mut backward.backward);
        for (way, trial) in [
            ("forward", forward),
            ("backward", backward),
            ("both ways", plain().with(change)),
        ] {
            let name = format!("{name}, {way}");
            rows.push(SequenceRow { name, trial });
        }
    };
    for share in [0.01, 0.03, 0.1] {
        for part in [0.1, 0.5, 1.0] {
            let name = format!(
                "{} % overtake by {} % of the delay",
                share * 100.0,
                part * 100.0
            );
            add(&name, &|path| path.let_overtake(share, part));
        }
    }
    for (share, late_ms) in [(0.03, 20), (0.25, 5), (0.01, 100)] {
        let name = format!("{} % late by {late_ms} ms", share * 100.0);
        add(&name, &|path| {
            path.reordering.probability = share;
            path.reordering.straggler = Straggler::Late(Duration::from_millis(late_ms));
        });
    }
    for (spread_ms, in_order) in [(5, false), (20, false), (20, true)] {
        let order = if in_order { ", in order" } else { "" };
        add(&format!("{spread_ms} ms of jitter{order}"), &|path| {
            let spread = Duration::from_millis(spread_ms);
            path.jitter = Jitter { spread, in_order };
        });
    }
    for corruption in [0.001, 0.01, 0.1] {
        let name = format!("{} % corrupted", corruption * 100.0);
        add(&name, &|path| path.corruption = corruption);
    }
    for (loss, burst) in [(0.001, 100.0), (0.01, 10.0), (0.1, 50.0)] {
        let name = format!("{} % lost in bursts of {burst}", loss * 100.0);
        add(&name, &|path| {
            path.bursts = Some(GilbertElliott::bursts_of(burst, loss));
        });
    }
    rows
}

/// Returns the goodput of each transfer, as a fraction of the ideal goodput. The value is zero for
/// a transfer that did not end in time.
pub fn sequence(trial: &Trial) -> [f64; TRANSFERS] {
    watched_sequence(trial, &mut |_| {})
}

/// Prints the states of the controller over time, for the first row whose name contains `name`.
pub fn trace(name: &str, seed: u64) {
    let mut rows = rows();
    rows.retain(|row| row.name.contains(name));
    let Some(row) = rows.first() else {
        eprintln!("no row has that in its name");
        std::process::exit(2);
    };
    let mut lines = TraceLines::new(RTT);
    let trial = Trial {
        seed,
        ..row.trial.clone()
    };
    let reached = watched_sequence(&trial, &mut |world| lines.look(world));
    println!("{}: {reached:.3?} of ideal", row.name);
}

/// Runs the transfers. Calls `watch` after each event of the simulation.
fn watched_sequence(trial: &Trial, watch: &mut dyn FnMut(&SimWorld)) -> [f64; TRANSFERS] {
    let mut world = trial.world();
    let ideal_s = SIZE.bytes() as f64 / trial.goodput_bytes_per_s() + RTT.as_secs_f64();
    let mut reached = [0.0; TRANSFERS];
    for reached in &mut reached {
        let id = world.send(SimSite::A, StreamClass::Bulk, SIZE);
        world.run_until(LIMIT, |world| {
            watch(world);
            let progress = world.progress(id);
            progress.confirmed.is_some() || progress.lost.is_some()
        });
        let progress = world.progress(id);
        let Some(end) = progress.confirmed else {
            break;
        };
        *reached = ideal_s / (end - progress.began).as_secs_f64();
        world.run_for(PAUSE);
    }
    reached
}

pub fn print(seeds: u64, name: Option<&str>) -> Vec<MissedFigure> {
    let mut rows = rows();
    rows.retain(|row| name.is_none_or(|name| row.name.contains(name)));
    let mut trials = Vec::new();
    for row in &rows {
        trials.extend((1..=seeds).map(|seed| Trial {
            seed,
            ..row.trial.clone()
        }));
    }
    let reached = jobs::map(&trials, sequence);
    println!(
        "\n{TRANSFERS} transfers of {} MB over {RATE}, {} ms: median and worst of {seeds} seeds, by ideal",
        SIZE.bytes() / 1_000_000,
        RTT.as_millis()
    );
    println!(
        "{:<48} {:>15} {:>15} {:>15}",
        "path", "first", "second", "third"
    );
    let mut missed = Vec::new();
    for (row, reached) in rows.iter().zip(reached.chunks(seeds as usize)) {
        let mut cells = String::new();
        for number in 0..TRANSFERS {
            let (median, worst) = median_and_worst(reached.iter().map(|one| one[number]));
            let is_missed = worst < WORST_OF_MEDIAN * median || median == 0.0;
            let mark = if is_missed { '!' } else { ' ' };
            cells += &format!(" {:>14}{mark}", format!("{median:.3}/{worst:.3}"));
            if is_missed {
                let seed = (1..)
                    .zip(reached)
                    .find(|(_, one)| one[number] <= worst)
                    .map_or(0, |(seed, _)| seed);
                let what = format!("{}, transfer {}, seed {seed}", row.name, number + 1);
                missed.push(MissedFigure::new(what, worst, WORST_OF_MEDIAN * median));
            }
        }
        println!("{:<48}{cells}", row.name);
    }
    missed
}
