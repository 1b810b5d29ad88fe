//! What is logged: the options that every command has.

use std::{io::IsTerminal as _, sync::OnceLock};

use clap::ArgAction;
use gateway::config::LogLevel;
use tracing_subscriber::{EnvFilter, Registry, filter::LevelFilter, prelude::*, reload};

use crate::{exit, output};

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Options {
    /// Log more: -v for debug, -vv for trace
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Log warnings and errors only, and show no progress
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Log what a filter lets through: 'info', 'link=debug' or 'warn,gateway=trace'
    #[arg(long, global = true, value_name = "FILTER", value_parser = parse_filter)]
    log: Option<String>,
}

impl Options {
    /// Sends log messages to standard error from now on.
    ///
    /// Refuses `-v` together with `-q`. Clap would not see that one of the two stands before the subcommand
    /// and the other behind it.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        exit::ensure(
            self.verbose == 0 || !self.quiet,
            "-v and -q contradict each other; give one of them",
        )?;
        if self.quiet {
            output::be_quiet();
        }
        let environment = std::env::var(EnvFilter::DEFAULT_ENV).ok();
        let directives = self.directives(environment.as_deref());
        let (filter, handle) = reload::Layer::new(EnvFilter::new(directives));
        let messages = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal());
        tracing_subscriber::registry()
            .with(filter)
            .with(messages)
            .init();
        let is_default = self.log.is_none() && self.verbose == 0 && !self.quiet;
        if is_default && is_no_filter(environment.as_deref()) {
            // Each process starts its log once.
            let _ = FILTER.set(handle);
        }
        Ok(())
    }

    /// The filter: by `--log`, or by `-v` and `-q`, or by the environment, or the default. An environment
    /// that is no filter was not meant for us.
    fn directives(&self, environment: Option<&str>) -> String {
        let environment = environment.filter(|text| !text.is_empty());
        let environment = environment.filter(|text| parse_filter(text).is_ok());
        let own = |level: &str| format!("{level},{LIBRARIES}");
        match (&self.log, self.verbose, self.quiet, environment) {
            (Some(log), ..) => log.clone(),
            (None, 1, ..) => own("debug"),
            (None, 2.., ..) => own("trace"),
            (None, _, true, _) => own("warn"),
            (None, _, false, Some(environment)) => environment.to_owned(),
            (None, _, false, None) => own("info"),
        }
    }
}

/// Logs by the level of a configuration file from now on, unless the command line or the environment says
/// what is logged.
pub(crate) fn follow(level: Option<LogLevel>) {
    let level = level.map_or("info", LogLevel::name);
    if let Some(filter) = FILTER.get() {
        let fresh = EnvFilter::new(format!("{level},{LIBRARIES}"));
        if let Err(error) = filter.reload(fresh) {
            tracing::warn!(%error, "the level of the log stays as it is");
        }
    }
}

fn is_no_filter(environment: Option<&str>) -> bool {
    environment.is_none_or(|text| text.is_empty() || parse_filter(text).is_err())
}

/// The filter, where a configuration file may change it.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// A filter that says what it lets through. To the library a bare word such as `inof` is a part of the program,
/// of which everything is logged: a misspelled level would silence all others.
fn parse_filter(text: &str) -> Result<String, String> {
    // The fields of a span have commas of their own.
    let words = text.split(',').filter(|_| !text.contains('['));
    for word in words.map(str::trim).filter(|word| !word.contains('=')) {
        if word.is_empty() || word.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "{word:?} is no level such as \"debug\"; a part of the program needs one: \"link=debug\""
            ));
        }
    }
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The demonstration's FTP server and client: every transfer that is cut off is an error to them.
const LIBRARIES: &str = "libunftp=off,suppaftp=off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_beats_verbosity_beats_the_environment_beats_info() {
        let options = |log: Option<&str>, verbose, quiet| Options {
            verbose,
            quiet,
            log: log.map(str::to_owned),
        };
        for (options, environment, expected) in [
            (
                options(Some("link=trace"), 0, true),
                Some("error"),
                "link=trace",
            ),
            (options(None, 1, false), Some("error"), "debug"),
            (options(None, 2, false), None, "trace"),
            (options(None, 7, false), None, "trace"),
            (options(None, 0, true), Some("error"), "warn"),
            (options(None, 0, false), Some("link=debug"), "link=debug"),
            (options(None, 0, false), Some("link=loud"), "info"),
            (options(None, 0, false), Some("loud"), "info"),
            (options(None, 0, false), Some(""), "info"),
            (options(None, 0, false), None, "info"),
        ] {
            let directives = options.directives(environment);
            let level = directives.split(',').next();
            assert_eq!(level, Some(expected), "{options:?} {environment:?}");
        }
    }
}
