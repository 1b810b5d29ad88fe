//! Options and outputs that the kinds of measurements share.

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
use indicatif::{ProgressBar, ProgressStyle};
use probe::Arrivals;

use crate::{laboratory::drawn_file, output};

/// How many, and when.
#[derive(clap::Args)]
pub(super) struct Arrive {
    /// How many are tried
    #[arg(short = 'n', long, default_value_t = 1, value_name = "NUMBER")]
    pub(super) count: u64,
    /// Mean arrivals per second, at random (Poisson) [default: each when there is a place]
    #[arg(long, value_name = "PER_SECOND")]
    pub(super) rate: Option<f64>,
    /// Most at once; with --rate 1000 by default, else 1
    #[arg(long, value_name = "NUMBER")]
    pub(super) at_once: Option<usize>,
    /// Of the arrivals: the same seed makes the same intervals
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(super) seed: u64,
}

/// Where results go.
#[derive(clap::Args)]
pub(super) struct Output {
    /// Print a line of JSON for each record instead of the summary
    #[arg(long)]
    pub(super) json: bool,
    /// Write a line of JSON for each record to a file
    #[arg(long, value_name = "FILE.jsonl")]
    pub(super) out: Option<PathBuf>,
    /// Write the plot to a file
    #[arg(long, value_name = "FILE.svg", value_parser = drawn_file)]
    pub(super) plot: Option<PathBuf>,
}

/// The command makes no sense as it was given: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct WrongUse(pub(super) String);

/// Records on their way out, with progress on a terminal.
pub(super) struct Sink {
    file: Option<BufWriter<File>>,
    is_json: bool,
    bar: ProgressBar,
    failed: u64,
    error: Option<anyhow::Error>,
}

impl Arrive {
    pub(super) fn arrivals(&self) -> anyhow::Result<Arrivals> {
        let default = if self.rate.is_some() { 1000 } else { 1 };
        let arrivals = Arrivals {
            count: self.count,
            rate_per_s: self.rate,
            seed: self.seed,
            at_once: self.at_once.unwrap_or(default),
        };
        arrivals.validate().map_err(wrong_use)?;
        Ok(arrivals)
    }
}

impl Output {
    /// Opens what records go to.
    pub(super) fn sink(&self, count: u64) -> anyhow::Result<Sink> {
        let create = |path: &PathBuf| {
            let file = File::create(path).with_context(|| path.display().to_string());
            file.map(BufWriter::new)
        };
        let bar = ProgressBar::new(count);
        let template = "{pos} of {len}, {elapsed} gone, {eta} left{msg}";
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

    /// Prints the summary, unless records were printed, with the first plot; all go to the file.
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

/// Writes each plot to a file of its own, the first one to `path`.
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
    /// Keeps a record. That it cannot is told at the end, so that measuring goes on.
    pub(super) fn add(&mut self, record: &impl serde::Serialize, is_good: bool) {
        let line = serde_json::to_string(record).expect("a record is plain values");
        let written = match &mut self.file {
            Some(file) => writeln!(file, "{line}").context("writing records"),
            None => Ok(()),
        };
        let printed = match self.is_json {
            true => output::print(&format!("{line}\n")),
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

    /// Shows how far a single long measurement is.
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

/// Resolves `HOST`, `HOST:PORT` or `[IPv6]:PORT`.
pub(super) fn resolve(text: &str, default_port: Option<u16>) -> anyhow::Result<SocketAddr> {
    let unknown = |error: &dyn fmt::Display| wrong_use(format!("{text}: {error}"));
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.starts_with('['))
    });
    let host = text.trim_start_matches('[').trim_end_matches(']');
    let found = match (has_port, default_port) {
        (true, _) => text.to_socket_addrs(),
        (false, Some(port)) => (host, port).to_socket_addrs(),
        (false, None) => return Err(unknown(&"a port is missing: HOST:PORT")),
    };
    let mut found = found.map_err(|error| unknown(&error))?;
    found
        .next()
        .ok_or_else(|| unknown(&"the name has no address"))
}

pub(super) fn wrong_use(error: impl fmt::Display) -> anyhow::Error {
    WrongUse(error.to_string()).into()
}

/// A time above zero, for the command line.
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

/// The longest test or pause.
const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_a_day() {
        assert_eq!(parse_time("3600s"), Ok(Duration::from_secs(3600)));
        assert!(parse_time("86401s").is_err() && parse_time("0s").is_err());
    }

    #[test]
    fn addresses_may_lack_the_usual_port() {
        let of = |text: &str| resolve(text, Some(21)).map(|at| at.to_string());
        assert_eq!(of("127.0.0.1").expect("fine"), "127.0.0.1:21");
        assert_eq!(of("127.0.0.1:2121").expect("fine"), "127.0.0.1:2121");
        assert_eq!(of("::1").expect("fine"), "[::1]:21");
        assert_eq!(of("[::1]:2121").expect("fine"), "[::1]:2121");
        let error = resolve("127.0.0.1", None).expect_err("no port");
        assert!(error.downcast_ref::<WrongUse>().is_some(), "{error}");
    }
}
