//! What commands print.

use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;

/// Prints a text whole; that nobody reads to its end, such as head, is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot print"),
    }
}
