//! Comparison of short transactions over several routes.

use super::{Comparison, failures, head, miss, share, text_row, time_rows};
use crate::transaction::{Transaction, TransactionSummary};
use bench_kit::{
    plot::{Axis, Plot},
    table::Table,
};

impl Comparison {
    /// Compares transactions. The field `side` of each transaction contains one of `labels`.
    pub fn of_transactions(title: &str, labels: &[&str], all: &[Transaction]) -> Self {
        let of_side =
            |label: &&str| TransactionSummary::of(all.iter().filter(|one| one.side == **label));
        let summaries: Vec<TransactionSummary> = labels.iter().map(of_side).collect();
        let texts = |of: &dyn Fn(&TransactionSummary) -> String| summaries.iter().map(of).collect();
        let mut rows = vec![
            text_row("complete", texts(&|s| share(s.complete, s.tried))),
            text_row("failures", texts(&|s| failures(&s.failures))),
        ];
        let setup: Vec<_> = summaries.iter().map(|s| s.setup_s).collect();
        rows.extend(time_rows("set-up", &setup));
        let total: Vec<_> = summaries.iter().map(|s| s.total_s).collect();
        rows.extend(time_rows("total", &total));
        let failed = all.iter().filter_map(|one| {
            let failure = one.failure.as_ref()?;
            Some(miss(&one.side, one.number, failure))
        });
        Self {
            title: title.to_owned(),
            table: Table {
                head: head(labels),
                rows,
            },
            detail: None,
            plots: plots(labels, all),
            misses: failed.collect(),
        }
    }
}

fn plots(labels: &[&str], all: &[Transaction]) -> Vec<Plot> {
    let samples = |of: fn(&Transaction) -> Option<f64>| -> Vec<(String, Vec<f64>)> {
        let of_way = |label: &&str| {
            let mine = all.iter().filter(|one| one.side == **label);
            ((*label).to_owned(), mine.filter_map(of).collect())
        };
        labels.iter().map(of_way).collect()
    };
    vec![
        Plot::cdf(
            "Time of transactions, from the first packet to the end",
            Axis::logarithmic("seconds"),
            &samples(Transaction::total_seconds),
        ),
        Plot::cdf(
            "Time until the connection is up",
            Axis::logarithmic("seconds"),
            &samples(Transaction::setup_seconds),
        ),
    ]
}
