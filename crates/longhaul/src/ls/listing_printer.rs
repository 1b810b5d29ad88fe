//! Output of `longhaul ls`: one line for each entry, as text or as JSON.

use ftp::listing::{EntryKind, ListingEntry, ModifiedTime, TimePrecision, write_time};
use mover::names::printable;
use serde::Serialize;

use crate::output;

/// Prints each entry as soon as it arrives.
pub(super) struct ListingPrinter {
    is_json: bool,
    /// Whether the output contains only names.
    is_short: bool,
    entries: u64,
    failed: u64,
}

/// One line of the JSON output.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Entry {
        path: &'a str,
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        modified_unix_s: Option<i64>,
        /// Precision of the time: `second`, or `minute` or `day` in the server's time zone.
        #[serde(skip_serializing_if = "Option::is_none")]
        modified_precision: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
    Failed {
        path: &'a str,
        reason: &'a str,
    },
    Result {
        entries: u64,
        failed: u64,
        interrupted: bool,
    },
}

impl ListingPrinter {
    pub(super) fn new(is_json: bool, is_short: bool) -> Self {
        Self {
            is_json,
            is_short,
            entries: 0,
            failed: 0,
        }
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// Prints an entry. `path` is relative to the listed directory.
    pub(super) fn print_entry(&mut self, path: &[u8], entry: &ListingEntry) -> anyhow::Result<()> {
        self.entries += 1;
        let path = printable(path);
        if self.is_json {
            let target = match &entry.kind {
                EntryKind::Symlink { target } => target.as_deref().map(printable),
                _ => None,
            };
            return output::print(&output::json(&Line::Entry {
                path: &path,
                kind: kind(&entry.kind),
                bytes: entry.size_bytes,
                modified_unix_s: entry.modified.map(|it| it.unix_s),
                modified_precision: entry.modified.map(|it| it.precision.to_string()),
                target,
            }));
        }
        let name = name(&path, &entry.kind);
        if self.is_short {
            return output::print(&format!("{name}\n"));
        }
        let size = entry.size_bytes.map(|it| it.to_string());
        let size = size.unwrap_or_else(|| "-".to_owned());
        let time = entry.modified.and_then(time);
        let time = time.unwrap_or_else(|| "-".to_owned());
        output::print(&format!("{size:>15}  {time:<19}  {name}\n"))
    }

    /// Prints that a directory could not be listed completely.
    pub(super) fn print_failure(&mut self, path: &[u8], reason: &str) {
        self.failed += 1;
        let path = match path {
            b"" => ".".to_owned(),
            path => printable(path),
        };
        if self.is_json {
            let reason = Line::Failed {
                path: &path,
                reason,
            };
            // If the output is closed, this line is dropped.
            let _ = output::print(&output::json(&reason));
        } else {
            eprintln!("failed: {path}: {reason}");
        }
    }

    pub(super) fn print_result(&self, is_interrupted: bool) -> anyhow::Result<()> {
        if !self.is_json {
            return Ok(());
        }
        output::print(&output::json(&Line::Result {
            entries: self.entries,
            failed: self.failed,
            interrupted: is_interrupted,
        }))
    }
}

fn kind(kind: &EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink { .. } => "symlink",
        EntryKind::Other => "other",
    }
}

fn name(path: &str, kind: &EntryKind) -> String {
    match kind {
        EntryKind::Directory => format!("{path}/"),
        EntryKind::Symlink { target: Some(to) } => format!("{path} -> {}", printable(to)),
        _ => path.to_owned(),
    }
}

/// Formats a time as `2026-11-24 01:26:03`, without unknown digits. A question mark means that the
/// time zone is unknown.
fn time(modified: ModifiedTime) -> Option<String> {
    let digits = write_time(modified.unix_s)?;
    let part = |from: usize, to: usize| &digits[from..to];
    let day = format!("{}-{}-{}", part(0, 4), part(4, 6), part(6, 8));
    let minute = format!("{day} {}:{}", part(8, 10), part(10, 12));
    Some(match modified.precision {
        TimePrecision::Second => format!("{minute}:{}", part(12, 14)),
        TimePrecision::Minute => format!("{minute} ?"),
        TimePrecision::Day => format!("{day} ?"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_tells_what_is_known() {
        let at = |precision| {
            time(ModifiedTime {
                unix_s: 1_700_000_000,
                precision,
            })
        };
        let said = [
            TimePrecision::Second,
            TimePrecision::Minute,
            TimePrecision::Day,
        ]
        .map(at);
        let expected = ["2023-11-14 22:13:20", "2023-11-14 22:13 ?", "2023-11-14 ?"];
        assert_eq!(said, expected.map(|it| Some(it.to_owned())));
    }
}
