//! Ablation study: shows, for each mechanism of the controller, the bench rows that need it.
//!
//! The rows come from the scenarios, from `bench link` and from `bench fair`. Each row runs
//! unchanged, and then without each mechanism in turn, with the same seeds. If no condition of a
//! mechanism was true in the unchanged run, the bench skips the run without the mechanism. That run
//! would have the same result.
//!
//! A figure is a measured value. A figure has changed if its mean moves by more than the spread of
//! the unchanged runs. A spread below [`SPREAD_MIN`] counts as [`SPREAD_MIN`]. If a figure becomes
//! worse by [`PLAIN_SPREADS`] spreads, the mechanism is needed, and the bench skips the other runs
//! without the mechanism.
//!
//! All figures are printed so that a larger value is better.

use std::{collections::BTreeMap, ops::Range, time::Instant};

use bench_kit::{
    figure::{BenchCase, Figure, FigureBound},
    jobs,
    stats::mean,
    table::Table,
};
use link::{
    Policy,
    congestion::Mechanism,
    sim::{FlowKind, SymmetricPath, offset},
};

use super::{
    Options, S, alone, competing,
    goodput::{matrix, sequences},
    impaired,
    runs::fair,
};

/// Figures of one run, and the mechanisms whose conditions were true during the run.
struct AblationRun {
    figures: Vec<Figure>,
    used: Vec<Mechanism>,
}

/// Change of a figure in runs without a mechanism. A positive change is better.
struct FigureChange {
    row: String,
    by: f64,
    spread: f64,
}

pub(super) fn run(options: &Options) {
    let mut rows = rows();
    if let Some(text) = &options.cell {
        rows.retain(|row| row.name.contains(text));
    }
    let seeds = options.seeds.unwrap_or(SEEDS);
    let began = Instant::now();
    let all_seeds = seeds.max(SPREAD_SEEDS);
    let jobs: Vec<(usize, u64)> = (0..rows.len())
        .flat_map(|row| (1..=all_seeds).map(move |seed| (row, seed)))
        .collect();
    let run = |job: &(usize, u64), off| {
        let row = &rows[job.0];
        let (figures, used) = Mechanism::without(off, || (row.run)(row.seed(job.1)));
        AblationRun { figures, used }
    };
    let shipped = jobs::map(&jobs, |job| run(job, None));
    eprintln!(
        "{} rows as shipped in {:.0} s",
        rows.len(),
        began.elapsed().as_secs_f64()
    );
    let is_wanted = |part: &&Mechanism| {
        let name = format!("{part:?}");
        options.only.as_ref().is_none_or(|only| *only == name)
    };
    let mut table = Table::new(
        &[
            "part",
            "runs",
            "figures changed",
            "worst",
            "best",
            "verdict",
        ],
        [],
    );
    for part in Mechanism::ALL.iter().filter(is_wanted) {
        let mut without = BTreeMap::new();
        let mut changes = Vec::new();
        'seeds: for seed in 1..=seeds {
            let runs: Vec<(usize, (usize, u64))> = (0..)
                .zip(jobs.iter().copied())
                .filter(|(index, job)| job.1 == seed && shipped[*index].used.contains(part))
                .collect();
            for runs in runs.chunks(RUNS_AT_ONCE) {
                let results = jobs::map(runs, |(_, job)| run(job, Some(*part)).figures);
                without.extend(runs.iter().map(|(index, _)| *index).zip(results));
                changes.clear();
                for (row, cell) in rows.iter().enumerate() {
                    let first = row * all_seeds as usize;
                    let so_far = first..first + seed as usize;
                    let all = first..first + all_seeds as usize;
                    changes.extend(changes_of_row(&cell.name, so_far, all, &shipped, &without));
                }
                if changes.iter().any(FigureChange::is_plain_loss) {
                    break 'seeds;
                }
            }
        }
        let line = line_of(part, without.len(), &changes, options.verbose);
        eprintln!(
            "{:.0} s: {}",
            began.elapsed().as_secs_f64(),
            line.join(" | ")
        );
        table.rows.push(line);
    }
    println!("{}", table.markdown());
    println!(
        "{} rows, {seeds} seeds; took {:.0} s",
        rows.len(),
        began.elapsed().as_secs_f64()
    );
}

impl FigureChange {
    /// Whether the figure is clearly worse, so that further seeds would not change the verdict.
    fn is_plain_loss(&self) -> bool {
        self.by < -PLAIN_SPREADS * self.spread
    }
}

/// Returns the change of each figure of one row, computed from the runs `so_far`. The spread comes
/// from all unchanged runs of the row.
fn changes_of_row(
    name: &str,
    so_far: Range<usize>,
    all: Range<usize>,
    shipped: &[AblationRun],
    without: &BTreeMap<usize, Vec<Figure>>,
) -> Vec<FigureChange> {
    let count = shipped[all.start].figures.len();
    let change = |figure: usize| {
        let of = |figures: &[Figure]| figures.get(figure).map_or(f64::NAN, goodness);
        let before = |runs: &Range<usize>| -> Vec<f64> {
            let figures = runs.clone().map(|run| of(&shipped[run].figures));
            figures.collect()
        };
        let after = so_far.clone().map(|run| {
            let figures = without.get(&run).unwrap_or(&shipped[run].figures);
            of(figures)
        });
        let after: Vec<f64> = after.collect();
        let least = before(&all).iter().copied().fold(f64::INFINITY, f64::min);
        let most = before(&all)
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        let label = shipped[all.start].figures[figure].label;
        FigureChange {
            row: format!("{name}: {label}"),
            by: mean(&after) - mean(&before(&so_far)),
            spread: (most - least).max(SPREAD_MIN),
        }
    };
    (0..count).map(change).collect()
}

/// Returns the value of a figure, scaled so that a larger value is better. A figure with an upper
/// limit of at least 1 is divided by the limit.
fn goodness(figure: &Figure) -> f64 {
    let value = figure.value.min(FIGURE_MAX);
    match figure.bound {
        FigureBound::AtLeast(_) | FigureBound::None => value,
        // A flow gains nothing by a share above the fair share.
        FigureBound::AtMost(_) if figure.label.contains("fair") => 0.0,
        FigureBound::AtMost(bound) if bound >= 1.0 => -value / bound,
        FigureBound::AtMost(_) => -value,
    }
}

fn line_of(
    part: &Mechanism,
    runs: usize,
    changes: &[FigureChange],
    is_verbose: bool,
) -> Vec<String> {
    let mut changed: Vec<&FigureChange> = changes
        .iter()
        .filter(|change| change.by.abs() > change.spread)
        .collect();
    changed.sort_by(|a, b| a.by.total_cmp(&b.by));
    if is_verbose {
        for change in &changed {
            println!("    {part:?}: {} by {:+.3}", change.row, change.by);
        }
    }
    let text = |change: Option<&&FigureChange>| {
        change.map_or_else(String::new, |change| {
            format!("{:+.3} ({})", change.by, change.row)
        })
    };
    let worse = changed.iter().filter(|change| change.by < 0.0).count();
    let better = changed.len() - worse;
    let verdict = match (runs, worse, better) {
        (0, ..) => "no row reaches it",
        (_, 0, 0) => "no row needs it",
        (_, 0, _) => "rows are better without it",
        _ => "needed",
    };
    vec![
        format!("{part:?}"),
        runs.to_string(),
        format!("{worse} worse, {better} better"),
        text(changed.first().filter(|change| change.by < 0.0)),
        text(changed.last().filter(|change| change.by > 0.0)),
        verdict.to_owned(),
    ]
}

/// Returns the rows of the study: a few rows of each scenario. The chosen rows differ from each
/// other and run fast.
fn rows() -> Vec<BenchCase<Vec<Figure>>> {
    let mut rows = Vec::new();
    let mut add = |scenario: &str, cases: Vec<BenchCase<Vec<Figure>>>, names: &[&str]| {
        for name in names {
            let is_there = cases.iter().any(|cell| cell.name == *name);
            assert!(is_there, "{scenario} has no cell {name}");
        }
        for mut cell in cases {
            if names.is_empty() || names.contains(&cell.name.as_str()) {
                cell.name = format!("{scenario}, {}", cell.name);
                rows.push(cell);
            }
        }
    };
    add("alone", alone::alone(false), &ALONE);
    let ramps = ["100 Mbit/s, 100 ms, loss 0", "100 Mbit/s, 100 ms, loss 0.1"];
    add("ramp", alone::ramp(), &ramps);
    let cached = [
        "100 Mbit/s, cached x 0.3",
        "100 Mbit/s, cached x 1",
        "100 Mbit/s, cached x 10",
    ];
    add("ramp", alone::cached(), &cached);
    add("path changes", alone::path_changes(), &[]);
    add("loss changes", alone::loss_changes(), &[]);
    let policers = [
        "bucket 20 ms, loss 0",
        "bucket 20 ms, loss 0.1",
        "bucket 500 ms, loss 0.1",
    ];
    add("policer", alone::policer(), &policers);
    let cubics = ["1 CUBIC, 0.5 BDP", "2 CUBIC, 1 BDP", "4 CUBIC, 1 BDP"];
    add("beside", competing::beside_cubic(), &cubics);
    add(
        "visited",
        competing::visited_by_cubic(),
        &["1 of ours, 1 BDP"],
    );
    add("small user", competing::small_user(), &[]);
    let ourselves = [
        "2 of ours, 0 s apart, 1 BDP, loss 0",
        "2 of ours, 4 s apart, 0.5 BDP, loss 0.3",
    ];
    add("ourselves", competing::among_ourselves(), &ourselves);
    add(
        "crowded",
        competing::crowded_policer(),
        &["4 of ours, bucket 100 ms"],
    );
    add("policer, CUBIC", competing::policer_with_cubic(), &[]);
    let bursts = [
        "20 ms, loss 0.01 in bursts of 10",
        "20 ms, loss 0.1 in bursts of 50",
        "100 ms, loss 0.01 in bursts of 10",
    ];
    add("bursts", impaired::bursts(), &bursts);
    let reordering = [
        "20 ms, 25 % late by 5 ms",
        "20 ms, jitter of 5 ms",
        "100 ms, 1 % late by 100 ms",
        "100 ms, 80 % late by 100 ms",
    ];
    add("reordering", impaired::reordering(), &reordering);
    let lost_reports = ["20 ms, 64 % both ways", "100 ms, 50 % of reports"];
    add("lost reports", impaired::lost_reports(), &lost_reports);
    add("background", competing::background(), &["2 CUBIC, 1 BDP"]);
    add("fair", beside_others(), &[]);
    add("goodput", matrix_cells(), &[]);
    add("sequence", sequence_cells(), &[]);
    rows
}

/// Returns rows of `bench fair` that no scenario contains.
fn beside_others() -> Vec<BenchCase<Vec<Figure>>> {
    let cell = |(name, kind, late_s): (&'static str, FlowKind, u32)| {
        BenchCase::new(name, move |seed| {
            let line = SymmetricPath::new(100, 40, 1.0);
            let mut crowd = line.shared(seed);
            let begins = late_s * S + offset(seed, 0, S);
            crowd.add(fair().flow().starting_at(begins));
            crowd.add(kind.clone().flow().starting_at(offset(seed, 1, S)));
            crowd.run_to(60 * S);
            let record = crowd.record();
            let share = |flow| record.rate(flow, &(25 * S..60 * S)) * 2.0 / line.bits_per_s();
            vec![
                Figure::at_least("ours / its share", 0.5, share(0)),
                Figure::at_least("they have / their share", 0.7, share(1)),
            ]
        })
    };
    [
        ("1 Reno", FlowKind::reno(), 0),
        ("1 BBR", FlowKind::bbr(), 0),
        ("late to 1 CUBIC", FlowKind::cubic(), 20),
        (
            "late to one of ours",
            FlowKind::for_policy(Policy::Fair),
            20,
        ),
    ]
    .map(cell)
    .into()
}

/// Returns some cells of the matrix of `bench link`, at 100 Mbit/s.
fn matrix_cells() -> Vec<BenchCase<Vec<Figure>>> {
    let cell = |(rtt_ms, loss): (u64, f64)| {
        let name = format!("{rtt_ms} ms, loss {loss}");
        BenchCase::new(name, move |seed| {
            let outcome = matrix::trial(rtt_ms, loss, seed, true).run();
            vec![
                Figure::at_least("goodput", 0.9, outcome.fraction),
                Figure::at_most("caused loss", 0.04, outcome.caused_loss),
            ]
        })
    };
    [(20, 0.0), (20, 0.05), (200, 0.001), (200, 0.1), (400, 0.5)]
        .map(cell)
        .into()
}

/// Returns some rows of the transfer sequences of `bench link`.
fn sequence_cells() -> Vec<BenchCase<Vec<Figure>>> {
    let mut rows = sequences::rows();
    rows.retain(|row| SEQUENCES.contains(&row.name.as_str()));
    assert_eq!(rows.len(), SEQUENCES.len(), "each name is that of a row");
    let cell = |row: sequences::SequenceRow| {
        BenchCase::new(row.name, move |seed| {
            let mut trial = row.trial.clone();
            trial.seed = seed;
            let [first, second, third] = sequences::sequence(&trial);
            vec![
                Figure::at_least("first", 0.5, first),
                Figure::at_least("second", 0.5, second),
                Figure::at_least("third", 0.5, third),
            ]
        })
    };
    rows.into_iter().map(cell).collect()
}

const ALONE: [&str; 12] = [
    "100 Mbit/s, 1 ms, 1 BDP, 0 %",
    "100 Mbit/s, 20 ms, 0.5 BDP, 0.1 %",
    "100 Mbit/s, 100 ms, 0.1 BDP, 0 %",
    "100 Mbit/s, 100 ms, 0.1 BDP, 10 %",
    "100 Mbit/s, 100 ms, 1 BDP, 0 %",
    "100 Mbit/s, 100 ms, 1 BDP, 30 %",
    "100 Mbit/s, 100 ms, 1 BDP, 64 %",
    "100 Mbit/s, 600 ms, 4 BDP, 64 %",
    "10 Mbit/s, 1 ms, 0.5 BDP, 0 %",
    "10 Mbit/s, 1 ms, 1 BDP, 50 %",
    "10 Mbit/s, 20 ms, 0.1 BDP, 10 %",
    "10 Mbit/s, 100 ms, 1 BDP, 64 %",
];
const SEQUENCES: [&str; 6] = [
    "1 % overtake by 100 % of the delay, both ways",
    "10 % overtake by 50 % of the delay, forward",
    "3 % late by 20 ms, both ways",
    "20 ms of jitter, in order, both ways",
    "20 ms of jitter, forward",
    "1 % lost in bursts of 10, both ways",
];
/// Default number of seeds for each row.
const SEEDS: u64 = 2;
/// Least spread between seeds. A smaller difference does not matter in practice.
const SPREAD_MIN: f64 = 0.01;
/// Least number of seeds from which the spread is computed.
const SPREAD_SEEDS: u64 = 3;
/// Number of runs after which the figures are evaluated again.
const RUNS_AT_ONCE: usize = 8;
/// Number of spreads. If a figure becomes worse by more than this number, the cause is not chance.
const PLAIN_SPREADS: f64 = 3.0;
/// Value that replaces an infinite figure.
const FIGURE_MAX: f64 = 100.0;
