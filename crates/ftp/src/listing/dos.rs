//! Parser of one line of `LIST` in the default format of IIS: `01-02-24 03:04AM <DIR> name`.

use jiff::civil::DateTime;

use super::{EntryKind, ListingEntry, ModifiedTime, ParsedLine, TimePrecision, unix_s};

/// Parses one line of the listing.
pub(super) fn read(line: &[u8]) -> ParsedLine {
    read_entry(line).map_or(ParsedLine::Unknown, ParsedLine::Entry)
}

fn read_entry(line: &[u8]) -> Option<ListingEntry> {
    let (date, rest) = word(line)?;
    let (time, rest) = word(rest)?;
    let (size, rest) = word(rest)?;
    let unix_s = read_time(date, time)?;
    let (kind, size_bytes, name) = if size == "<DIR>" {
        // The size column is padded with spaces, so names of directories and files begin in the
        // same column.
        (EntryKind::Directory, None, rest.trim_ascii_start())
    } else {
        let size = size.replace(',', "").parse().ok()?;
        (
            EntryKind::File,
            Some(size),
            rest.strip_prefix(b" ").unwrap_or(rest),
        )
    };
    Some(ListingEntry {
        name: name.to_vec(),
        kind,
        size_bytes,
        modified: Some(ModifiedTime {
            unix_s,
            precision: TimePrecision::Minute,
        }),
    })
}

/// Parses a date `MM-DD-YY` or `MM-DD-YYYY` and a time `HH:MM`. `AM` or `PM` may follow the time.
fn read_time(date: &str, time: &str) -> Option<i64> {
    let mut parts = date.split('-');
    let month = parts.next()?.parse().ok()?;
    let day = parts.next()?.parse().ok()?;
    let year = parts.next()?;
    let digits = year.len();
    let year: i16 = year.parse().ok()?;
    let year = match digits {
        2 if year < 70 => year + 2000,
        2 => year + 1900,
        4 => year,
        _ => return None,
    };
    let (clock, half) = match time.get(..5) {
        Some(clock) => (clock, &time[5..]),
        None => return None,
    };
    let (hour, minute) = clock.split_once(':')?;
    let hour: i8 = hour.parse().ok()?;
    let hour = match half {
        "" => hour,
        "AM" => hour % 12,
        "PM" => hour % 12 + 12,
        _ => return None,
    };
    unix_s(DateTime::new(year, month, day, hour, minute.parse().ok()?, 0, 0).ok()?)
}

/// Returns the first word of `line`, and the bytes that follow the word.
fn word(line: &[u8]) -> Option<(&str, &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(|b| *b == b' ')?;
    Some((std::str::from_utf8(&line[..end]).ok()?, &line[end..]))
}
