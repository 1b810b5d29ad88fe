//! `longhaul probe transaction`: measures short requests and their replies.

use std::time::Duration;

use probe::{
    compare::Comparison,
    transaction::{self, Transaction, TransactionProbe, TransactionRequest, TransactionSummary},
};
use units::ByteCount;

use super::{
    Verdict,
    options::{ArrivalArgs, Output, parse_time, resolve},
    show,
};
use crate::exit::misuse;

/// Measure short transactions: a request and its answer, over a separate TCP connection
///
/// The probe records the time until the connection is established, and the time until the answer is
/// complete.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Address of `longhaul probe serve`, or with --request of any server: HOST:PORT
    server: String,
    #[command(flatten)]
    pub(super) exchange: ExchangeArgs,
    #[command(flatten)]
    arrive: ArrivalArgs,
    #[command(flatten)]
    output: Output,
}

/// Parameters of the exchange.
#[derive(clap::Args)]
pub(super) struct ExchangeArgs {
    /// Send this text, in which \r, \n, \t and \\ are escapes, and read until the server closes the
    /// connection
    #[arg(long, value_name = "TEXT")]
    request: Option<String>,
    /// Size of the answer that `longhaul probe serve` sends
    #[arg(
        long,
        default_value = "1000 B",
        value_name = "SIZE",
        conflicts_with = "request"
    )]
    answer: ByteCount,
    /// Abort a transaction after this time without an answer
    #[arg(long, default_value = "30s", value_parser = parse_time, value_name = "TIME")]
    timeout: Duration,
}

const EXAMPLES: &str = "\
Examples:
  longhaul probe transaction 10.77.0.2:4811 -n 1000 --arrivals 10
  longhaul probe transaction 10.77.0.2:79 --request 'root\\r\\n' -n 100

Exit codes: 0 all transactions were complete; 1 some transactions failed; 2 wrong use.";

impl ExchangeArgs {
    pub(super) fn probe(
        &self,
        server: &str,
        arrive: &ArrivalArgs,
    ) -> anyhow::Result<TransactionProbe> {
        let request = match &self.request {
            Some(text) => TransactionRequest::Bytes(unescaped(text).map_err(misuse)?),
            None => TransactionRequest::Peer {
                answer_bytes: self.answer.bytes(),
            },
        };
        Ok(TransactionProbe {
            request,
            timeout: self.timeout,
            arrivals: arrive.arrivals()?,
            ..TransactionProbe::new(resolve(server, None)?)
        })
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let probe = args.exchange.probe(&args.server, &args.arrive)?;
    let mut sink = args.output.sink(probe.arrivals.count)?;
    let add = |record: &Transaction| sink.add(record, record.failure.is_none());
    let all = transaction::run(&probe, add)?;
    sink.finish()?;
    let summary = TransactionSummary::of(all.iter());
    let text = format!("{}\n{}", probe.server, text(&summary, all.iter()));
    let comparison = Comparison::of_transactions("", &[probe.label.as_str()], &all);
    args.output.conclude(&text, &comparison.plots)?;
    Ok(Verdict::of(summary.complete == summary.tried))
}

/// Returns the summary of one route as text.
pub(super) fn text<'a>(
    summary: &TransactionSummary,
    all: impl Iterator<Item = &'a Transaction> + Clone,
) -> String {
    let text = format!(
        "transactions {} complete\nset-up       {}\ntotal        {}\n",
        show::share(summary.complete, summary.tried),
        show::times(summary.setup_s.as_ref()),
        show::times(summary.total_s.as_ref()),
    );
    let failures = all.filter_map(|transaction| transaction.failure.as_ref());
    text + &show::failures(&summary.failures, failures)
}

fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            bytes.extend(letter.to_string().bytes());
            continue;
        }
        bytes.push(match letters.next() {
            Some('r') => b'\r',
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('\\') => b'\\',
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return Err(format!(
                    "--request: \\{other} is none of \\r, \\n, \\t and \\\\"
                ));
            }
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_bytes() {
        assert_eq!(unescaped(r"a\r\n\\é"), Ok("a\r\n\\é".as_bytes().to_vec()));
        assert!(unescaped(r"a\x").is_err() && unescaped("a\\").is_err());
    }
}
