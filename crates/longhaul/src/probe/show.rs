//! Formatting of measured values as text.

use std::collections::BTreeMap;

use bench_kit::stats;
use probe::{Failure, FailureKind};

/// Formats times in milliseconds: minimum, median, mean, 99th percentile and maximum.
pub(super) fn times(summary: Option<&stats::Summary>) -> String {
    let Some(s) = summary else {
        return "no times".to_owned();
    };
    let ms = |seconds: f64| format!("{:.2}", seconds * 1e3);
    format!(
        "least {}, median {}, mean {}, 99 % {}, most {} ms",
        ms(s.min),
        ms(s.median),
        ms(s.mean),
        ms(s.p99),
        ms(s.max)
    )
}

/// Formats a share in the form `99.80 % (499 of 500)`.
pub(super) fn share(part: usize, whole: usize) -> String {
    let percent = part as f64 * 100.0 / whole.max(1) as f64;
    // A share of 99.996 % must not be rounded to 100 %, because some attempts failed.
    let percent = if part < whole {
        percent.min(99.99)
    } else {
        percent
    };
    format!("{percent:.2} % ({part} of {whole})")
}

/// Returns one line for each kind of failure, with its count and an example.
pub(super) fn failures<'a>(
    counts: &BTreeMap<FailureKind, usize>,
    all: impl Iterator<Item = &'a Failure> + Clone,
) -> String {
    if counts.is_empty() {
        return "failures     none\n".to_owned();
    }
    let mut text = String::new();
    for (kind, count) in counts {
        let example = all.clone().find(|failure| failure.kind == *kind);
        let words = example.map(|f| format!("{}: {}", f.during, f.detail));
        text += &format!(
            "failures     {count} {kind}, such as {}\n",
            words.unwrap_or_default()
        );
    }
    text
}
