//! Comparison of records from several routes, as a page with tables and plots.

mod ftp;
mod transaction;

use super::{Failure, FailureKind};
use bench_kit::{plot::Plot, stats, table::Table};

/// A comparison of several routes.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Heading of the page.
    pub title: String,
    /// Main table, with one column for each route.
    pub table: Table,
    /// Second table with more detail, and its title.
    pub detail: Option<(String, Table)>,
    /// Plots of distributions and of events over time.
    pub plots: Vec<Plot>,
    /// Descriptions of the failures, one sentence each.
    pub misses: Vec<String>,
}

impl Comparison {
    /// Creates a self-contained HTML page. `conditions` describe how the records were made.
    pub fn html(&self, conditions: &[String]) -> String {
        let mut page = bench_kit::page::Page::open(&self.title);
        page.list(conditions);
        page.table("Side by side", &self.table);
        page.heading("Plots");
        page.plots(&self.plots);
        if let Some((title, table)) = &self.detail {
            page.table(title, table);
        }
        page.heading("Failures");
        if self.misses.is_empty() {
            page.paragraph("Everything succeeded.");
        } else {
            let shown = &self.misses[..self.misses.len().min(MISSES_SHOWN)];
            page.list(shown);
            if self.misses.len() > shown.len() {
                page.paragraph(&format!("And {} more.", self.misses.len() - shown.len()));
            }
        }
        page.finish()
    }
}

/// Returns a table row with one value for each route. If there are two routes, the last cell of the
/// row is the second value divided by the first value.
fn row(what: &str, values: &[Option<f64>], show: impl Fn(f64) -> String) -> Vec<String> {
    let shown = values
        .iter()
        .map(|value| value.map_or(NONE.to_owned(), &show));
    let mut row: Vec<String> = std::iter::once(what.to_owned()).chain(shown).collect();
    if let [first, second] = values {
        let ratio = first.zip(*second).map(|(first, second)| second / first);
        let ratio = ratio.filter(|ratio| ratio.is_finite());
        row.push(ratio.map_or(NONE.to_owned(), |ratio| format!("{ratio:.2}")));
    }
    row
}

/// Returns a table row with one text for each route.
fn text_row(what: &str, texts: Vec<String>) -> Vec<String> {
    let is_pair = texts.len() == 2;
    let mut row = vec![what.to_owned()];
    row.extend(texts);
    row.extend(is_pair.then(String::new));
    row
}

fn head(labels: &[&str]) -> Vec<String> {
    let mut head = vec![String::new()];
    head.extend(labels.iter().map(|&label| label.to_owned()));
    if let [first, second] = labels {
        head.push(format!("{second} / {first}"));
    }
    head
}

/// Returns table rows with the median, the mean, the 99th percentile and the maximum of a time.
fn time_rows(what: &str, times: &[Option<stats::Summary>]) -> Vec<Vec<String>> {
    let of = |part: fn(&stats::Summary) -> f64| -> Vec<Option<f64>> {
        times.iter().map(|time| time.as_ref().map(part)).collect()
    };
    vec![
        row(&format!("{what}: median"), &of(|s| s.median), seconds),
        row(&format!("{what}: mean"), &of(|s| s.mean), seconds),
        row(&format!("{what}: 99 %"), &of(|s| s.p99), seconds),
        row(&format!("{what}: most"), &of(|s| s.max), seconds),
    ]
}

fn failures(counts: &std::collections::BTreeMap<FailureKind, usize>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    let parts = counts.iter().map(|(kind, count)| format!("{count} {kind}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// Returns a text such as `99.998 % (49999 of 50000)`. A fraction below 1 is never rounded to 100
/// %.
fn share(part: usize, whole: usize) -> String {
    let percent = part as f64 * 100.0 / whole.max(1) as f64;
    let percent = if part < whole {
        percent.min(99.999)
    } else {
        percent
    };
    format!("{percent:.3} % ({part} of {whole})")
}

fn seconds(value: f64) -> String {
    match value {
        v if v < 1e-3 => format!("{:.0} us", v * 1e6),
        v if v < 1.0 => format!("{:.1} ms", v * 1e3),
        v => format!("{v:.2} s"),
    }
}

fn miss(side: &str, number: u64, failure: &Failure) -> String {
    format!("{side}, number {number}: {failure}")
}

const NONE: &str = "-";
const MISSES_SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_all_is_not_all() {
        assert_eq!(
            share(49_999_999, 50_000_000),
            "99.999 % (49999999 of 50000000)"
        );
        assert_eq!(share(5, 5), "100.000 % (5 of 5)");
        assert_eq!(share(0, 0), "0.000 % (0 of 0)");
    }

    #[test]
    fn two_ways_have_a_ratio() {
        assert_eq!(head(&["direct", "through"])[3], "through / direct");
        assert_eq!(row("x", &[Some(2.0), Some(1.0)], seconds)[3], "0.50");
        assert_eq!(
            row("x", &[None, Some(1.0)], seconds)[1..],
            ["-", "1.00 s", "-"]
        );
    }
}
