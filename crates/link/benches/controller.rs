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

mod bench;

use std::{
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use link::{
    Policy,
    congestion::{self, PathMemory},
    sim::{Crowd, FlowKind, Record},
};
use units::{BitRate, ByteCount};
use wansim::{GilbertElliott, PathConfig, Policer, Reordering, Straggler};

use self::bench::{Bound, Cell, Figure, Line, MS, S, mean, median, offset, ours, parallel, trace};

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

/// Whether each run is printed over time.
static TRACED: AtomicBool = AtomicBool::new(false);

/// What may never happen, in any run of the bench.
static BROKEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes where a pair's pacing rate is no number, nothing, or far beyond what the line can pass.
fn check_invariants(line: &Line, seed: u64, record: &Record) {
    let mut broken = Vec::new();
    for flow in 0..record.flows() {
        let samples = record.samples(flow).iter();
        for sample in samples.filter(|sample| sample.allowed_bytes_per_s != 0.0) {
            let rate = sample.allowed_bytes_per_s * 8.0;
            let is_start = sample.state == "start";
            if !rate.is_finite() || rate <= 0.0 || (!is_start && rate > 4.0 * line.bits_per_s()) {
                broken.push(format!(
                    "{line:?}, seed {seed}: {rate:.3e} bit/s in state {}",
                    sample.state
                ));
                break;
            }
        }
    }
    let mut all = BROKEN
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    all.append(&mut broken);
}

fn print_invariants() -> bool {
    let mut broken = BROKEN
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    broken.sort();
    println!(
        "{:>2}  {:<52} {:<28} {:>9} {:>9} {:>9}  {:>7}",
        18,
        "invariants of every run above",
        "rate > 4x the line, or none",
        "<= 0",
        "",
        broken.len(),
        broken.len()
    );
    for text in broken.iter().take(5) {
        println!("    {text}");
    }
    println!(
        "    {}",
        if broken.is_empty() {
            "reached"
        } else {
            "MISSED"
        }
    );
    broken.is_empty()
}

fn fair() -> FlowKind {
    ours(Policy::Fair)
}

/// With buffers for all the rounds that the worst cell needs: what memory costs is another bench's.
fn fair_with_memory() -> FlowKind {
    match fair() {
        FlowKind::Longhaul { controller, .. } => FlowKind::Longhaul {
            controller,
            memory_max: ByteCount::gibibytes(8),
        },
        tcp => tcp,
    }
}

/// A pair that remembers the path.
fn remembering(memory: PathMemory) -> FlowKind {
    FlowKind::longhaul(move |_, max| congestion::for_policy(Policy::Fair, Some(memory), max))
}

/// Runs to the end and checks what must hold always.
fn finish(crowd: &mut Crowd, line: &Line, seed: u64, end: Duration) {
    crowd.run_to(end);
    check_invariants(line, seed, crowd.record());
    if TRACED.load(Ordering::Relaxed) {
        print!("{}", trace(crowd.record()));
    }
}

/// As [`finish`], with the time counted from when the first flow's connection stands: a handshake at
/// 64 % loss may take ten seconds, and is judged elsewhere. Returns when that was.
fn finish_connected(crowd: &mut Crowd, line: &Line, seed: u64, time: Duration) -> Duration {
    while crowd.connected(0).is_none() && crowd.now() < HANDSHAKE_MAX {
        crowd.run_to(crowd.now() + S);
    }
    let connected = crowd.connected(0).unwrap_or(HANDSHAKE_MAX);
    finish(crowd, line, seed, connected + time);
    connected
}

const HANDSHAKE_MAX: Duration = Duration::from_secs(120);

fn scenarios(is_full: bool) -> Vec<Scenario> {
    vec![
        Scenario {
            number: 1,
            name: "alone: rate, RTT, queue and loss",
            seeds: (1, 1),
            cells: alone(is_full),
        },
        Scenario {
            number: 2,
            name: "ramp on an unknown path",
            seeds: (3, 5),
            cells: ramp(),
        },
        Scenario {
            number: 3,
            name: "ramp with a cached rate, queue 0.1, loss 10 %",
            seeds: (2, 5),
            cells: cached(),
        },
        Scenario {
            number: 4,
            name: "change of capacity and of RTT",
            seeds: (5, 5),
            cells: path_changes(),
        },
        Scenario {
            number: 5,
            name: "loss comes at 15 s and goes at 30 s",
            seeds: (5, 5),
            cells: loss_changes(),
        },
        Scenario {
            number: 6,
            name: "policer of 100 Mbit/s behind 1 Gbit/s",
            seeds: (5, 5),
            cells: policer(),
        },
        Scenario {
            number: 7,
            name: "beside CUBIC, 100 Mbit/s, 40 ms",
            seeds: (3, 6),
            cells: beside_cubic(),
        },
        Scenario {
            number: 8,
            name: "CUBIC from 20 to 60 s",
            seeds: (3, 5),
            cells: visited_by_cubic(),
        },
        Scenario {
            number: 9,
            name: "TCP with a window of 128 KB, 173 ms",
            seeds: (5, 5),
            cells: small_user(),
        },
        Scenario {
            number: 10,
            name: "two and four of ours",
            seeds: (2, 5),
            cells: among_ourselves(),
        },
        Scenario {
            number: 11,
            name: "ours at 20 and 200 ms",
            seeds: (5, 5),
            cells: unequal_rtts(),
        },
        Scenario {
            number: 12,
            name: "several of ours at a policer, a short queue",
            seeds: (4, 6),
            cells: crowded_policer(),
        },
        Scenario {
            number: 13,
            name: "ours and CUBIC at a policer",
            seeds: (5, 5),
            cells: policer_with_cubic(),
        },
        Scenario {
            number: 14,
            name: "bursts: 1 % / 10, 10 % / 50, 30 % / 50 packets",
            seeds: (5, 5),
            cells: bursts(),
        },
        Scenario {
            number: 15,
            name: "reordering and jitter",
            seeds: (5, 5),
            cells: reordering(),
        },
        Scenario {
            number: 16,
            name: "reports lost: 50 % of them, 64 % both ways",
            seeds: (5, 5),
            cells: lost_reports(),
        },
        Scenario {
            number: 17,
            name: "background beside CUBIC",
            seeds: (2, 5),
            cells: background(),
        },
    ]
}

/// The first: all 480 cells with `--full`; at 1 Gbit/s a fixed fifth of them otherwise. Judged in the
/// second half of 40 round trips, or of 15 s at 1 Gbit/s, 20 s at 100 Mbit/s, 40 s at 10 Mbit/s.
fn alone(is_full: bool) -> Vec<Cell<Vec<Figure>>> {
    let mut cells = Vec::new();
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
                    let line = Line::new(mbit, rtt_ms, queue).losing(loss_percent / 100.0);
                    let name = format!("{mbit} Mbit/s, {rtt_ms} ms, {queue} BDP, {loss_percent} %");
                    cells.push(Cell::new(name, move |seed| alone_cell(&line, seed)));
                }
            }
        }
    }
    cells
}

fn alone_cell(line: &Line, seed: u64) -> Vec<Figure> {
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
    let packets = line.bits_per_s() / 8.0 * line.rtt.as_secs_f64() / bench::PACKET_WIRE_BYTES;
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

/// Round trips from the first data until a quarter of a round trip brings 90 % of the capacity.
fn rtts_to_capacity(crowd: &Crowd, line: &Line, flow: usize) -> f64 {
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

/// 2.
fn ramp() -> Vec<Cell<Vec<Figure>>> {
    let mut cells = Vec::new();
    for (mbit, rtt_ms, bound) in [(1000, 1000, 8.0), (100, 100, 6.0)] {
        for loss in [0.0, 0.1] {
            let line = Line::new(mbit, rtt_ms, 1.0).losing(loss);
            let name = format!("{mbit} Mbit/s, {rtt_ms} ms, loss {loss}");
            cells.push(Cell::new(name, move |seed| {
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
    cells
}

/// 3. The cache knows the loss, too.
fn cached() -> Vec<Cell<Vec<Figure>>> {
    let mut cells = Vec::new();
    for mbit in [1000, 100] {
        for (factor, bound) in [(0.3, 6.0), (1.0, 3.25), (10.0, 3.25)] {
            let line = Line::new(mbit, 100, 0.1).losing(0.1);
            let name = format!("{mbit} Mbit/s, cached x {factor}");
            cells.push(Cell::new(name, move |seed| {
                // The controller counts IP packets, without Ethernet's overhead.
                let capacity = line.rate.as_bytes_per_s() * 1500.0 / bench::PACKET_WIRE_BYTES;
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
    cells
}

/// 4. The queue is that of the path before the change.
fn path_changes() -> Vec<Cell<Vec<Figure>>> {
    let changes: [(&str, u64, u64); 4] = [
        ("100 -> 20 Mbit/s", 20, 40),
        ("100 -> 500 Mbit/s", 500, 40),
        ("40 -> 80 ms", 100, 80),
        ("40 -> 20 ms", 100, 20),
    ];
    let cell = |(name, mbit, rtt_ms): (&'static str, u64, u64)| {
        Cell::new(name, move |seed| {
            let before = Line::new(100, 40, 1.0);
            let after = Line::new(mbit, rtt_ms, 1.0);
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

/// 5. "For good": each three seconds from the third on.
fn loss_changes() -> Vec<Cell<Vec<Figure>>> {
    let cell = |(mbit, rtt_ms, loss): (u64, u64, f64)| {
        let line = Line::new(mbit, rtt_ms, 1.0);
        Cell::new(
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

/// A policer of 100 Mbit/s behind a line of 1 Gbit/s, with a bucket of so much time.
fn policed(bucket: Duration, loss: f64) -> (Line, PathConfig) {
    let line = Line::new(100, 40, 1.0).losing(loss);
    let path = PathConfig {
        rate: Some(BitRate::gbit(1)),
        policer: Some(Policer {
            rate: line.rate,
            burst: line.rate.bytes_in(bucket),
        }),
        ..line.path()
    };
    (line, path)
}

/// 6.
fn policer() -> Vec<Cell<Vec<Figure>>> {
    let mut cells = Vec::new();
    for bucket_ms in [20, 100, 500] {
        for loss in [0.0, 0.1] {
            let name = format!("bucket {bucket_ms} ms, loss {loss}");
            cells.push(Cell::new(name, move |seed| {
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
    cells
}

/// 7. The CUBIC flows begin within the first second.
fn beside_cubic() -> Vec<Cell<Vec<Figure>>> {
    let mut cells = Vec::new();
    for queue in [0.5, 1.0, 4.0] {
        for count in [1, 2, 4] {
            let line = Line::new(100, 40, queue);
            cells.push(Cell::new(
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
    cells
}

/// Rates of all flows as fractions of `share`.
fn shares(record: &Record, span: &Range<Duration>, share: f64) -> Vec<f64> {
    (0..record.flows())
        .map(|flow| record.rate(flow, span) / share)
        .collect()
}

/// 8.
fn visited_by_cubic() -> Vec<Cell<Vec<Figure>>> {
    let mut cells = Vec::new();
    for queue in [1.0, 4.0] {
        for count in [1, 2] {
            let line = Line::new(100, 40, queue);
            cells.push(Cell::new(
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
    cells
}

/// 9.
fn small_user() -> Vec<Cell<Vec<Figure>>> {
    let line = Line::new(100, 173, 1.0);
    vec![Cell::new("128 KiB", move |seed| {
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

/// 10.
fn among_ourselves() -> Vec<Cell<Vec<Figure>>> {
    let mut cells = Vec::new();
    for count in [4, 2] {
        for apart_s in [0, 4] {
            for queue in [0.5, 1.0, 4.0] {
                for loss in [0.0, 0.3] {
                    let line = Line::new(100, 40, queue).losing(loss);
                    let name =
                        format!("{count} of ours, {apart_s} s apart, {queue} BDP, loss {loss}");
                    cells.push(Cell::new(name, move |seed| {
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
    cells
}

/// 11.
fn unequal_rtts() -> Vec<Cell<Vec<Figure>>> {
    let line = Line::new(100, 20, 5.0);
    vec![Cell::new("queue of 100 ms", move |seed| {
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

/// 12.
fn crowded_policer() -> Vec<Cell<Vec<Figure>>> {
    let mut cells = Vec::new();
    for count in [4, 2] {
        let name = format!("{count} of ours, bucket 100 ms");
        cells.push(Cell::new(name, move |seed| {
            let (line, path) = policed(100 * MS, 0.0);
            let crowd = line.with(path, line.path(), line.packet_time(), seed);
            crowded(crowd, &line, count, seed)
        }));
    }
    cells.push(Cell::new("4 of ours, 0.1 BDP, loss 0.1", |seed| {
        let line = Line::new(100, 40, 0.1).losing(0.1);
        crowded(line.shared(seed), &line, 4, seed)
    }));
    cells
}

fn crowded(mut crowd: Crowd, line: &Line, count: u64, seed: u64) -> Vec<Figure> {
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

/// 13.
fn policer_with_cubic() -> Vec<Cell<Vec<Figure>>> {
    vec![Cell::new("bucket 100 ms", |seed| {
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

/// One flow alone at 100 Mbit/s on a path that `change` has made worse, and the time to judge it by.
fn alone_on(
    rtt_ms: u64,
    seed: u64,
    change: impl Fn(&mut PathConfig, &mut PathConfig),
) -> (Line, Crowd, Range<Duration>) {
    let line = Line::new(100, rtt_ms, 1.0);
    let (mut forward, mut backward) = (line.path(), line.path());
    change(&mut forward, &mut backward);
    let mut crowd = line.with(forward, backward, Duration::ZERO, seed);
    crowd.add(fair().flow());
    let connected = finish_connected(&mut crowd, &line, seed, 30 * S);
    (line, crowd, connected + 15 * S..connected + 30 * S)
}

/// 14. The bursts are on the way of the data.
fn bursts() -> Vec<Cell<Vec<Figure>>> {
    let mut cells = Vec::new();
    for rtt_ms in [20, 100] {
        for (loss, burst) in [(0.01, 10.0), (0.1, 50.0), (0.3, 50.0)] {
            let name = format!("{rtt_ms} ms, loss {loss} in bursts of {burst}");
            cells.push(Cell::new(name, move |seed| {
                let (line, crowd, span) = alone_on(rtt_ms, seed, |forward, _| {
                    forward.bursts = Some(GilbertElliott::bursts_of(burst, loss));
                });
                let used = line.used(crowd.record(), &span);
                vec![Figure::at_least("used", 0.93, used)]
            }));
        }
    }
    cells
}

/// 15. In both directions; jitter of 5 ms is 2.5 ms to either side.
fn reordering() -> Vec<Cell<Vec<Figure>>> {
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
    let mut cells = Vec::new();
    for rtt_ms in [20, 100] {
        for (name, reordering, spread) in kinds {
            cells.push(Cell::new(format!("{rtt_ms} ms, {name}"), move |seed| {
                let (line, crowd, span) = alone_on(rtt_ms, seed, |forward, backward| {
                    for path in [forward, backward] {
                        path.reordering = reordering;
                        path.jitter.spread = spread;
                    }
                });
                let used = line.used(crowd.record(), &span);
                vec![Figure::at_least("used", 0.93, used)]
            }));
        }
    }
    cells
}

/// 16. The number of reports a round trip is not a setting of the link.
fn lost_reports() -> Vec<Cell<Vec<Figure>>> {
    let mut cells = Vec::new();
    for rtt_ms in [20, 100] {
        for (name, ahead, back) in [
            ("50 % of reports", 0.0, 0.5),
            ("64 % both ways", 0.64, 0.64),
        ] {
            cells.push(Cell::new(format!("{rtt_ms} ms, {name}"), move |seed| {
                let (line, crowd, span) = alone_on(rtt_ms, seed, |forward, backward| {
                    forward.loss = ahead;
                    backward.loss = back;
                });
                let record = crowd.record();
                // From the second second on.
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
            }));
        }
    }
    cells
}

/// 17.
fn background() -> Vec<Cell<Vec<Figure>>> {
    let mut cells = Vec::new();
    for queue in [0.5, 1.0, 4.0] {
        for count in [0, 1, 2, 4] {
            let line = Line::new(100, 40, queue);
            cells.push(Cell::new(
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
                        ours(Policy::Background)
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
    cells
}
