//! Filter and format of log messages. Every command has these options.

use std::{
    io::{self, IsTerminal as _},
    sync::OnceLock,
};

use clap::{ArgAction, ValueEnum};
use gatewayd::config::{LogFormat, LogLevel};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, filter::LevelFilter, fmt, layer::Layered, prelude::*, reload,
};

use crate::{exit, output};

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct LogOptions {
    /// Log more messages: -v also debug messages, -vv also trace messages
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Log only warnings and errors, and show no progress
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Log only messages that pass this filter: 'info', 'link=debug' or 'warn,relay=trace'
    #[arg(long, global = true, value_name = "FILTER", value_parser = parse_filter)]
    log: Option<String>,
    /// Write log messages in this format [default: text]
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    log_format: Option<Format>,
}

/// Format of log messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines of text on standard error
    #[default]
    Text,
    /// One JSON object per line on standard error
    Json,
    /// Entries of the systemd journal, with a field for each value
    Journald,
}

impl LogOptions {
    /// Starts logging to standard error or to the systemd journal.
    ///
    /// The function refuses `-v` together with `-q`. Clap accepts both flags if one stands before
    /// the subcommand and the other stands after the subcommand.
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
        let messages = messages(self.log_format.unwrap_or_default(), "--log-format")?;
        let (messages, form) = reload::Layer::new(messages);
        let (filter, handle) = reload::Layer::new(filter_of(&directives));
        tracing_subscriber::registry()
            .with(filter)
            .with(messages)
            .init();
        let is_default = self.log.is_none() && self.verbose == 0 && !self.quiet;
        let is_of_file = is_default && is_no_filter(environment.as_deref());
        // Each process starts its log once.
        let _ = LOG.set(Log {
            filter: handle,
            started: (!is_of_file).then_some(directives),
            form: self.log_format.is_none().then_some(form),
        });
        Ok(())
    }

    /// Returns the log filter. The first of these sources with a filter applies: `--log`, then `-v`
    /// and `-q`, then the environment, then the default. An invalid filter in the environment is
    /// ignored, because it may be for another program.
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

type Filtered = Layered<reload::Layer<EnvFilter, Registry>, Registry>;

type Messages = Box<dyn Layer<Filtered> + Send + Sync>;

/// Creates the layer that writes log messages. `place` is the name of the option or key for an
/// error message.
///
/// # Errors
/// An error with exit code 2 if the journal is not available.
fn messages(format: Format, place: &str) -> anyhow::Result<Messages> {
    let lines = fmt::layer().with_writer(io::stderr);
    Ok(match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        // The list of spans also contains the current span.
        Format::Json => lines.json().with_current_span(false).boxed(),
        Format::Journald => {
            let journal = tracing_journald::layer().map_err(|error| {
                exit::misuse(format!(
                    "{place} journald: no systemd journal takes messages on this machine: {error}; use text or json"
                ))
            })?;
            journal.boxed()
        }
    })
}

/// Changes the log format to the format of the configuration file. If the command line sets a
/// format, changes nothing.
///
/// The caller must not have an open span, because the fields of an open span are already formatted
/// in the old format.
///
/// # Errors
/// An error with exit code 2 if the journal is not available.
pub(crate) fn take_form(format: LogFormat) -> anyhow::Result<()> {
    let format = match format {
        LogFormat::Text => return Ok(()),
        LogFormat::Json => Format::Json,
        LogFormat::Journald => Format::Journald,
    };
    let form = LOG.get().and_then(|log| log.form.as_ref());
    form.map_or(Ok(()), |form| {
        Ok(form.reload(messages(format, "[log] format =")?)?)
    })
}

/// Sets the log filter from the command line or the environment. Without such a filter, uses the
/// level of the configuration file. Any temporary change by [`set`] ends.
pub(crate) fn follow(level: LogLevel) {
    let Some(log) = LOG.get() else { return };
    let of_file = || format!("{},{LIBRARIES}", level.name());
    let directives = log.started.clone().unwrap_or_else(of_file);
    if let Err(error) = log.filter.reload(filter_of(&directives)) {
        tracing::warn!(%error, "the log filter stays as it is");
    }
}

/// Changes the log filter until the next call of [`follow`].
///
/// # Errors
/// The mistake in an invalid filter.
pub(crate) fn set(text: &str) -> Result<(), String> {
    let directives = parse_filter(text)?;
    let Some(log) = LOG.get() else {
        return Err("this process keeps no log".to_owned());
    };
    // The old filter applies to this message, since the new one may suppress it.
    tracing::warn!(
        filter = directives,
        "log filter changed until the next reload or restart"
    );
    let reloaded = log.filter.reload(filter_of(&directives));
    reloaded.map_err(|error| error.to_string())
}

/// Creates a filter that never drops messages of the audit trail.
fn filter_of(directives: &str) -> EnvFilter {
    EnvFilter::new(format!("{directives},{AUDIT}"))
}

fn is_no_filter(environment: Option<&str>) -> bool {
    environment.is_none_or(|text| text.is_empty() || parse_filter(text).is_err())
}

/// Handles that change the filter and the format of this process's log.
struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
    /// Filter from the command line or the environment. `None` if the configuration file determines
    /// the filter.
    started: Option<String>,
    /// Handle that changes the format. `None` if the command line sets the format.
    form: Option<reload::Handle<Messages, Filtered>>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Checks a log filter.
///
/// The filter library treats an unknown word such as `inof` as the name of a module. It would then
/// log all messages of this module and drop all other messages. The function therefore refuses a
/// word that is not a level.
pub(crate) fn parse_filter(text: &str) -> Result<String, String> {
    // A filter with `[` is not checked, because commas also separate the fields of a span.
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

/// Filter directive that keeps messages of the audit trail. It is the last directive, because the
/// last directive for a target applies.
const AUDIT: &str = "audit=info";

/// Filter directive that drops messages of the FTP server and client in `longhaul demo`. They log
/// every aborted transfer as an error.
const LIBRARIES: &str = "libunftp=off,suppaftp=off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_beats_verbosity_beats_the_environment_beats_info() {
        let options = |log: Option<&str>, verbose, quiet| LogOptions {
            verbose,
            quiet,
            log: log.map(str::to_owned),
            log_format: None,
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
