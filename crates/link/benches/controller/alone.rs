//! Scenarios with one flow alone: its fraction of the capacity, its time to reach the capacity, and
//! its reaction to changes of the path.

use std::time::Duration;

use bench_kit::figure::{BenchCase, Figure};
use link::{
    Policy,
    congestion::{self, PathMemory},
    sim::{Crowd, FlowKind, PACKET_WIRE_BYTES, SymmetricPath},
};
use units::ByteCount;

use crate::{
    MS, S,
    runs::{fair, finish, finish_connected, policed},
};

/// Returns a flow with the fair policy. Its buffers are large enough for the cell with the largest
/// bandwidth-delay product and loss. Another bench measures the cost of memory.
fn fair_with_memory() -> FlowKind {
    match fair() {
        FlowKind::Longhaul { controller, .. } => FlowKind::Longhaul {
            controller,
            memory_max: ByteCount::gibibytes(8),
        },
        tcp => tcp,
    }
}

/// Returns a Longhaul flow that starts with stored measurements of the path.
fn remembering(memory: PathMemory) -> FlowKind {
    FlowKind::longhaul(move |_, max| congestion::for_policy(Policy::Fair, Some(memory), max))
}

/// Scenario 1: one flow alone on 480 paths. Without `--full`, 130 of the 160 paths at 1 Gbit/s are
/// left out.
///
/// A cell runs for at least 40 round trips. Its minimum is 15 s at 1 Gbit/s, 20 s at 100 Mbit/s,
/// and 40 s at 10 Mbit/s. The figures come from the second half of the run.
pub(crate) fn alone(is_full: bool) -> Vec<BenchCase<Vec<Figure>>> {
    let mut cases = Vec::new();
    for mbit in [1000, 100, 10] {
        for rtt_ms in [1000, 600, 100, 20, 1] {
            for queue in [0.1, 0.5, 1.0, 4.0] {
                for loss_percent in [0.0, 0.1, 1.0, 10.0, 5.0, 30.0, 50.0, 64.0] {
                    let is_in_subset = match queue {
                        1.0 => [0.0, 1.0, 10.0, 64.0].contains(&loss_percent),
                        0.1 => [0.0, 10.0].contains(&loss_percent),
                        _ => false,
                    };
                    if mbit == 1000 && !is_in_subset && !is_full {
                        continue;
                    }
                    let line = SymmetricPath::new(mbit, rtt_ms, queue).losing(loss_percent / 100.0);
                    let name = format!("{mbit} Mbit/s, {rtt_ms} ms, {queue} BDP, {loss_percent} %");
                    cases.push(BenchCase::new(name, move |seed| alone_cell(&line, seed)));
                }
            }
        }
    }
    cases
}

fn alone_cell(line: &SymmetricPath, seed: u64) -> Vec<Figure> {
    let least = match line.rate.as_bits_per_s() {
        1_000_000_000 => 15,
        100_000_000 => 20,
        _ => 40,
    };
    let end = (least * S).max(line.rtt * 40);
    let mut crowd = line.alone(seed);
    crowd.add(fair_with_memory().flow());
    let connected = finish_connected(&mut crowd, line, seed, end);
    let record = crowd.record();
    let span = connected + end / 2..connected + end;
    let used = line.used(record, &span);
    let packets = line.bits_per_s() / 8.0 * line.rtt.as_secs_f64() / PACKET_WIRE_BYTES;
    let (label, bound) = match (packets >= 160.0, line.loss) {
        (true, ..=0.1) => ("used, loss <= 10 %", 0.95),
        (true, ..=0.5) => ("used, loss 30, 50 %", 0.95),
        (true, _) => ("used, loss 64 %", 0.95),
        (false, ..=0.5) => ("used, BDP < 160 packets", 0.93),
        (false, _) => ("the same, loss 64 %", 0.82),
    };
    let mut figures = vec![Figure::at_least(label, bound, used)];
    if line.queue_bdp == 1.0 {
        let bound = (10 * MS).max(line.rtt / 4).as_secs_f64();
        let queue = record.queue_mean(&span).as_secs_f64();
        figures.push(Figure::at_most(
            "queue / max(10 ms, RTT/4)",
            1.0,
            queue / bound,
        ));
    }
    let caused = record.caused_loss(&span);
    figures.push(Figure::at_most("caused loss", 0.04, caused));
    figures
}

/// Returns the number of round trips until packets arrive at 90 % of the possible rate. The
/// possible rate is the capacity minus the random losses of the path. The count starts when the
/// connection is established. The rate is measured over a quarter of a round trip.
fn rtts_to_capacity(crowd: &Crowd, line: &SymmetricPath, flow: usize) -> f64 {
    let record = crowd.record();
    let Some(first) = crowd.connected(flow) else {
        return f64::INFINITY;
    };
    let bin = line.rtt / 4;
    let wanted = 0.9 * line.bits_per_s() * (1.0 - line.loss);
    let bins = (crowd.now() - first).as_nanos() / bin.as_nanos();
    (0..bins as u32)
        .find(|number| {
            record.rate(flow, &(first + bin * *number..first + bin * (number + 1))) >= wanted
        })
        .map_or(f64::INFINITY, |number| f64::from(number + 1) / 4.0)
}

/// Scenario 2: time to reach the capacity of an unknown path.
pub(crate) fn ramp() -> Vec<BenchCase<Vec<Figure>>> {
    let mut cases = Vec::new();
    for (mbit, rtt_ms, bound) in [(1000, 1000, 8.0), (100, 100, 6.0)] {
        for loss in [0.0, 0.1] {
            let line = SymmetricPath::new(mbit, rtt_ms, 1.0).losing(loss);
            let name = format!("{mbit} Mbit/s, {rtt_ms} ms, loss {loss}");
            cases.push(BenchCase::new(name, move |seed| {
                let mut crowd = line.alone(seed);
                crowd.add(fair_with_memory().flow());
                finish_connected(&mut crowd, &line, seed, line.rtt * 20);
                let rtts = rtts_to_capacity(&crowd, &line, 0);
                let label = if mbit == 1000 {
                    "RTTs to 90 %, 1 Gbit/s 1 s"
                } else {
                    "RTTs to 90 %, 100 ms"
                };
                vec![Figure::at_most(label, bound, rtts)]
            }));
        }
    }
    cases
}

/// Scenario 3: time to reach the capacity with stored measurements. The measurements include the
/// loss floor.
pub(crate) fn cached() -> Vec<BenchCase<Vec<Figure>>> {
    let mut cases = Vec::new();
    for mbit in [1000, 100] {
        for (factor, bound) in [(0.3, 6.0), (1.0, 3.25), (10.0, 3.25)] {
            let line = SymmetricPath::new(mbit, 100, 0.1).losing(0.1);
            let name = format!("{mbit} Mbit/s, cached x {factor}");
            cases.push(BenchCase::new(name, move |seed| {
                // The controller counts IP packets, without Ethernet's overhead.
                let capacity = line.rate.as_bytes_per_s() * 1500.0 / PACKET_WIRE_BYTES;
                let memory = PathMemory {
                    capacity_bytes_per_s: capacity * factor,
                    loss_floor: line.loss,
                };
                let mut crowd = line.alone(seed);
                crowd.add(remembering(memory).flow());
                finish(&mut crowd, &line, seed, 20 * S);
                let rtts = rtts_to_capacity(&crowd, &line, 0);
                let label = match factor {
                    0.3 => "RTTs to 90 %, cached x 0.3",
                    1.0 => "RTTs to 90 %, cached x 1",
                    _ => "RTTs to 90 %, cached x 10",
                };
                let caused = crowd.record().caused_loss(&(Duration::ZERO..20 * S));
                vec![
                    Figure::at_most(label, bound, rtts),
                    Figure::at_most("caused loss, whole run", 0.02, caused),
                ]
            }));
        }
    }
    cases
}

/// Scenario 4: a change of capacity or of round-trip time. The queue keeps the size that it had
/// before the change.
pub(crate) fn path_changes() -> Vec<BenchCase<Vec<Figure>>> {
    let changes: [(&str, u64, u64); 4] = [
        ("100 -> 20 Mbit/s", 20, 40),
        ("100 -> 500 Mbit/s", 500, 40),
        ("40 -> 80 ms", 100, 80),
        ("40 -> 20 ms", 100, 20),
    ];
    let cell = |(name, mbit, rtt_ms): (&'static str, u64, u64)| {
        BenchCase::new(name, move |seed| {
            let before = SymmetricPath::new(100, 40, 1.0);
            let after = SymmetricPath::new(mbit, rtt_ms, 1.0);
            let mut crowd = before.alone(seed);
            crowd.add(fair().flow());
            crowd.run_to(20 * S);
            crowd.change_paths(|path| {
                path.rate = Some(after.rate);
                path.delay = after.rtt / 2;
            });
            let higher = if after.rate > before.rate {
                after
            } else {
                before
            };
            finish(&mut crowd, &higher, seed, 32 * S);
            let record = crowd.record();
            let wanted = 0.9 * after.bits_per_s();
            let bin = 200 * MS;
            let bins = (0..60).map(|number| 20 * S + bin * number);
            let time_s = bins
                .map(|from| from..from + bin)
                .find(|span| record.rate(0, span) >= wanted)
                .map_or(f64::INFINITY, |span| (span.end - 20 * S).as_secs_f64());
            let after_s = record.rate(0, &(22 * S..32 * S)) / after.bits_per_s();
            vec![
                Figure::at_most("seconds to 90 %", 2.0, time_s),
                Figure::at_least("used from 2 s to 12 s", 0.9, after_s),
            ]
        })
    };
    changes.into_iter().map(cell).collect()
}

/// Scenario 5: random loss starts at 15 s and ends at 30 s. Every period of 3 s must reach the
/// required figure, except during the first 3 s after each change.
pub(crate) fn loss_changes() -> Vec<BenchCase<Vec<Figure>>> {
    let cell = |(mbit, rtt_ms, loss): (u64, u64, f64)| {
        let line = SymmetricPath::new(mbit, rtt_ms, 1.0);
        BenchCase::new(
            format!("{mbit} Mbit/s, {rtt_ms} ms, loss {loss}"),
            move |seed| {
                let mut crowd = line.alone(seed);
                crowd.add(fair().flow());
                crowd.run_to(15 * S);
                crowd.change_paths(|path| path.loss = loss);
                crowd.run_to(30 * S);
                crowd.change_paths(|path| path.loss = 0.0);
                finish(&mut crowd, &line, seed, 45 * S);
                let record = crowd.record();
                let least = |from: u32| {
                    let spans = (0..4).map(|number| from + 3 * number);
                    let used = spans.map(|from| line.used(record, &(from * S..(from + 3) * S)));
                    used.fold(f64::INFINITY, f64::min)
                };
                vec![
                    Figure::at_least("used with loss, from 3 s on", 0.9, least(18)),
                    Figure::at_least("used after, from 3 s on", 0.9, least(33)),
                ]
            },
        )
    };
    let settings = [
        (100, 40, 0.1),
        (100, 40, 0.3),
        (100, 40, 0.64),
        (10, 20, 0.3),
    ];
    settings.into_iter().map(cell).collect()
}

/// Scenario 6: a policer of 100 Mbit/s behind a line of 1 Gbit/s.
pub(crate) fn policer() -> Vec<BenchCase<Vec<Figure>>> {
    let mut cases = Vec::new();
    for bucket_ms in [20, 100, 500] {
        for loss in [0.0, 0.1] {
            let name = format!("bucket {bucket_ms} ms, loss {loss}");
            cases.push(BenchCase::new(name, move |seed| {
                let (line, path) = policed(bucket_ms * MS, loss);
                let mut crowd = line.with(path.clone(), line.path(), Duration::ZERO, seed);
                crowd.add(fair().flow());
                finish(&mut crowd, &line, seed, 40 * S);
                let span = 10 * S..40 * S;
                let label = match loss {
                    0.0 => "caused loss",
                    _ => "caused loss, path loses 10 %",
                };
                vec![
                    Figure::at_least("used", 0.9, line.used(crowd.record(), &span)),
                    Figure::at_most(label, 0.05, crowd.record().caused_loss(&span)),
                ]
            }));
        }
    }
    cases
}
