//! Listings: a server's description of the files in a directory.
//!
//! The format of `MLSD` (RFC 3659) is for programs. The format of `LIST` is for people. The parser
//! accepts `LIST` lines in the formats of `ls -l` and of DOS. The parser counts lines in other
//! formats, so that a directory with such lines does not appear to be empty.

mod dos;
mod facts;
mod long;

use std::fmt;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::line::{LineSplitter, SplitLine};

/// A file, a directory or another object in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingEntry {
    /// Name of the object within its directory, in the server's bytes.
    pub name: Vec<u8>,
    /// Type of the object.
    pub kind: EntryKind,
    /// Size in bytes. `None` if the listing contains no size.
    pub size_bytes: Option<u64>,
    /// Modification time. `None` if the listing contains no time.
    pub modified: Option<ModifiedTime>,
}

/// Type of a directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Path to which the link points. `None` if the listing does not contain the path.
        target: Option<Vec<u8>>,
    },
    /// A device, a socket or another special file.
    Other,
}

/// Modification time of a file, with the precision that the server reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModifiedTime {
    /// Seconds since 1970. `MLSD` and `MDTM` report UTC. `LIST` reports local time in the server's
    /// time zone, which the listing does not contain.
    pub unix_s: i64,
    /// Precision of `unix_s`.
    pub precision: TimePrecision,
}

/// Precision of a modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimePrecision {
    /// Precise to the second.
    Second,
    /// Precise to the minute, in an unknown time zone.
    Minute,
    /// Precise to the day, in an unknown time zone.
    Day,
}

/// Format of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingForm {
    /// Format of `MLSD`.
    Machine,
    /// Format of `LIST`: like `ls -l`, or like DOS.
    Human {
        /// Present time, in seconds since 1970. `ls` omits the year of files younger than six
        /// months, and the parser derives the year from this time.
        now_unix_s: i64,
    },
}

/// Parser of a listing. The bytes of the listing may arrive in parts of any size.
#[derive(Debug)]
pub struct ListingParser {
    form: ListingForm,
    lines: LineSplitter,
    lists_itself: bool,
    unparsed_lines: u64,
}

impl ListingParser {
    /// Creates a parser for a listing of the format `form`.
    pub fn new(form: ListingForm) -> Self {
        Self {
            form,
            lines: LineSplitter::new(ENTRY_BYTES_MAX),
            lists_itself: false,
            unparsed_lines: 0,
        }
    }

    /// Adds bytes from the data connection. Callers must call [`next_entry`](Self::next_entry)
    /// until it returns `None` before they add more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// Marks the end of the listing. The last line may lack its terminator.
    pub fn end(&mut self) {
        if !self.lines.is_empty() {
            self.lines.push(b"\n");
        }
    }

    /// Returns the next entry. Returns `None` if no complete line is available. The function skips
    /// the entries for the directory itself and for its parent.
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

    /// Whether the listing contained an entry for the directory itself (`.`), as with `LIST -a`.
    pub fn lists_itself(&self) -> bool {
        self.lists_itself
    }

    /// Returns the number of lines that the parser has failed to parse so far.
    pub fn unparsed_lines(&self) -> u64 {
        self.unparsed_lines
    }
}

/// Result of parsing one line of a listing.
#[derive(Debug, PartialEq, Eq)]
enum ParsedLine {
    Entry(ListingEntry),
    /// A line that describes no entry: the total of `ls`, an empty line, or the directory itself.
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

/// Whether an entry may have this name. A name with a slash could denote a file outside the
/// directory.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// Parses the time in an `MDTM` reply or in the fact `modify`. The format is `YYYYMMDDHHMMSS` in
/// UTC, with or without a fraction.
///
/// Some servers write the year as `19` followed by the number of years since 1900. The text 19100
/// then means the year 2000.
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
/// Returns `None` if the year is not between 0 and 9999.
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

/// Maximum length of a listing line, in bytes. The name and the target of a link have at most 4,096
/// bytes each.
const ENTRY_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests;
