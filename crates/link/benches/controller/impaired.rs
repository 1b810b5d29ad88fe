//! Scenarios with one flow alone on a path with burst loss, reordering, jitter or lost reports.

use std::{ops::Range, time::Duration};

use bench_kit::figure::{BenchCase, Figure};
use link::sim::{Crowd, SymmetricPath};
use wansim::{GilbertElliott, PathConfig, Reordering, Straggler};

use crate::{
    MS, S,
    runs::{fair, finish_connected},
};

/// Runs one flow alone at 100 Mbit/s on a path that `change` has modified. Returns the path, the
/// simulation, and the time span from which the figures come.
fn alone_on(
    rtt_ms: u64,
    seed: u64,
    change: impl Fn(&mut PathConfig, &mut PathConfig),
) -> (SymmetricPath, Crowd, Range<Duration>) {
    let line = SymmetricPath::new(100, rtt_ms, 1.0);
    let (mut forward, mut backward) = (line.path(), line.path());
    change(&mut forward, &mut backward);
    let mut crowd = line.with(forward, backward, Duration::ZERO, seed);
    crowd.add(fair().flow());
    let connected = finish_connected(&mut crowd, &line, seed, 30 * S);
    (line, crowd, connected + 15 * S..connected + 30 * S)
}

/// Scenario 14: losses in bursts, only in the direction of the data.
pub(crate) fn bursts() -> Vec<BenchCase<Vec<Figure>>> {
    let mut cases = Vec::new();
    for rtt_ms in [20, 100] {
        for (loss, burst) in [(0.01, 10.0), (0.1, 50.0), (0.3, 50.0)] {
            let name = format!("{rtt_ms} ms, loss {loss} in bursts of {burst}");
            cases.push(BenchCase::new(name, move |seed| {
                let (line, crowd, span) = alone_on(rtt_ms, seed, |forward, _| {
                    forward.bursts = Some(GilbertElliott::bursts_of(burst, loss));
                });
                let used = line.used(crowd.record(), &span);
                vec![Figure::at_least("used", 0.93, used)]
            }));
        }
    }
    cases
}

/// Scenario 15: reordering and jitter in both directions. A jitter of 5 ms lengthens or shortens
/// the delay by up to 2.5 ms.
pub(crate) fn reordering() -> Vec<BenchCase<Vec<Figure>>> {
    let late = |probability: f64, ms: u64| Reordering {
        probability,
        correlation: 0.0,
        straggler: Straggler::Late(Duration::from_millis(ms)),
    };
    let kinds = [
        ("25 % late by 5 ms", late(0.25, 5), Duration::ZERO),
        ("1 % late by 100 ms", late(0.01, 100), Duration::ZERO),
        ("80 % late by 100 ms", late(0.8, 100), Duration::ZERO),
        ("jitter of 5 ms", Reordering::default(), 5 * MS / 2),
    ];
    let mut cases = Vec::new();
    for rtt_ms in [20, 100] {
        for (name, reordering, spread) in kinds {
            cases.push(BenchCase::new(
                format!("{rtt_ms} ms, {name}"),
                move |seed| {
                    let (line, crowd, span) = alone_on(rtt_ms, seed, |forward, backward| {
                        for path in [forward, backward] {
                            path.reordering = reordering;
                            path.jitter.spread = spread;
                        }
                    });
                    let used = line.used(crowd.record(), &span);
                    vec![Figure::at_least("used", 0.93, used)]
                },
            ));
        }
    }
    cases
}

/// Scenario 16: lost reports. The number of reports per round trip cannot be configured, so the
/// scenario does not vary it.
pub(crate) fn lost_reports() -> Vec<BenchCase<Vec<Figure>>> {
    let mut cases = Vec::new();
    for rtt_ms in [20, 100] {
        for (name, ahead, back) in [
            ("50 % of reports", 0.0, 0.5),
            ("64 % both ways", 0.64, 0.64),
        ] {
            cases.push(BenchCase::new(
                format!("{rtt_ms} ms, {name}"),
                move |seed| {
                    let (line, crowd, span) = alone_on(rtt_ms, seed, |forward, backward| {
                        forward.loss = ahead;
                        backward.loss = back;
                    });
                    let record = crowd.record();
                    // The samples begin two seconds after the flow connected.
                    let first = (span.start - 13 * S).as_nanos() / record.every().as_nanos();
                    let samples = &record.samples(0)[first as usize..];
                    let mut longest = 0;
                    let mut run = 0;
                    for pair in samples.windows(2) {
                        run = if pair[0].arrived_bytes == pair[1].arrived_bytes {
                            run + 1
                        } else {
                            0
                        };
                        longest = longest.max(run);
                    }
                    let stall = (record.every() * longest).as_secs_f64();
                    let allowed = (3 * line.rtt + 100 * MS).as_secs_f64();
                    let used = line.used(record, &span);
                    vec![
                        Figure::at_least("used", 0.93, used),
                        Figure::at_most("stall / (3 RTT + 100 ms)", 1.0, stall / allowed),
                    ]
                },
            ));
        }
    }
    cases
}
