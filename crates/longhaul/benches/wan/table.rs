//! The table of the section `plain`. Each line shows one cell with its measured and its required
//! result.

use std::{fmt::Write, time::Duration};

use bench_kit::stats::{Summary, median};
use units::ByteCount;

use crate::measure::{MeasuredTransfer, Outcome, Plan};

/// Returns the table of measured cells as Markdown with aligned columns.
pub fn render(outcomes: &[Outcome], plan: &Plan) -> String {
    let mut header = vec![
        "rate, RTT, loss each way".to_owned(),
        "size, MB".to_owned(),
        "ideal, s".to_owned(),
        "required".to_owned(),
        "of ideal, median (min..max)".to_owned(),
        String::new(),
    ];
    header.extend(plan.rivals.iter().map(|name| format!("TCP {name}")));
    header.extend(
        [
            "CPU s/GB, sending (link)",
            "receiving (link)",
            "emulator",
            "machine busy (others)",
            "what limited the median run",
        ]
        .map(str::to_owned),
    );
    let mut rows = vec![header];
    rows.extend(outcomes.iter().map(|outcome| row(outcome, plan)));
    align(&rows)
}

/// Whether the median result of a cell reaches the required result.
pub fn is_reached(outcome: &Outcome) -> bool {
    median_of(&outcome.runs, |run| run.fraction) >= outcome.cell.required()
}

fn row(outcome: &Outcome, plan: &Plan) -> Vec<String> {
    let Outcome {
        cell, size, runs, ..
    } = outcome;
    let fractions: Vec<f64> = runs.iter().map(|run| run.fraction).collect();
    let mut row = vec![
        cell.to_string(),
        format!("{:.0}", size.bytes() as f64 * 1e-6),
        format!("{:.2}", cell.ideal(*size).as_secs_f64()),
        format!(">= {}", cell.required()),
        spread(&fractions),
        if is_reached(outcome) { "" } else { "MISSED" }.to_owned(),
    ];
    for name in &plan.rivals {
        let found = outcome.rivals.iter().find(|(rival, _)| rival == name);
        let fraction = found.and_then(|(_, fraction)| *fraction);
        row.push(fraction.map_or_else(|| "-".to_owned(), |fraction| format!("{fraction:.3}")));
    }
    for site in [0, 1] {
        let all = median_of(runs, |run| per_gb(run.cpu[site].all, *size));
        let link = median_of(runs, |run| per_gb(run.cpu[site].of_thread, *size));
        row.push(format!("{all:.2} ({link:.2})"));
    }
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    row.push(percent(median_of(runs, |run| run.emulator)));
    let busy = median_of(runs, |run| run.machine.busy);
    let others = median_of(runs, |run| run.machine.others);
    row.push(format!("{} ({})", percent(busy), percent(others)));
    row.push(median_run(outcome).limit.to_string());
    row
}

/// Returns the run with the median result. For an even number of runs, returns the lower of the two
/// middle runs.
fn median_run(outcome: &Outcome) -> &MeasuredTransfer {
    let mut runs: Vec<_> = outcome.runs.iter().collect();
    runs.sort_by(|a, b| a.fraction.total_cmp(&b.fraction));
    runs[(runs.len() - 1) / 2]
}

fn median_of(runs: &[MeasuredTransfer], value: impl Fn(&MeasuredTransfer) -> f64) -> f64 {
    let values: Vec<f64> = runs.iter().map(value).collect();
    middle(&values)
}

/// Returns the median. Panics if `figures` is empty.
pub fn middle(figures: &[f64]) -> f64 {
    median(figures).expect("each row has a run at least")
}

/// Returns the median, the minimum and the maximum as text.
pub fn spread(figures: &[f64]) -> String {
    let Summary {
        median, min, max, ..
    } = Summary::of(figures).expect("each row has a run at least");
    format!("{median:.3} ({min:.3}..{max:.3})")
}

/// Returns the median over the kernel minus the median in virtual time. If the difference needs an
/// explanation, the text has a mark.
pub fn difference(over_kernel: &[f64], in_virtual_time: &[f64]) -> String {
    let [over_kernel, in_virtual_time] = [over_kernel, in_virtual_time].map(middle);
    let difference = over_kernel - in_virtual_time;
    let is_large = difference.abs() > DIFFERENCE_MAX;
    format!("{difference:+.3}{}", if is_large { " !" } else { "" })
}

fn per_gb(time: Duration, size: ByteCount) -> f64 {
    time.as_secs_f64() / (size.bytes() as f64 * 1e-9)
}

/// Returns the rows as a Markdown table with aligned columns. The first row is the header.
pub fn align(rows: &[Vec<String>]) -> String {
    let columns = rows[0].len();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}

/// Limit for the difference between the result over the kernel and the result in virtual time, as a
/// fraction of the ideal. A larger difference needs an explanation.
const DIFFERENCE_MAX: f64 = 0.03;
