//! What commands print: text for people, JSON for programs, progress on a terminal.

use std::{
    io::{self, ErrorKind, Write as _},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Context as _;
use indicatif::ProgressBar;
use serde::Serialize;

/// Version of the JSON that this program prints and of the records that it writes: the field `schema` of
/// each object. It is raised when a field changes its meaning or goes; new fields leave it as it is.
pub(crate) const SCHEMA: u32 = 1;

/// The form of a command's result.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Format {
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Format {
    /// Prints a result: as JSON if that is wanted, otherwise as the text that `text` makes of it.
    pub(crate) fn print<T: Serialize>(
        self,
        result: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        print(&if self.json {
            json(result)
        } else {
            text(result)
        })
    }
}

/// Prints a text whole; that nobody reads to its end, such as head, is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot print"),
    }
}

/// A line with an object of JSON: the schema, then the fields of `object`, which must not have it.
pub(crate) fn json(object: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Versioned<'a, T> {
        schema: u32,
        #[serde(flatten)]
        object: &'a T,
    }
    let versioned = Versioned {
        schema: SCHEMA,
        object,
    };
    let text = serde_json::to_string(&versioned);
    text.expect("a result is an object of plain values") + "\n"
}

/// A progress bar of `length` steps, hidden where nobody sees it or `--quiet` is given.
pub(crate) fn progress(length: u64) -> ProgressBar {
    if is_quiet() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(length)
    }
}

/// Whether `--quiet` is given: no progress is shown.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Shows no progress from now on.
pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Set once, from the command line; progress is shown in too many places to hand it to each.
static QUIET: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_begins_with_the_schema() {
        #[derive(Serialize)]
        struct Result {
            rate_bits_per_s: u64,
            none: Option<f64>,
        }
        let result = Result {
            rate_bits_per_s: 5,
            none: None,
        };
        assert_eq!(
            json(&result),
            "{\"schema\":1,\"rate_bits_per_s\":5,\"none\":null}\n"
        );
    }
}
