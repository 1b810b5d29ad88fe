//! Scenarios with several flows on one path: Longhaul flows with TCP flows, and Longhaul flows
//! alone.

use std::{ops::Range, time::Duration};

use bench_kit::{
    figure::{BenchCase, Figure},
    stats::mean,
};
use link::{
    Policy,
    sim::{Crowd, CrowdRecord, FlowKind, SymmetricPath, offset},
};
use units::ByteCount;

use crate::{
    MS, S,
    runs::{fair, finish, policed},
};

/// Scenario 7: one Longhaul flow shares the path with CUBIC flows. All flows start within the first
/// second.
pub(crate) fn beside_cubic() -> Vec<BenchCase<Vec<Figure>>> {
    let mut cases = Vec::new();
    for queue in [0.5, 1.0, 4.0] {
        for count in [1, 2, 4] {
            let line = SymmetricPath::new(100, 40, queue);
            cases.push(BenchCase::new(
                format!("{count} CUBIC, {queue} BDP"),
                move |seed| {
                    let mut crowd = line.shared(seed);
                    crowd.add(fair().flow().starting_at(offset(seed, 0, S)));
                    for which in 1..=count {
                        crowd.add(FlowKind::cubic().flow().starting_at(offset(seed, which, S)));
                    }
                    finish(&mut crowd, &line, seed, 120 * S);
                    let share = line.bits_per_s() / (count as f64 + 1.0);
                    let rates = shares(crowd.record(), &(30 * S..120 * S), share);
                    vec![
                        Figure::at_least("ours / fair share", 0.5, rates[0]),
                        Figure::at_most("ours / fair share", 1.5, rates[0]),
                        Figure::at_least("mean CUBIC / fair share", 0.7, mean(&rates[1..])),
                    ]
                },
            ));
        }
    }
    cases
}

/// Returns the rate of each flow during `span`, as a fraction of `share`.
fn shares(record: &CrowdRecord, span: &Range<Duration>, share: f64) -> Vec<f64> {
    (0..record.flows())
        .map(|flow| record.rate(flow, span) / share)
        .collect()
}

/// Scenario 8: a CUBIC flow competes from 20 s to 60 s, and then stops.
pub(crate) fn visited_by_cubic() -> Vec<BenchCase<Vec<Figure>>> {
    let mut cases = Vec::new();
    for queue in [1.0, 4.0] {
        for count in [1, 2] {
            let line = SymmetricPath::new(100, 40, queue);
            cases.push(BenchCase::new(
                format!("{count} of ours, {queue} BDP"),
                move |seed| {
                    let mut crowd = line.shared(seed);
                    for which in 0..count {
                        crowd.add(fair().flow().starting_at(offset(seed, which, S)));
                    }
                    let begins = 20 * S + offset(seed, 9, S);
                    crowd.add(FlowKind::cubic().flow().starting_at(begins).until(60 * S));
                    finish(&mut crowd, &line, seed, 80 * S);
                    let span = 70 * S..80 * S;
                    let queue = crowd.record().queue_mean(&span).as_secs_f64();
                    vec![
                        Figure::at_least("used 10 s after", 0.9, line.used(crowd.record(), &span)),
                        Figure::at_most("queue 10 s after / RTT", 0.25, queue / 0.04),
                    ]
                },
            ));
        }
    }
    cases
}

/// Scenario 9: one Longhaul flow shares the path with a TCP flow that has a receive window of 128
/// KiB.
pub(crate) fn small_user() -> Vec<BenchCase<Vec<Figure>>> {
    let line = SymmetricPath::new(100, 173, 1.0);
    vec![BenchCase::new("128 KiB", move |seed| {
        let user = || {
            let kind = FlowKind::cubic_with_window(ByteCount::kibibytes(128));
            kind.flow().starting_at(offset(seed, 1, S))
        };
        let span = 20 * S..60 * S;
        let mut solo = line.shared(seed);
        solo.add(user());
        solo.run_to(60 * S);
        let solo = solo.record().rate(0, &span);
        let mut crowd = line.shared(seed);
        crowd.add(user());
        crowd.add(fair().flow());
        finish(&mut crowd, &line, seed, 60 * S);
        let record = crowd.record();
        let (kept, taken) = (record.rate(0, &span), record.rate(1, &span));
        vec![
            Figure::at_least("it keeps of its rate alone", 0.9, kept / solo),
            Figure::at_least(
                "we use of the rest",
                0.9,
                taken / (line.bits_per_s() - kept),
            ),
        ]
    })]
}

/// Scenario 10: two or four Longhaul flows on one path.
pub(crate) fn among_ourselves() -> Vec<BenchCase<Vec<Figure>>> {
    let mut cases = Vec::new();
    for count in [4, 2] {
        for apart_s in [0, 4] {
            for queue in [0.5, 1.0, 4.0] {
                for loss in [0.0, 0.3] {
                    let line = SymmetricPath::new(100, 40, queue).losing(loss);
                    let name =
                        format!("{count} of ours, {apart_s} s apart, {queue} BDP, loss {loss}");
                    cases.push(BenchCase::new(name, move |seed| {
                        let mut crowd = line.shared(seed);
                        for which in 0..count {
                            let begins = which as u32 * apart_s * S + offset(seed, which, 100 * MS);
                            crowd.add(fair().flow().starting_at(begins));
                        }
                        finish(&mut crowd, &line, seed, 60 * S);
                        let jain = crowd.record().jain(&(30 * S..60 * S));
                        vec![Figure::at_least("Jain from 30 s on", 0.95, jain)]
                    }));
                }
            }
        }
    }
    cases
}

/// Scenario 11: two Longhaul flows with different round-trip times.
pub(crate) fn unequal_rtts() -> Vec<BenchCase<Vec<Figure>>> {
    let line = SymmetricPath::new(100, 20, 5.0);
    vec![BenchCase::new("queue of 100 ms", move |seed| {
        let mut crowd = line.shared(seed);
        crowd.add(fair().flow().starting_at(offset(seed, 0, S)));
        let far = fair().flow().farther_by(180 * MS);
        crowd.add(far.starting_at(offset(seed, 1, S)));
        finish(&mut crowd, &line, seed, 90 * S);
        let share = line.bits_per_s() / 2.0;
        let rates = shares(crowd.record(), &(30 * S..90 * S), share);
        vec![
            Figure::at_least("near / fair share", 0.3, rates[0]),
            Figure::at_least("far / fair share", 0.3, rates[1]),
        ]
    })]
}

/// Scenario 12: several Longhaul flows at a policer, or at a short queue.
pub(crate) fn crowded_policer() -> Vec<BenchCase<Vec<Figure>>> {
    let mut cases = Vec::new();
    for count in [4, 2] {
        let name = format!("{count} of ours, bucket 100 ms");
        cases.push(BenchCase::new(name, move |seed| {
            let (line, path) = policed(100 * MS, 0.0);
            let crowd = line.with(path, line.path(), line.packet_time(), seed);
            crowded(crowd, &line, count, seed)
        }));
    }
    cases.push(BenchCase::new("4 of ours, 0.1 BDP, loss 0.1", |seed| {
        let line = SymmetricPath::new(100, 40, 0.1).losing(0.1);
        crowded(line.shared(seed), &line, 4, seed)
    }));
    cases
}

fn crowded(mut crowd: Crowd, line: &SymmetricPath, count: u64, seed: u64) -> Vec<Figure> {
    for which in 0..count {
        crowd.add(fair().flow().starting_at(offset(seed, which, 100 * MS)));
    }
    finish(&mut crowd, line, seed, 60 * S);
    let span = 30 * S..60 * S;
    vec![
        Figure::at_most("caused loss", 0.1, crowd.record().caused_loss(&span)),
        Figure::at_least("Jain", 0.8, crowd.record().jain(&span)),
    ]
}

/// Scenario 13: a Longhaul flow and a CUBIC flow at a policer.
pub(crate) fn policer_with_cubic() -> Vec<BenchCase<Vec<Figure>>> {
    vec![BenchCase::new("bucket 100 ms", |seed| {
        let (line, path) = policed(100 * MS, 0.0);
        let mut crowd = line.with(path, line.path(), line.packet_time(), seed);
        crowd.add(fair().flow().starting_at(offset(seed, 0, S)));
        crowd.add(FlowKind::cubic().flow().starting_at(offset(seed, 1, S)));
        finish(&mut crowd, &line, seed, 60 * S);
        let span = 30 * S..60 * S;
        let rates = shares(crowd.record(), &span, line.bits_per_s() / 2.0);
        vec![
            Figure::at_least("CUBIC / fair share", 0.3, rates[1]),
            Figure::shown("ours / fair share", rates[0]),
            Figure::shown("caused loss", crowd.record().caused_loss(&span)),
        ]
    })]
}

/// Scenario 17: a background flow, either alone or together with CUBIC flows.
pub(crate) fn background() -> Vec<BenchCase<Vec<Figure>>> {
    let mut cases = Vec::new();
    for queue in [0.5, 1.0, 4.0] {
        for count in [0, 1, 2, 4] {
            let line = SymmetricPath::new(100, 40, queue);
            cases.push(BenchCase::new(
                format!("{count} CUBIC, {queue} BDP"),
                move |seed| {
                    let end = 60 * S;
                    let span = 20 * S..end;
                    let cubics = |crowd: &mut Crowd| {
                        for which in 1..=count {
                            crowd.add(FlowKind::cubic().flow().starting_at(offset(seed, which, S)));
                        }
                    };
                    let sum = |crowd: &Crowd| -> f64 {
                        let record = crowd.record();
                        (0..count as usize)
                            .map(|flow| record.rate(flow, &span))
                            .sum()
                    };
                    let mut crowd = line.shared(seed);
                    cubics(&mut crowd);
                    crowd.add(
                        FlowKind::for_policy(Policy::Background)
                            .flow()
                            .starting_at(offset(seed, 0, S)),
                    );
                    finish(&mut crowd, &line, seed, end);
                    if count == 0 {
                        let used = line.used(crowd.record(), &span);
                        return vec![Figure::at_least("alone: used", 0.95, used)];
                    }
                    let mut solo = line.shared(seed);
                    cubics(&mut solo);
                    solo.run_to(end);
                    let kept = sum(&crowd) / sum(&solo);
                    vec![Figure::at_least("CUBIC keeps of its rate", 0.95, kept)]
                },
            ));
        }
    }
    cases
}
