//! Output of commands: text for users, JSON for programs, and progress on a terminal.

use std::{
    io::{self, ErrorKind, Write as _},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Context as _;
use indicatif::ProgressBar;
use serde::Serialize;

/// Version of the JSON output and of stored records. Each object contains the version in the field
/// `schema`. The version increases when a field changes its meaning or is removed, but not for new
/// fields.
pub(crate) const SCHEMA: u32 = 1;

/// Format of a command's result.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Format {
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Format {
    /// Prints a result as JSON if the user has requested JSON. Otherwise prints the text that
    /// `text` creates.
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

/// Prints a text. If a reader such as `head` closes the pipe early, this is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot print"),
    }
}

/// Returns a count with its noun in singular or plural.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Returns an object as one line of JSON. The field `schema` is added in front of the fields of
/// `object`.
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

/// Creates a progress bar with `length` steps. It is invisible without a terminal and with
/// `--quiet`.
pub(crate) fn progress(length: u64) -> ProgressBar {
    if is_quiet() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(length)
    }
}

/// Whether the user has given `--quiet`, which hides progress.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Hides all progress output from now on.
pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether `--quiet` was given. The flag is global because many functions show progress.
static QUIET: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_is_singular_for_one_thing_alone() {
        let texts = [0, 1, 2, 11].map(|it| counted(it, "file"));
        assert_eq!(texts, ["0 files", "1 file", "2 files", "11 files"]);
    }

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
