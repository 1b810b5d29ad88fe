//! Changes of a WAN at given times, read from a TOML file.
//!
//! The file contains `[[step]]` sections. Each step has a time `at` and a `direction`, which
//! defaults to both directions. It also has the settings of the command `longhaul wan set`, except
//! profiles and interfaces.

use std::{
    fmt, fs,
    ops::Range,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use toml::Spanned;
use units::ByteCount;

use super::{
    change::{self, PathChange},
    config::Direction,
    error::WanError,
};

/// Changes of a WAN, sorted by time.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// Steps of the script, at least one.
    pub steps: Vec<TimedChange>,
}

/// A change at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedChange {
    /// Time since the start of the script.
    pub at: Duration,
    /// Directions whose settings change.
    pub directions: Vec<Direction>,
    /// New values of the settings.
    pub change: PathChange,
    /// Text of the settings in the file.
    text: String,
}

/// Error in a script, with its position.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("reading {file}")]
    Unreadable {
        /// Path of the file.
        file: String,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The text is not a valid script.
    #[error("{file}:{line}:{column}: {message}")]
    Wrong {
        /// Path of the file.
        file: String,
        /// Line of the error, counted from 1.
        line: usize,
        /// Column of the error in characters, counted from 1.
        column: usize,
        /// Message that states the expected form.
        message: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile {
    #[serde(default, rename = "step")]
    steps: Vec<ScriptSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptSection {
    at: Spanned<String>,
    direction: Option<Spanned<String>>,
    rate: Option<Spanned<String>>,
    rtt: Option<Spanned<String>>,
    delay: Option<Spanned<String>>,
    queue: Option<Spanned<String>>,
    jitter: Option<Spanned<String>>,
    loss: Option<Spanned<String>>,
    burst_loss: Option<Spanned<String>>,
    corrupt: Option<Spanned<String>>,
    reorder: Option<Spanned<String>>,
    duplicate: Option<Spanned<String>>,
    outage: Option<Spanned<String>>,
    mtu: Option<Spanned<String>>,
}

type ScriptProblem = (Range<usize>, String);

impl Script {
    /// Reads and checks the script in a file.
    ///
    /// # Errors
    /// [`ScriptError`] for the first error in the script.
    pub fn read(path: &Path) -> Result<Self, ScriptError> {
        let text = fs::read_to_string(path).map_err(|source| ScriptError::Unreadable {
            file: path.display().to_string(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Parses and checks the text of a script. `path` appears in error messages.
    ///
    /// # Errors
    /// [`ScriptError::Wrong`] for the first error in the script.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ScriptError> {
        let wrong = |(span, message): ScriptProblem| {
            let before = text.get(..span.start).unwrap_or(text);
            let line_start = before.rfind('\n').map_or(0, |at| at + 1);
            ScriptError::Wrong {
                file: path.display().to_string(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message,
            }
        };
        let file: ScriptFile = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            wrong((span, error.message().replace('`', "\"")))
        })?;
        let mut steps: Vec<TimedChange> = Vec::new();
        for section in file.steps {
            let at = section.at.span();
            let step = TimedChange::of(section).map_err(wrong)?;
            if steps.last().is_some_and(|before| before.at > step.at) {
                let message = "expected a time not before that of the step before";
                return Err(wrong((at, message.to_owned())));
            }
            steps.push(step);
        }
        if steps.is_empty() {
            return Err(wrong((0..0, "expected at least one [[step]]".to_owned())));
        }
        Ok(Self { steps })
    }

    /// Waits for the time of each step, and then calls `apply` with the step.
    ///
    /// # Errors
    /// The first error of `apply`. Later steps are not applied.
    pub fn run<E>(&self, mut apply: impl FnMut(&TimedChange) -> Result<(), E>) -> Result<(), E> {
        let start = Instant::now();
        for step in &self.steps {
            thread::sleep((start + step.at).saturating_duration_since(Instant::now()));
            apply(step)?;
        }
        Ok(())
    }
}

impl TimedChange {
    fn of(section: ScriptSection) -> Result<Self, ScriptProblem> {
        let mut written = Vec::new();
        let directions = match section
            .direction
            .as_ref()
            .map(|text| text.get_ref().as_str())
        {
            None | Some("both") => Direction::BOTH.to_vec(),
            Some(_) => {
                read(&section.direction, |text| Ok(vec![text.parse()?]))?.unwrap_or_default()
            }
        };
        if let Some(rtt) = &section.rtt
            && directions.len() < 2
        {
            let message = "rtt concerns both directions; delay is for one";
            return Err((rtt.span(), message.to_owned()));
        }
        for (name, value) in [
            ("rate", &section.rate),
            ("rtt", &section.rtt),
            ("delay", &section.delay),
            ("queue", &section.queue),
            ("jitter", &section.jitter),
            ("loss", &section.loss),
            ("burst loss", &section.burst_loss),
            ("corrupt", &section.corrupt),
            ("reorder", &section.reorder),
            ("duplicate", &section.duplicate),
            ("outage", &section.outage),
            ("mtu", &section.mtu),
        ] {
            written.extend(
                value
                    .as_ref()
                    .map(|value| format!("{name} {}", value.get_ref())),
            );
        }
        let span = section.at.span();
        if written.is_empty() {
            return Err((span, "this step changes nothing".to_owned()));
        }
        let change = PathChange {
            rate: read(&section.rate, change::parse_rate)?,
            rtt: read(&section.rtt, change::parse_delay)?,
            delay: read(&section.delay, change::parse_delay)?,
            queue: read(&section.queue, parse_size)?,
            jitter: read(&section.jitter, change::parse_jitter)?,
            loss: read(&section.loss, change::parse_share)?,
            bursts: read(&section.burst_loss, change::parse_bursts)?,
            corruption: read(&section.corrupt, change::parse_share)?,
            reordering: read(&section.reorder, change::parse_reordering)?,
            duplication: read(&section.duplicate, change::parse_share)?,
            outage: read(&section.outage, parse_switch)?,
            mtu: read(&section.mtu, parse_bytes)?,
        };
        Ok(Self {
            at: read(&Some(section.at), change::parse_span)?.unwrap_or_default(),
            directions,
            change,
            text: written.join(", "),
        })
    }
}

impl fmt::Display for TimedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.directions[..] {
            [one] => one.to_string(),
            _ => "both".to_owned(),
        };
        let at = self.at.as_secs_f64();
        write!(f, "{at:>8.3} s  {direction:<6}  {}", self.text)
    }
}

fn read<T>(
    value: &Option<Spanned<String>>,
    read: impl Fn(&str) -> Result<T, WanError>,
) -> Result<Option<T>, ScriptProblem> {
    let one = |text: &Spanned<String>| {
        read(text.get_ref()).map_err(|error| (text.span(), error.to_string()))
    };
    value.as_ref().map(one).transpose()
}

fn parse_size(text: &str) -> Result<ByteCount, WanError> {
    text.parse()
        .map_err(|error| WanError::Invalid(format!("{error}")))
}

fn parse_switch(text: &str) -> Result<bool, WanError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(WanError::Invalid(format!(
            "{text:?} is not \"on\" or \"off\""
        ))),
    }
}

fn parse_bytes(text: &str) -> Result<usize, WanError> {
    text.parse()
        .map_err(|_| WanError::Invalid(format!("{text:?} is not a number of bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Script, String> {
        Script::parse(text, Path::new("x.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn steps_change_what_they_name_and_nothing_else() {
        let script = parse(
            "[[step]]\nat = \"500ms\"\noutage = \"on\"\n\n\
             [[step]]\nat = \"2 s\"\ndirection = \"b-to-a\"\nloss = \"1%\"\nrate = \"unlimited\"\n",
        )
        .expect("a script");
        let [first, second] = &script.steps[..] else {
            panic!("two steps: {script:?}")
        };
        assert_eq!(first.at, Duration::from_millis(500));
        assert_eq!(first.directions, Direction::BOTH);
        let outage = PathChange {
            outage: Some(true),
            ..PathChange::default()
        };
        assert_eq!(first.change, outage);
        assert_eq!(second.directions, [Direction::BToA]);
        assert_eq!(
            (second.change.loss, second.change.rate),
            (Some(0.01), Some(None))
        );
        assert_eq!(
            second.to_string(),
            "   2.000 s  b-to-a  rate unlimited, loss 1%"
        );
    }

    #[test]
    fn errors_have_their_position() {
        for (text, place, part) in [
            ("", "1:1", "at least one"),
            (
                "[[step]]\nat = \"1s\"\nloss = \"0.1\"",
                "3:8",
                "such as \"0.1%\"",
            ),
            (
                "[[step]]\nat = \"1s\"\nlos = \"0.1%\"",
                "3:1",
                "unknown field",
            ),
            (
                "[[step]]\nat = \"soon\"\nloss = \"1%\"",
                "2:6",
                "is not a duration",
            ),
            ("[[step]]\nat = \"1s\"", "2:6", "changes nothing"),
            (
                "[[step]]\nat = \"1s\"\noutage = \"yes\"",
                "3:10",
                "\"on\" or \"off\"",
            ),
            (
                "[[step]]\nat = \"1s\"\ndirection = \"up\"\nmtu = \"9\"",
                "3:13",
                "a-to-b",
            ),
            (
                "[[step]]\nat = \"1s\"\ndirection = \"a-to-b\"\nrtt = \"1ms\"",
                "4:7",
                "both directions",
            ),
            (
                "[[step]]\nat = \"2s\"\nmtu = \"900\"\n[[step]]\nat = \"1s\"\nmtu = \"9\"",
                "5:6",
                "not before",
            ),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with(&format!("x.toml:{place}: ")), "{error}");
            assert!(error.contains(part), "{error}");
        }
    }
}
