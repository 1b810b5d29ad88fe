//! Waiting times of users: time to full rate, end of a transfer, short exchanges during a bulk
//! transfer, and the first connection.

use std::time::Duration;

use bench_kit::{
    jobs,
    stats::{Summary, median},
};
use link::{
    StreamClass,
    sim::{SimSite, SimWorld},
};
use units::{BitRate, ByteCount};

use super::{MissedFigure, trial::Trial};

pub fn print(seeds: u64) -> Vec<MissedFigure> {
    println!(
        "\n{:<56} {:>10} {:>18}",
        "time", "required", "median and worst"
    );
    let mut missed = ramp(seeds);
    missed.extend(tail(seeds));
    missed.extend(dialogue(seeds));
    missed.extend(first_contact(seeds));
    missed
}

/// Prints a row of figures for which a smaller value is better. Returns the figure if it misses its
/// requirement.
fn row(name: &str, required: f64, figures: &[f64], unit: &str) -> Option<MissedFigure> {
    let summary = Summary::of(figures).expect("each time has a seed at least");
    let (median, worst) = (summary.median, summary.max);
    let is_missed = worst > required;
    let mark = if is_missed { '!' } else { ' ' };
    println!(
        "{name:<56} {:>10} {:>17}{mark}",
        format!("{required} {unit}"),
        format!("{median:.2} / {worst:.2}"),
    );
    is_missed.then(|| MissedFigure::new(name.to_owned(), worst, required))
}

/// Measures transfers of 100 MB over a satellite path: 250 Mbit/s forward, 3 Mbit/s backward, and a
/// round-trip time of 600 ms.
fn ramp(seeds: u64) -> Vec<MissedFigure> {
    let satellite = |loss, is_warm| {
        let rtt = Duration::from_millis(600);
        let mut trial = Trial::symmetric(BitRate::mbit(250), rtt, loss);
        trial.backward.rate = Some(BitRate::mbit(3));
        trial.backward.queue = ByteCount::new(300_000);
        trial.size = ByteCount::megabytes(100);
        trial.is_warm = is_warm;
        trial
    };
    let rows = [
        (
            "100 MB, 250/3 Mbit/s, 600 ms: warm",
            4.3,
            satellite(0.0, true),
        ),
        (
            "100 MB, 250/3 Mbit/s, 600 ms: warm, 1 % lost",
            5.0,
            satellite(0.01, true),
        ),
        (
            "100 MB, 250/3 Mbit/s, 600 ms: cold, with the handshake",
            5.5,
            satellite(0.0, false),
        ),
    ];
    let mut missed = Vec::new();
    for (name, required, trial) in rows {
        let trials: Vec<_> = (1..=seeds)
            .map(|seed| Trial {
                seed,
                ..trial.clone()
            })
            .collect();
        let times = jobs::map(&trials, |trial| match trial.run().time_s {
            0.0 => f64::MAX,
            time_s => time_s,
        });
        missed.extend(row(name, required, &times, "s"));
    }
    missed
}

/// Measures the time from the first transmission of the last byte until the application has read
/// all bytes.
fn tail(seeds: u64) -> Vec<MissedFigure> {
    let mut missed = Vec::new();
    for (rtt_ms, loss) in [
        (20, 0.001),
        (20, 0.1),
        (200, 0.001),
        (200, 0.01),
        (200, 0.1),
        (600, 0.1),
    ] {
        let mut trial = Trial::symmetric(BitRate::mbit(300), Duration::from_millis(rtt_ms), loss);
        trial.size = ByteCount::megabytes(50);
        let trials: Vec<_> = (1..=20 * seeds)
            .map(|seed| Trial {
                seed,
                ..trial.clone()
            })
            .collect();
        let mut tails = jobs::map(&trials, |trial| match trial.run() {
            outcome if outcome.time_s > 0.0 => outcome.tail_rtts,
            _ => f64::MAX,
        });
        tails.sort_by(f64::total_cmp);
        let rare = tails[((tails.len() - 1) as f64 * 0.99).round() as usize];
        let median = median(&tails).expect("each seed has tails");
        let name = format!("tail, {rtt_ms} ms, {} % lost", loss * 100.0);
        missed.extend(row(&format!("{name}: median"), 1.5, &[median], "RTT"));
        missed.extend(row(
            &format!("{name}: 99th percentile"),
            2.5,
            &[rare],
            "RTT",
        ));
    }
    missed
}

/// Measures exchanges of 10 KB in each direction: on an idle link, and during bulk transfers at
/// full rate. The result is the 99th percentile during transfers, divided by the 99th percentile on
/// the idle link.
fn dialogue(seeds: u64) -> Vec<MissedFigure> {
    let mut missed = Vec::new();
    for rtt_ms in [40, 200] {
        let trials: Vec<_> = (1..=seeds)
            .map(|seed| Trial {
                seed,
                ..Trial::symmetric(BitRate::mbit(300), Duration::from_millis(rtt_ms), 0.0)
            })
            .collect();
        let ratios = jobs::map(&trials, |trial| {
            let idle = dialogues(trial, false);
            let busy = dialogues(trial, true);
            busy / idle
        });
        let name = format!("10 KB request and answer under bulk data, {rtt_ms} ms, by idle");
        missed.extend(row(&name, 2.0, &ratios, "x"));
    }
    missed
}

/// Returns the 99th percentile of the durations of 60 exchanges, in seconds.
fn dialogues(trial: &Trial, is_busy: bool) -> f64 {
    let mut world = trial.world();
    trial.warm(&mut world, &mut |_| {});
    if is_busy {
        world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(20_000));
        world.send(SimSite::B, StreamClass::Bulk, ByteCount::megabytes(20_000));
        world.run_for(20 * trial.rtt);
    }
    let mut times: Vec<f64> = (0..60)
        .map(|_| {
            world.run_for(Duration::from_millis(17));
            let began = world.now();
            one_way(&mut world, SimSite::A);
            one_way(&mut world, SimSite::B);
            (world.now() - began).as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * 99 / 100]
}

fn one_way(world: &mut SimWorld, from: SimSite) {
    let id = world.send(from, StreamClass::Bulk, ByteCount::new(10_000));
    world.run_until(Duration::from_secs(60), |world| {
        world.progress(id).arrived.is_some()
    });
}

/// Measures the time from the first packet of a new connection until the first transfer of 100
/// bytes has arrived.
fn first_contact(seeds: u64) -> Vec<MissedFigure> {
    let mut missed = Vec::new();
    for (rtt_ms, loss, required) in [(200, 0.0, 2.0), (200, 0.5, 5.0), (600, 0.5, 5.0)] {
        let rate = BitRate::mbit(100);
        let trials: Vec<_> = (1..=40 * seeds)
            .map(|seed| Trial {
                seed,
                ..Trial::symmetric(rate, Duration::from_millis(rtt_ms), loss)
            })
            .collect();
        let mut times = jobs::map(&trials, |trial| {
            let mut world = trial.world();
            let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::new(100));
            world.run_until(Duration::from_secs(60), |world| {
                world.progress(id).arrived.is_some()
            });
            world.now().as_secs_f64() / trial.rtt.as_secs_f64()
        });
        times.sort_by(f64::total_cmp);
        let at = times[(times.len() - 1) * 9 / 10];
        let name = format!(
            "first contact, {rtt_ms} ms, {} % lost: 90th percentile",
            loss * 100.0
        );
        missed.extend(row(&name, required, &[at], "RTT"));
    }
    missed
}
