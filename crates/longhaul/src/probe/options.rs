//! Options and output of all kinds of measurements.

use std::{
    fmt,
    fs::File,
    io::{BufWriter, Write},
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context;
use bench_kit::plot::Plot;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use probe::{Arrivals, Payload};
use units::ByteCount;

use super::PEER_PORT;
use crate::{
    exit::{misuse, wrong_use},
    laboratory::drawn_file,
    output,
};

/// Options for a `longhaul probe serve`.
#[derive(clap::Args)]
pub(super) struct PeerArgs {
    /// Address of `longhaul probe serve`, or of a gateway's listener for it: HOST or HOST:PORT
    peer: String,
    /// Connect to this port of the peer [default: 4811]
    #[arg(short, long, value_name = "PORT")]
    port: Option<u16>,
}

/// Duration and direction of a test.
#[derive(clap::Args)]
pub(super) struct SendArgs {
    /// Reverse the direction: the peer sends, and this machine receives
    #[arg(short = 'R', long)]
    pub(super) reverse: bool,
    /// Send for this time: 20s; a number without a unit is in seconds
    #[arg(short, long, default_value = "10s", value_parser = parse_seconds, value_name = "TIME")]
    pub(super) time: Duration,
    /// Wait for the peer at most this time
    #[arg(long, default_value = "10s", value_parser = parse_time, value_name = "TIME")]
    pub(super) timeout: Duration,
}

/// Content of the transfers.
#[derive(clap::Args)]
pub(super) struct Content {
    /// Content of transfers; through gateways that compress, only random content measures the path
    #[arg(long, default_value = "random", value_name = "KIND")]
    content: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Random bytes, which cannot be compressed; new in each run
    Random,
    /// Lines of text; new in each run
    Text,
    /// Zero bytes
    Zeros,
}

impl Content {
    pub(super) fn payload(&self) -> Payload {
        match self.content {
            Kind::Random => Payload::Random,
            Kind::Text => Payload::Text,
            Kind::Zeros => Payload::Zeros,
        }
    }
}

/// Number and times of the tries.
#[derive(clap::Args)]
pub(super) struct ArrivalArgs {
    /// Number of attempts
    #[arg(short = 'n', long, default_value_t = 1, value_name = "NUMBER")]
    pub(super) count: u64,
    /// Start this number of attempts per second on average, at random times (Poisson process)
    /// [default: one attempt after the other]
    // The earlier name --rate now stands for a bit rate.
    #[arg(long, alias = "rate", value_parser = parse_arrivals, value_name = "PER_SECOND")]
    pub(super) arrivals: Option<f64>,
    /// Maximum number of attempts at the same time [default: 1000 with --arrivals, otherwise 1]
    #[arg(long, value_name = "NUMBER")]
    pub(super) at_once: Option<usize>,
    /// Seed of the random start times; the same seed gives the same intervals
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(super) seed: u64,
}

/// Destination of results.
#[derive(clap::Args)]
pub(super) struct Output {
    /// Print each record as a line of JSON instead of the summary
    #[arg(short = 'J', long)]
    pub(super) json: bool,
    /// Write each record as a line of JSON to this file
    #[arg(long, value_name = "FILE.jsonl")]
    pub(super) out: Option<PathBuf>,
    /// Write a plot of the results to this file
    #[arg(long, value_name = "FILE.svg", value_parser = drawn_file)]
    pub(super) plot: Option<PathBuf>,
}

/// Writes records to a file or standard output, and shows progress on a terminal.
pub(super) struct Sink {
    file: Option<BufWriter<File>>,
    is_json: bool,
    bar: ProgressBar,
    failed: u64,
    error: Option<anyhow::Error>,
}

impl PeerArgs {
    pub(super) fn address(&self) -> anyhow::Result<SocketAddr> {
        match self.port {
            Some(_) if has_port(&self.peer) => {
                Err(misuse(format!("{} and --port both name a port", self.peer)))
            }
            port => resolve(&self.peer, port.or(Some(PEER_PORT))),
        }
    }
}

impl ArrivalArgs {
    pub(super) fn arrivals(&self) -> anyhow::Result<Arrivals> {
        let default = if self.arrivals.is_some() { 1000 } else { 1 };
        let arrivals = Arrivals {
            count: self.count,
            rate_per_s: self.arrivals,
            seed: self.seed,
            at_once: self.at_once.unwrap_or(default),
        };
        arrivals.validate().map_err(wrong_use)?;
        Ok(arrivals)
    }
}

impl Output {
    /// Creates the writer of records. `count` is the number of expected records.
    pub(super) fn sink(&self, count: u64) -> anyhow::Result<Sink> {
        let create = |path: &PathBuf| {
            let file = File::create(path).with_context(|| path.display().to_string());
            file.map(BufWriter::new)
        };
        let bar = output::progress(count);
        let template = "{pos} of {len}, {elapsed} elapsed, {eta} left{msg}";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        bar.enable_steady_tick(Duration::from_millis(500));
        Ok(Sink {
            file: self.out.as_ref().map(create).transpose()?,
            is_json: self.json,
            bar,
            failed: 0,
            error: None,
        })
    }

    /// Prints the summary and the first plot, unless the records were printed as JSON. With
    /// `--plot`, also writes all plots to files.
    pub(super) fn conclude(&self, summary: &str, plots: &[Plot]) -> anyhow::Result<()> {
        if let Some(path) = &self.plot {
            write_svgs(path, plots)?;
        }
        if self.json {
            return Ok(());
        }
        let plot = plots.first().map(|plot| plot.text(72, 16));
        output::print(&format!("{summary}{}", plot.unwrap_or_default()))
    }
}

/// Writes each plot to a separate file. The first plot goes to `path`.
fn write_svgs(path: &std::path::Path, plots: &[Plot]) -> anyhow::Result<()> {
    for (index, plot) in plots.iter().enumerate() {
        let path = match index {
            0 => path.to_owned(),
            _ => path.with_extension(format!("{}.svg", index + 1)),
        };
        std::fs::write(&path, plot.svg()).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

impl Sink {
    /// Writes a record. Reports a write error only at the end, so that the measurement continues.
    pub(super) fn add(&mut self, record: &impl serde::Serialize, is_good: bool) {
        let line = output::json(record);
        let written = match &mut self.file {
            Some(file) => file.write_all(line.as_bytes()).context("writing records"),
            None => Ok(()),
        };
        let printed = match self.is_json {
            true => output::print(&line),
            false => Ok(()),
        };
        if let Err(error) = written.and(printed) {
            self.error.get_or_insert(error);
        }
        self.failed += u64::from(!is_good);
        if self.failed > 0 {
            self.bar.set_message(format!(", {} failed", self.failed));
        }
        self.bar.inc(1);
    }

    /// Shows a text about the progress of a long measurement.
    pub(super) fn say(&self, text: &str) {
        self.bar.set_message(format!(", {text}"));
    }

    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        if let Some(file) = &mut self.file {
            file.flush().context("writing records")?;
        }
        self.error.map_or(Ok(()), Err)
    }
}

/// Resolves a text of the form `HOST`, `HOST:PORT` or `[IPv6]:PORT` to an address.
pub(super) fn resolve(text: &str, default_port: Option<u16>) -> anyhow::Result<SocketAddr> {
    let unknown = |error: &dyn fmt::Display| misuse(format!("{text}: {error}"));
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let host = text.trim_start_matches('[').trim_end_matches(']');
    let found = match (has_port(text), default_port) {
        (true, _) => text.to_socket_addrs(),
        (false, Some(port)) => (host, port).to_socket_addrs(),
        (false, None) => return Err(unknown(&"a port is missing: HOST:PORT")),
    };
    let mut found = found.map_err(|error| unknown(&error))?;
    found
        .next()
        .ok_or_else(|| unknown(&"the name has no address"))
}

/// Whether a text has the form `HOST:PORT` or `[IPv6]:PORT`.
fn has_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.starts_with('['))
    })
}

/// Parses a time like [`parse_time`]. A number without a unit is in seconds, as in iperf3.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.trim().parse::<f64>() {
        Ok(_) => parse_time(&format!("{text} s")),
        Err(_) => parse_time(text),
    }
}

/// Parses a number of arrivals per second.
fn parse_arrivals(text: &str) -> Result<f64, String> {
    let expected = || format!("{text:?} is not a number of arrivals a second such as \"0.5\"");
    text.trim().parse().map_err(|_| expected())
}

/// Parses the size of a datagram's payload, and returns it in bytes.
pub(super) fn parse_payload(text: &str) -> Result<u16, String> {
    let size: ByteCount = text.parse().map_err(|error| format!("{error}"))?;
    let bytes = u16::try_from(size.bytes()).ok();
    let bytes = bytes.filter(|bytes| (1..=PAYLOAD_MAX_BYTES).contains(bytes));
    bytes.ok_or_else(|| format!("a datagram carries from 1 to {PAYLOAD_MAX_BYTES} bytes"))
}

/// Parses a time above zero from the command line.
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    let time = units::parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() {
        return Err("a time above zero is needed".to_owned());
    }
    if time > TIME_MAX {
        return Err("at most a day is possible".to_owned());
    }
    Ok(time)
}

/// Maximum payload of a UDP datagram: 65,535 bytes minus the headers of IPv4 and UDP.
const PAYLOAD_MAX_BYTES: u16 = 65_507;

/// Maximum duration of a test or a pause.
const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_a_day() {
        assert_eq!(parse_time("3600s"), Ok(Duration::from_secs(3600)));
        assert!(parse_time("86401s").is_err() && parse_time("0s").is_err());
        assert_eq!(parse_seconds("2"), parse_time("2s"));
        assert_eq!(parse_seconds("2 min"), parse_time("120s"));
        assert!(parse_time("2").is_err() && parse_seconds("0").is_err());
    }

    #[test]
    fn a_datagram_is_as_large_as_a_size_says() {
        assert_eq!(parse_payload("1472"), Ok(1472));
        assert_eq!(parse_payload("1 KiB"), Ok(1024));
        for text in ["0", "65508", "1 MB", "5 Mbit"] {
            assert!(parse_payload(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_is_named_once() {
        let at = |peer: &str, port| {
            let peer = peer.to_owned();
            PeerArgs { peer, port }.address().map(|at| at.to_string())
        };
        assert_eq!(at("127.0.0.1", None).expect("fine"), "127.0.0.1:4811");
        assert_eq!(at("::1", Some(5201)).expect("fine"), "[::1]:5201");
        assert_eq!(at("[::1]:7", None).expect("fine"), "[::1]:7");
        let error = at("127.0.0.1:7", Some(8)).expect_err("two ports");
        assert!(error.to_string().contains("both name a port"), "{error}");
    }

    #[test]
    fn addresses_may_lack_the_usual_port() {
        let of = |text: &str| resolve(text, Some(21)).map(|at| at.to_string());
        assert_eq!(of("127.0.0.1").expect("fine"), "127.0.0.1:21");
        assert_eq!(of("127.0.0.1:2121").expect("fine"), "127.0.0.1:2121");
        assert_eq!(of("::1").expect("fine"), "[::1]:21");
        assert_eq!(of("[::1]:2121").expect("fine"), "[::1]:2121");
        let error = resolve("127.0.0.1", None).expect_err("no port");
        assert!(error.to_string().contains("a port is missing"), "{error}");
    }
}
