//! Listings: what a server says of the files in a directory.
//!
//! `MLSD` (RFC 3659) is made for programs. `LIST` is made for people; two forms of it are read, that of `ls -l` and
//! that of DOS. A line in another form is counted, so that nobody takes a directory for empty that is not.

mod dos;
mod facts;
mod long;

use std::fmt;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::line::{Line, LineSplitter};

/// A file, a directory or another thing in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name within its directory, in the server's bytes.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Bytes; `None` where the server does not say.
    pub size_bytes: Option<u64>,
    /// When it was changed last; `None` where the server does not say.
    pub modified: Option<Modified>,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, and what it points at where the server says so.
    Symlink {
        /// The path in the link.
        target: Option<Vec<u8>>,
    },
    /// A device, a socket and the like.
    Other,
}

/// The time of a file's last change, as precisely as a server gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modified {
    /// Seconds since 1970. UTC from `MLSD` and `MDTM`; from `LIST` in the server's own zone, which it does not tell.
    pub unix_s: i64,
    /// What the listing leaves out.
    pub precision: Precision,
}

/// The unit of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// A second.
    Second,
    /// A minute, in a zone that is not known.
    Minute,
    /// A day, in a zone that is not known.
    Day,
}

/// The form of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Of `MLSD`.
    Machine,
    /// Of `LIST`, as `ls -l` or as DOS has it.
    Human {
        /// The present, in seconds since 1970: `ls` leaves out the year of what is younger than six months.
        now_unix_s: i64,
    },
}

/// Reads a listing in the pieces in which it arrives.
#[derive(Debug)]
pub struct Listing {
    form: Form,
    lines: LineSplitter,
    has_itself: bool,
    not_understood: u64,
}

impl Listing {
    /// An empty listing.
    pub fn new(form: Form) -> Self {
        Self {
            form,
            lines: LineSplitter::new(ENTRY_BYTES_MAX),
            has_itself: false,
            not_understood: 0,
        }
    }

    /// Adds bytes of the data connection. Callers drain [`next_entry`](Self::next_entry) before they add more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// The listing has ended: a last line may lack its end.
    pub fn end(&mut self) {
        if !self.lines.is_empty() {
            self.lines.push(b"\n");
        }
    }

    /// The next entry; `None` until more bytes arrive. The directory itself and its parent are left out.
    pub fn next_entry(&mut self) -> Option<Entry> {
        while let Some(line) = self.lines.next_line() {
            let read = match &line {
                Line::TooLong => Read::Unknown,
                Line::Complete(line) => match self.form {
                    Form::Machine => facts::read(line),
                    Form::Human { now_unix_s } => read_human(line, now_unix_s),
                },
            };
            match read {
                Read::Entry(entry) if is_name(&entry.name) => return Some(entry),
                Read::Entry(entry) if entry.name == b"." => self.has_itself = true,
                Read::Entry(entry) if entry.name == b".." => {}
                Read::Nothing => {}
                Read::Entry(_) | Read::Unknown => self.not_understood += 1,
            }
        }
        None
    }

    /// Whether the directory itself was among the entries, as `LIST -a` has it.
    pub fn has_itself(&self) -> bool {
        self.has_itself
    }

    /// Lines that were not understood so far.
    pub fn not_understood(&self) -> u64 {
        self.not_understood
    }
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Entry(Entry),
    /// No entry: the total of `ls`, an empty line, the directory itself.
    Nothing,
    Unknown,
}

fn read_human(line: &[u8], now_unix_s: i64) -> Read {
    if line.first().is_some_and(u8::is_ascii_digit) {
        dos::read(line)
    } else {
        long::read(line, now_unix_s)
    }
}

/// Whether a server may name an entry so. A name with a slash would lead out of the directory.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// Reads a time of `MDTM` or of the fact `modify`: `YYYYMMDDHHMMSS`, with or without a fraction, UTC.
///
/// Some servers write the year 2000 and later as `191ss`: 19100 is 2000.
pub fn read_time(text: &[u8]) -> Option<Modified> {
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
    // Leap seconds are those before them.
    let second = two(8)?.min(59);
    let time = DateTime::new(year, two(0)?, two(2)?, two(4)?, two(6)?, second, 0).ok()?;
    Some(Modified {
        unix_s: unix_s(time)?,
        precision: Precision::Second,
    })
}

/// A time as `MFMT` and `MDTM` have it.
///
/// Returns `None` for a time that has no four-digit year.
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

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Day => "day",
        })
    }
}

/// Longest line of a listing, in bytes: a name and the path in a link have 4,096 at most each.
const ENTRY_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests;
