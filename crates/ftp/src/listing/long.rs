//! Parser of one line of `LIST` in the format of `ls -l`: `-rw-r--r-- 1 owner group 1024 Jan 02
//! 2024 name`.

use jiff::civil::DateTime;

use super::{EntryKind, ListingEntry, ModifiedTime, ParsedLine, TimePrecision, unix_s};

/// Parses one line of the listing. If the line has no year, `now_unix_s` determines the year.
pub(super) fn read(line: &[u8], now_unix_s: i64) -> ParsedLine {
    if line.trim_ascii().is_empty() || line.starts_with(b"total ") {
        return ParsedLine::Nothing;
    }
    let kind = match line[0] {
        b'-' => EntryKind::File,
        b'd' => EntryKind::Directory,
        b'l' => EntryKind::Symlink { target: None },
        b'b' | b'c' | b'p' | b's' | b'D' => EntryKind::Other,
        _ => return ParsedLine::Unknown,
    };
    let words = words(line);
    // The name follows the date, and the month identifies the date. Owners may have spaces, groups
    // may be missing, and devices have two numbers in place of a size.
    let dates = (2..words.len().saturating_sub(3))
        .filter_map(|at| Some((at, read_date(line, &words[at..at + 3], now_unix_s)?)));
    for (at, modified) in dates {
        let size = text(line, words[at - 1]).and_then(|it| it.parse::<u64>().ok());
        if size.is_none() && kind != EntryKind::Other {
            continue;
        }
        // One space separates the date from the name. Further spaces belong to the name.
        let name = &line[words[at + 2].1 + 1..];
        return ParsedLine::Entry(entry(name, kind, size, modified));
    }
    ParsedLine::Unknown
}

fn entry(
    name: &[u8],
    kind: EntryKind,
    size_bytes: Option<u64>,
    modified: ModifiedTime,
) -> ListingEntry {
    let (name, kind) = match kind {
        EntryKind::Symlink { .. } => {
            let arrow = name.windows(4).position(|it| it == b" -> ");
            match arrow {
                Some(at) => {
                    let target = Some(name[at + 4..].to_vec());
                    (&name[..at], EntryKind::Symlink { target })
                }
                None => (name, EntryKind::Symlink { target: None }),
            }
        }
        kind => (name, kind),
    };
    ListingEntry {
        name: name.to_vec(),
        size_bytes: size_bytes.filter(|_| kind == EntryKind::File),
        kind,
        modified: Some(modified),
    }
}

/// Returns the start and end offsets of the words of `line`.
fn words(line: &[u8]) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, byte) in line.iter().enumerate() {
        match (*byte == b' ', start) {
            (true, Some(begun)) => {
                words.push((begun, at));
                start = None;
                // The date is among the first words. A name has any number of words.
                if words.len() == WORDS_MAX {
                    return words;
                }
            }
            (false, None) => start = Some(at),
            _ => {}
        }
    }
    words.extend(start.map(|begun| (begun, line.len())));
    words
}

/// Parses `Jan 2 2024` or `Jan 2 03:04`. The function rejects `2024-01-02 03:04`, which no common
/// server sends.
fn read_date(line: &[u8], words: &[(usize, usize)], now_unix_s: i64) -> Option<ModifiedTime> {
    let month = text(line, words[0])?;
    let month = MONTHS
        .iter()
        .position(|it| month.eq_ignore_ascii_case(it))?;
    let month = i8::try_from(month + 1).ok()?;
    let day: i8 = text(line, words[1])?.parse().ok()?;
    let last = text(line, words[2])?;
    if let Some((hour, minute)) = last.split_once(':') {
        let (hour, minute) = (hour.parse().ok()?, minute.parse().ok()?);
        let this_year = jiff::Timestamp::from_second(now_unix_s).ok()?;
        let this_year = this_year.to_zoned(jiff::tz::TimeZone::UTC).year();
        let in_year = |year| unix_s(DateTime::new(year, month, day, hour, minute, 0, 0).ok()?);
        // In the server's time zone, the date of a new file may be one day after `now_unix_s`.
        // February 29 does not exist in every year.
        let unix_s = in_year(this_year)
            .filter(|it| *it <= now_unix_s + DAY_S)
            .or_else(|| in_year(this_year - 1))?;
        return Some(ModifiedTime {
            unix_s,
            precision: TimePrecision::Minute,
        });
    }
    let year = last.parse().ok().filter(|it| (1900..=9999).contains(it))?;
    Some(ModifiedTime {
        unix_s: unix_s(DateTime::new(year, month, day, 0, 0, 0, 0).ok()?)?,
        precision: TimePrecision::Day,
    })
}

fn text(line: &[u8], (start, end): (usize, usize)) -> Option<&str> {
    std::str::from_utf8(&line[start..end]).ok()
}

const DAY_S: i64 = 86_400;

/// Maximum number of words up to the date: permissions, links, owner, group, two device numbers,
/// date. The limit allows for an owner of several words.
const WORDS_MAX: usize = 14;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
