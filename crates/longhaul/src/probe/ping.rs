//! `longhaul probe ping`: measures round-trip time, jitter and loss.

use std::time::Duration;

use bench_kit::plot::{Axis, Mark, Plot, Series};
use probe::ping::{self, Ping, PingMethod, PingProbe, PingSummary};

use super::{
    PEER_PORT, Verdict,
    options::{Output, parse_payload, parse_time, resolve},
    show,
};

/// Measure round-trip time, jitter and loss
///
/// The probe sends UDP datagrams to `longhaul probe serve`. With --tcp it instead connects to any
/// open TCP port.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Address of `longhaul probe serve`, or with --tcp of any open TCP port: HOST:PORT
    target: String,
    /// Open TCP connections instead of sending UDP datagrams
    #[arg(long)]
    tcp: bool,
    /// Number of probes to send
    #[arg(short = 'n', long, default_value_t = 10, value_name = "NUMBER",
        value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Time between two probes
    #[arg(long, default_value = "1s", value_parser = parse_time, value_name = "TIME")]
    interval: Duration,
    /// Count a probe as lost after this time without an answer
    #[arg(long, default_value = "5s", value_parser = parse_time, value_name = "TIME")]
    timeout: Duration,
    /// UDP payload of each datagram
    #[arg(
        long,
        default_value = "64 B",
        value_parser = parse_payload,
        conflicts_with = "tcp",
        value_name = "SIZE"
    )]
    size: u16,
    #[command(flatten)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  longhaul probe ping 10.77.0.2:4811 -n 100 --interval 100ms
  longhaul probe ping ftp.example.org:21 --tcp

Exit codes: 0 at least one answer arrived; 1 no answer arrived; 2 wrong use.";

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let probe = PingProbe {
        by: if args.tcp {
            PingMethod::Tcp
        } else {
            PingMethod::Udp
        },
        count: args.count,
        interval: args.interval,
        timeout: args.timeout,
        payload_bytes: args.size,
        ..PingProbe::new(resolve(&args.target, (!args.tcp).then_some(PEER_PORT))?)
    };
    let mut sink = args.output.sink(args.count)?;
    let pings = ping::run(&probe, |ping| sink.add(ping, ping.rtt_us.is_some()))?;
    sink.finish()?;
    let summary = PingSummary::of(&pings);
    let mut text = format!(
        "{}\nanswers      {}\nround trip   {}\n",
        probe.target,
        show::share(summary.sent - summary.lost, summary.sent),
        show::times(summary.rtt_s.as_ref()),
    );
    if let Some(jitter) = summary.jitter_s {
        text += &format!("jitter       {:.3} ms from one to the next\n", jitter * 1e3);
    }
    if summary.duplicates > 0 {
        text += &format!("duplicates   {}\n", summary.duplicates);
    }
    if let Some(failure) = pings.iter().find_map(|ping| ping.failure.as_ref()) {
        text += &format!("failures     such as {failure}\n");
    }
    args.output.conclude(&text, &plots(&pings))?;
    Ok(Verdict::of(summary.lost < summary.sent))
}

fn plots(pings: &[Ping]) -> Vec<Plot> {
    let first = pings.first().map_or(0, |ping| ping.sent_unix_us);
    let times = pings.iter().filter_map(|ping| {
        let at_s = (ping.sent_unix_us.saturating_sub(first)) as f64 / 1e6;
        Some((at_s, ping.rtt_us? as f64 / 1e3))
    });
    let times: Vec<_> = times.collect();
    let samples = vec![(
        "round trips".to_owned(),
        times.iter().map(|point| point.1).collect(),
    )];
    let over_time = Plot {
        title: "Round-trip time".to_owned(),
        x: Axis::linear("seconds"),
        y: Axis::linear("ms"),
        series: vec![Series {
            label: "round trips".to_owned(),
            points: times,
            mark: Mark::Points,
        }],
    };
    vec![
        over_time,
        Plot::cdf("Round-trip time", Axis::linear("ms"), &samples),
    ]
}
