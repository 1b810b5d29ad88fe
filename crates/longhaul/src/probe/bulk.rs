//! `longhaul probe bulk`: measures the throughput of TCP transfers.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use bench_kit::{
    plot::{Axis, Plot},
    stats,
};
use clap::ValueEnum;
use probe::bulk::{self, BulkProbe, BulkSummary, BulkTransfer, Proxy};
use units::ByteCount;

use super::{
    Verdict,
    options::{ArrivalArgs, Content, Output, PeerArgs, parse_time, resolve},
    show,
};
use crate::exit::misuse;

/// Measure the throughput of TCP transfers, each confirmed by the peer
///
/// The peer runs `longhaul probe serve`. It confirms a transfer by returning the last bytes of the
/// transfer, which are random.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    peer: PeerArgs,
    /// Size of each transfer
    #[arg(long, default_value = "1 MB", value_name = "SIZE")]
    size: ByteCount,
    #[command(flatten)]
    content: Content,
    /// Connect through this proxy: socks5://HOST:PORT or http://HOST:PORT
    #[arg(long, value_name = "URL")]
    proxy: Option<String>,
    /// Abort a transfer after this time without progress
    #[arg(long, default_value = "30s", value_parser = parse_time, value_name = "TIME")]
    timeout: Duration,
    /// Write a CSV table with a line for each transfer to this file
    #[arg(long, value_name = "FILE.csv")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    arrive: ArrivalArgs,
    #[command(flatten)]
    output: Output,
}

/// Kinds of proxies through which the probe can connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Socks5,
    Http,
}

const EXAMPLES: &str = "\
Examples:
  longhaul probe bulk 10.77.0.2 --size '10 MB' -n 20
  longhaul probe bulk 127.0.0.1:2123 -n 1000 --arrivals 0.5 --csv transfers.csv
  longhaul probe bulk 10.77.0.2 --proxy socks5://127.0.0.1:1080

Exit codes: 0 the peer confirmed all transfers; 1 some transfers failed; 2 wrong use.";

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let probe = BulkProbe {
        proxy: args.proxy.as_deref().map(proxy).transpose()?,
        size: args.size,
        payload: args.content.payload(),
        timeout: args.timeout,
        arrivals: args.arrive.arrivals()?,
        ..BulkProbe::new(args.peer.address()?)
    };
    let mut sink = args.output.sink(probe.arrivals.count)?;
    let all = bulk::run(&probe, |one| sink.add(one, one.failure.is_none()))?;
    sink.finish()?;
    if let Some(path) = &args.csv {
        std::fs::write(path, csv(&all)).with_context(|| path.display().to_string())?;
    }
    let summary = BulkSummary::of(all.iter());
    let mut text = format!(
        "{}\ntransfers    {} complete\ngoodput      {}\n",
        probe.peer,
        show::share(summary.complete, summary.tried),
        rates(summary.goodput_bits_per_s.as_ref()),
    );
    text += &format!(
        "             {} until the kernel had taken everything\n",
        rates(summary.apparent_bits_per_s.as_ref())
    );
    let failed = all.iter().filter_map(|one| one.failure.as_ref());
    text += &show::failures(&summary.failures, failed);
    let values = all
        .iter()
        .filter_map(|one| Some(one.goodput_bits_per_s()? / 1e6))
        .collect();
    let samples = [("transfers".to_owned(), values)];
    let plot = Plot::cdf("End-to-end throughput", Axis::linear("Mbit/s"), &samples);
    args.output.conclude(&text, &[plot])?;
    Ok(Verdict::of(summary.complete == summary.tried))
}

fn rates(summary: Option<&stats::Summary>) -> String {
    summary.map_or("none".to_owned(), |s| {
        format!(
            "least {:.3}, median {:.3}, most {:.3} Mbit/s",
            s.min / 1e6,
            s.median / 1e6,
            s.max / 1e6
        )
    })
}

fn proxy(text: &str) -> anyhow::Result<Proxy> {
    let (kind, at) = text
        .split_once("://")
        .ok_or_else(|| misuse(format!("--proxy: {text} is not KIND://HOST:PORT")))?;
    let kind = Kind::from_str(kind, true)
        .map_err(|_| misuse(format!("--proxy: {kind} is neither socks5 nor http")))?;
    let at = resolve(at.trim_end_matches('/'), None)?;
    Ok(match kind {
        Kind::Socks5 => Proxy::Socks5(at),
        Kind::Http => Proxy::Http(at),
    })
}

fn csv(all: &[BulkTransfer]) -> String {
    let mut text = "number,begun_unix_us,connected_us,taken_us,ended_us,bytes,failure\n".to_owned();
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    for one in all {
        let failure = one.failure.as_ref().map(|failure| failure.kind.to_string());
        text += &format!(
            "{},{},{},{},{},{},{}\n",
            one.number,
            one.begun_unix_us,
            number(one.connected_us),
            number(one.taken_us),
            one.ended_us,
            one.bytes,
            failure.unwrap_or_default()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_urls() {
        let at = "127.0.0.1:1080".parse().expect("an address");
        assert_eq!(
            proxy("socks5://127.0.0.1:1080").expect("fine"),
            Proxy::Socks5(at)
        );
        assert_eq!(
            proxy("http://127.0.0.1:1080/").expect("fine"),
            Proxy::Http(at)
        );
        assert!(proxy("ftp://127.0.0.1:1").is_err() && proxy("127.0.0.1:1").is_err());
    }
}
