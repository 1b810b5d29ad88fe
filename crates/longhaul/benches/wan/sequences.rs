//! Trials with many sequences of five transfers. On the paths of these trials, packets overtake
//! other packets. No sequence may be much slower than the others.
//!
//! Each row is judged separately, as in the virtual-time bench of the link. The test compares the
//! worst sequence with the median sequence. It judges each of the five transfers separately,
//! because the first transfer starts on a cold link.

use std::time::Duration;

use bench_kit::stats::Summary;
use units::{BitRate, ByteCount};

use crate::{
    page::ResultsPage,
    path_pair::PathPair,
    series::{SeriesOutcome, TransferSeries},
    table,
};

struct Row {
    name: String,
    route: PathPair,
}

const RATE: BitRate = BitRate::mbit(270);
const RTT: Duration = Duration::from_millis(180);
const SERIES: TransferSeries = TransferSeries {
    transfers: 5,
    size: ByteCount::megabytes(25),
    pause: Duration::from_millis(500),
};
/// Required minimum of a row: the result of the worst sequence divided by the median of the row.
const WORST_OF_MEDIAN: f64 = 0.75;

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for share in [0.01, 0.03, 0.1] {
        for part in [0.1, 0.5, 1.0] {
            let plain = || PathPair::plain(RATE, RTT);
            let forward = plain().with_forward(|path| path.let_overtake(share, part));
            let both_ways = plain().with(|path| path.let_overtake(share, part));
            for (way, route) in [("forward", forward), ("both ways", both_ways)] {
                let [percent, percent_of_delay] = [share, part].map(|share| share * 100.0);
                let name =
                    format!("{percent} % overtake by {percent_of_delay} % of the delay, {way}");
                rows.push(Row { name, route });
            }
        }
    }
    rows
}

/// Results of all sequences of a row. Each run has one result for each transfer.
struct Outcome(Vec<SeriesOutcome>);

impl Outcome {
    fn of(&self, transfer: usize) -> Summary {
        let figures: Vec<f64> = self.0.iter().map(|run| run.fractions[transfer]).collect();
        Summary::of(&figures).expect("each row has a sequence at least")
    }

    /// For each transfer of the sequence, divides the worst result by the median. Returns the
    /// lowest of these ratios. If the median is zero, most sequences failed, and the ratio is zero.
    fn worst_of_median(&self) -> f64 {
        let ratios = (0..SERIES.transfers).map(|transfer| {
            let Summary { min, median, .. } = self.of(transfer);
            if median > 0.0 { min / median } else { 0.0 }
        });
        ratios.fold(f64::INFINITY, f64::min)
    }

    fn is_reached(&self) -> bool {
        self.worst_of_median() >= WORST_OF_MEDIAN
    }
}

/// Runs the rows whose names contain `name`. Returns whether all required results were reached.
pub fn run(name: &str, sequences: usize, page: &mut ResultsPage) -> anyhow::Result<bool> {
    let mut rows = rows();
    rows.retain(|row| row.name.contains(name));
    let expected: Duration = rows.iter().map(|row| SERIES.expected(&row.route)).sum();
    page.announce(rows.len(), sequences, expected * sequences as u32)?;
    let mut outcomes = Vec::new();
    for row in &rows {
        let mut runs = Vec::new();
        for seed in 1..=sequences {
            let progress = |done: &str| {
                page.progress(&format!("{}, sequence {seed}: {done}", row.name));
            };
            let run = SERIES.over_kernel(&row.route, seed as u64, progress)?;
            progress(&format!("{:.3?} of ideal", run.fractions));
            runs.push(run);
        }
        outcomes.push(Outcome(runs));
        page.draft(&render(&rows, &outcomes))?;
    }
    page.finish(&render(&rows, &outcomes))?;
    Ok(outcomes.iter().all(Outcome::is_reached))
}

fn render(rows: &[Row], outcomes: &[Outcome]) -> String {
    let mut header = vec![format!(
        "{} MB, {RATE}, {} ms; of ideal, median/worst",
        SERIES.size.bytes() / 1_000_000,
        RTT.as_millis()
    )];
    header.extend((1..=SERIES.transfers).map(|number| format!("transfer {number}")));
    header.extend(["worst/median", "required", "", "emulator late"].map(str::to_owned));
    let mut lines = vec![header];
    for (row, outcome) in rows.iter().zip(outcomes) {
        let mut line = vec![row.name.clone()];
        line.extend((0..SERIES.transfers).map(|transfer| {
            let Summary { min, median, .. } = outcome.of(transfer);
            format!("{median:.3}/{min:.3}")
        }));
        let mark = if outcome.is_reached() { "" } else { "MISSED" };
        let distorted = outcome.0.iter().filter(|run| run.is_distorted).count();
        line.extend([
            format!("{:.3}", outcome.worst_of_median()),
            format!(">= {WORST_OF_MEDIAN}"),
            mark.to_owned(),
            format!("{distorted} of {}", outcome.0.len()),
        ]);
        lines.push(line);
    }
    table::align(&lines)
}
