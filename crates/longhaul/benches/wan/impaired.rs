//! Trials on paths with heavy loss, bursts of loss, corruption, reordering or jitter. The bench
//! measures the first and the third transfer of new gateways. Each trial also runs in virtual time.

use std::time::Duration;

use units::BitRate;
use wansim::{GilbertElliott, Jitter};

use crate::{
    cell::required,
    page::ResultsPage,
    path_pair::PathPair,
    series::{SeriesOutcome, TransferSeries},
    table,
};

struct Row {
    name: String,
    route: PathPair,
    /// Required goodput of the third transfer, as a fraction of the ideal.
    required: f64,
}

struct Outcome {
    runs: Vec<SeriesOutcome>,
    /// Goodput in virtual time, as a fraction of the ideal. Each transfer has one value for each
    /// seed.
    in_virtual_time: [Vec<f64>; TRANSFERS],
}

const TRANSFERS: usize = 3;
const PAUSE: Duration = Duration::from_secs(2);
/// Minimum duration of a transfer by a perfect sender, in round trips, as the definition of goodput
/// requires.
const SENDING_RTTS: u32 = 20;

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let line = |mbit, rtt_ms| PathPair::plain(BitRate::mbit(mbit), Duration::from_millis(rtt_ms));
    let mut add = |what: String, route: PathPair, required| {
        let rate = route.forward.rate.unwrap_or_default();
        let name = format!("{rate}, {} ms, {what}", route.rtt.as_millis());
        rows.push(Row {
            name,
            route,
            required,
        });
    };
    for (mbit, rtt_ms, loss) in [
        (300, 200, 0.3),
        (300, 200, 0.64),
        (270, 170, 0.27),
        (270, 230, 0.07),
    ] {
        let lossy = line(mbit, rtt_ms).with(|path| path.loss = loss);
        let what = format!("{:.0} % lost", loss * 100.0);
        add(what, lossy, required(loss));
    }
    let overtaking = line(270, 180).with_forward(|path| path.let_overtake(0.03, 1.0));
    let what = "3 % overtake by the whole delay, forward".to_owned();
    add(what, overtaking, 0.93);
    for (loss, burst) in [(0.01, 10.0), (0.1, 50.0)] {
        let bursts = GilbertElliott::bursts_of(burst, loss);
        let route = line(300, 200).with(|path| path.bursts = Some(bursts));
        let what = format!("{:.0} % lost in bursts of {burst}", loss * 100.0);
        // The requirement is the same as in virtual time: 0.95 of the result without bursts.
        add(what, route, 0.95 * required(loss));
    }
    for (mbit, corruption) in [
        (150, 0.01),
        (300, 0.01),
        (150, 0.1),
        (300, 0.1),
        (300, 0.32),
    ] {
        let corrupted = line(mbit, 200).with(|path| path.corruption = corruption);
        let what = format!("{:.0} % corrupted", corruption * 100.0);
        add(what, corrupted, required(corruption));
    }
    // Jitter of a shared access line, without and with overtaking.
    for (order, in_order) in [("any order", false), ("in order", true)] {
        let jitter = Jitter {
            spread: Duration::from_millis(6),
            in_order,
        };
        let shared = line(270, 110).with(|path| path.jitter = jitter);
        add(format!("6 ms of jitter, {order}"), shared, 0.95);
    }
    rows
}

impl Row {
    fn series(&self) -> TransferSeries {
        TransferSeries {
            transfers: TRANSFERS,
            size: self.route.size(SENDING_RTTS * self.route.rtt),
            pause: PAUSE,
        }
    }
}

impl Outcome {
    fn of(&self, transfer: usize) -> Vec<f64> {
        self.runs
            .iter()
            .map(|run| run.fractions[transfer])
            .collect()
    }

    fn third(&self) -> f64 {
        table::middle(&self.of(TRANSFERS - 1))
    }
}

/// Runs the rows whose names contain `name`. Returns whether all required results were reached.
pub fn run(name: &str, runs: usize, page: &mut ResultsPage) -> anyhow::Result<bool> {
    let mut rows = rows();
    rows.retain(|row| row.name.contains(name));
    let expected: Duration = rows
        .iter()
        .map(|row| row.series().expected(&row.route))
        .sum();
    page.announce(rows.len(), runs, expected * runs as u32)?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for row in &rows {
        let series = row.series();
        let mut runs_of_row = Vec::new();
        for seed in 1..=runs {
            let progress = |done: &str| page.progress(&format!("{}, run {seed}: {done}", row.name));
            let run = series.over_kernel(&row.route, seed as u64, progress)?;
            progress(&format!("{:.3?} of ideal", run.fractions));
            runs_of_row.push(run);
        }
        outcomes.push(Outcome {
            runs: runs_of_row,
            in_virtual_time: series.in_virtual_time(&row.route),
        });
        page.draft(&render(&rows, &outcomes))?;
    }
    page.finish(&render(&rows, &outcomes))?;
    let mut judged = rows.iter().zip(&outcomes);
    Ok(judged.all(|(row, outcome)| outcome.third() >= row.required))
}

fn render(rows: &[Row], outcomes: &[Outcome]) -> String {
    let header = [
        "path",
        "size, MB",
        "first, of ideal",
        "third",
        "required",
        "",
        "virtual: first",
        "third",
        "difference",
        "busy",
        "emulator late",
    ];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for (row, outcome) in rows.iter().zip(outcomes) {
        let [virtual_first, .., virtual_third] = &outcome.in_virtual_time;
        let is_missed = outcome.third() < row.required;
        let busy: Vec<f64> = outcome.runs.iter().map(|run| run.busy).collect();
        let distorted = outcome.runs.iter().filter(|run| run.is_distorted).count();
        lines.push(vec![
            row.name.clone(),
            format!("{:.0}", row.series().size.bytes() as f64 * 1e-6),
            table::spread(&outcome.of(0)),
            table::spread(&outcome.of(TRANSFERS - 1)),
            format!(">= {:.2}", row.required),
            if is_missed { "MISSED" } else { "" }.to_owned(),
            table::spread(virtual_first),
            table::spread(virtual_third),
            table::difference(&outcome.of(TRANSFERS - 1), virtual_third),
            format!("{:.0} %", 100.0 * table::middle(&busy)),
            format!("{distorted} of {}", outcome.runs.len()),
        ]);
    }
    table::align(&lines)
}
