//! Listings: a server's description of the files in a directory.
//!
//! `MLSD` (RFC 3659) is made for programs. `LIST` is made for people; two forms of it are parsed:
//! the form of `ls -l`, and the form of DOS. A line in another form is counted, so that its
//! directory does not seem to be empty.

mod dos;
mod facts;
mod long;

use std::fmt;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::line::{LineSplitter, SplitLine};

/// A file, a directory or another object in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingEntry {
    /// Name within its directory, in the server's bytes.
    pub name: Vec<u8>,
    /// Type of the object.
    pub kind: EntryKind,
    /// Size in bytes. `None` if the server does not report it.
    pub size_bytes: Option<u64>,
    /// Time of the last change. `None` if the server does not report it.
    pub modified: Option<ModifiedTime>,
}

/// Type of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, with its target if the server reports it.
    Symlink {
        /// The path in the link.
        target: Option<Vec<u8>>,
    },
    /// A device, a socket or another special file.
    Other,
}

/// Time of a file's last change, in the precision of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModifiedTime {
    /// Seconds since 1970. `MLSD` and `MDTM` use UTC. `LIST` uses the server's own time zone, which
    /// it does not report.
    pub unix_s: i64,
    /// Precision of the time.
    pub precision: TimePrecision,
}

/// The unit of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimePrecision {
    /// A second.
    Second,
    /// A minute, in an unknown time zone.
    Minute,
    /// A day, in an unknown time zone.
    Day,
}

/// The form of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingForm {
    /// The form of `MLSD`.
    Machine,
    /// The form of `LIST`, as in `ls -l` or DOS.
    Human {
        /// The present, in seconds since 1970. `ls` omits the year for files younger than six
        /// months.
        now_unix_s: i64,
    },
}

/// Parser of a listing that arrives in parts.
#[derive(Debug)]
pub struct ListingParser {
    form: ListingForm,
    lines: LineSplitter,
    lists_itself: bool,
    unparsed_lines: u64,
}

impl ListingParser {
    /// Creates an empty listing.
    pub fn new(form: ListingForm) -> Self {
        Self {
            form,
            lines: LineSplitter::new(ENTRY_BYTES_MAX),
            lists_itself: false,
            unparsed_lines: 0,
        }
    }

    /// Adds bytes of the data connection. Callers drain [`next_entry`](Self::next_entry) before
    /// they add more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// Records the end of the listing. The last line may lack its terminator.
    pub fn end(&mut self) {
        if !self.lines.is_empty() {
            self.lines.push(b"\n");
        }
    }

    /// Returns the next entry. `None` until more bytes arrive. The directory itself and its parent
    /// are omitted.
    pub fn next_entry(&mut self) -> Option<ListingEntry> {
        while let Some(line) = self.lines.next_line() {
            let read = match &line {
                SplitLine::TooLong => ParsedLine::Unknown,
                SplitLine::Complete(line) => match self.form {
                    ListingForm::Machine => facts::read(line),
                    ListingForm::Human { now_unix_s } => read_human(line, now_unix_s),
                },
            };
            match read {
                ParsedLine::Entry(entry) if is_name(&entry.name) => return Some(entry),
                ParsedLine::Entry(entry) if entry.name == b"." => self.lists_itself = true,
                ParsedLine::Entry(entry) if entry.name == b".." => {}
                ParsedLine::Nothing => {}
                ParsedLine::Entry(_) | ParsedLine::Unknown => self.unparsed_lines += 1,
            }
        }
        None
    }

    /// Whether the listing contained the directory itself, as `LIST -a` does.
    pub fn lists_itself(&self) -> bool {
        self.lists_itself
    }

    /// Returns the number of lines that could not be parsed so far.
    pub fn unparsed_lines(&self) -> u64 {
        self.unparsed_lines
    }
}

/// Content of a line.
#[derive(Debug, PartialEq, Eq)]
enum ParsedLine {
    Entry(ListingEntry),
    /// No entry: the total of `ls`, an empty line, or the directory itself.
    Nothing,
    Unknown,
}

fn read_human(line: &[u8], now_unix_s: i64) -> ParsedLine {
    if line.first().is_some_and(u8::is_ascii_digit) {
        dos::read(line)
    } else {
        long::read(line, now_unix_s)
    }
}

/// Whether a server may use this name for an entry. A name with a slash would lead out of the
/// directory.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// Parses a time of `MDTM` or of the fact `modify`: `YYYYMMDDHHMMSS` in UTC, with or without a
/// fraction.
///
/// Some servers write years from 2000 on as `191` and the years since 1900: 19100 is 2000.
pub fn read_time(text: &[u8]) -> Option<ModifiedTime> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, fraction) = text.split_at(digits);
    if !matches!(fraction.first(), None | Some(b'.')) {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    let (year, rest) = match digits.len() {
        14 => (digits[..4].parse::<i16>().ok()?, &digits[4..]),
        15 if digits.starts_with("191") => (1900 + digits[2..5].parse::<i16>().ok()?, &digits[5..]),
        _ => return None,
    };
    let two = |at: usize| rest[at..at + 2].parse::<i8>().ok();
    // A leap second counts as the second before it.
    let second = two(8)?.min(59);
    let time = DateTime::new(year, two(0)?, two(2)?, two(4)?, two(6)?, second, 0).ok()?;
    Some(ModifiedTime {
        unix_s: unix_s(time)?,
        precision: TimePrecision::Second,
    })
}

/// Formats a time for `MFMT` and `MDTM`.
///
/// Returns `None` for a time without a four-digit year.
pub fn write_time(unix_s: i64) -> Option<String> {
    let time = Timestamp::from_second(unix_s).ok()?;
    let time = time.to_zoned(TimeZone::UTC);
    (0..=9999)
        .contains(&time.year())
        .then(|| time.strftime("%Y%m%d%H%M%S").to_string())
}

fn unix_s(time: DateTime) -> Option<i64> {
    let zoned = time.to_zoned(TimeZone::UTC).ok()?;
    Some(zoned.timestamp().as_second())
}

impl fmt::Display for TimePrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Day => "day",
        })
    }
}

/// Longest line of a listing, in bytes. A name and the path in a link have at most 4,096 bytes
/// each.
const ENTRY_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests;
