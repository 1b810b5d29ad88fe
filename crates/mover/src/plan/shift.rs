//! Detection of a listing in which file times have shifted by the same number of quarter hours.
//!
//! Such a shift shows that the server's time zone has changed and that the files are unchanged. A
//! server that lists its local time causes this shift twice a year, when daylight saving time
//! begins and ends.
//!
//! Files with shifted times wait in this module until the listing has ended. Waiting ends earlier
//! if a known file appears with its old time.

use std::{collections::BTreeMap, time::Instant};

use ftp::listing::{ListingEntry, TimePrecision};

use super::{task::File, version::FileVersion};

/// Files of one listing whose times have shifted, compared with their known times.
#[derive(Debug, Default)]
pub(super) struct Shifts {
    /// Whether the holding of files has ended. It ends with the listing, or earlier if a known file
    /// has its old time, because the time zone is then unchanged.
    is_over: bool,
    /// Number of known files whose times have changed by an amount that is not a multiple of a
    /// quarter hour.
    changed: usize,
    held: Vec<HeldFile>,
}

/// A file that is held until its listing has ended.
#[derive(Debug)]
pub(super) struct HeldFile {
    pub(super) file: File,
    /// The destination's entry of the same name.
    pub(super) there: Option<ListingEntry>,
    pub(super) shift_s: i64,
    /// Time at which the entry was listed.
    pub(super) found: Instant,
}

/// Difference between the listed time of a file and its known time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeChange {
    /// The times are equal.
    Same,
    /// The time has shifted by this number of seconds, a multiple of a quarter hour.
    Shifted(i64),
    /// The times differ by another amount.
    Changed,
}

impl TimeChange {
    /// Compares two versions of a file. Returns `None` if the sizes differ, if a size or a time is
    /// missing, or if a time is too imprecise.
    pub(super) fn of(known: &FileVersion, listed: &FileVersion) -> Option<Self> {
        if listed.size_bytes? != known.size_bytes? {
            return None;
        }
        let (before, now) = (known.modified?, listed.modified?);
        let unit_s = match before.precision.max(now.precision) {
            TimePrecision::Second => 1,
            TimePrecision::Minute => 60,
            TimePrecision::Day => return None,
        };
        let moved_s = now.unix_s - before.unix_s;
        let quarters = (moved_s + QUARTER_S / 2).div_euclid(QUARTER_S);
        let shift_s = quarters * QUARTER_S;
        Some(match (moved_s - shift_s).abs() <= unit_s {
            true if shift_s == 0 => Self::Same,
            true if shift_s.abs() <= SHIFT_MAX_S => Self::Shifted(shift_s),
            _ => Self::Changed,
        })
    }
}

impl Shifts {
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) fn hold(&mut self, held: HeldFile) {
        self.held.push(held);
    }

    pub(super) fn note_change(&mut self) {
        self.changed += 1;
    }

    /// Returns all held files, and holds no further files. The function is called when a known file
    /// has its old time or the listing has ended.
    pub(super) fn end(&mut self) -> Vec<HeldFile> {
        self.is_over = true;
        std::mem::take(&mut self.held)
    }

    /// Returns the listing's shift in seconds, or `None` if the listing has no shift. `known_s` is
    /// the shift of another listing of the same job. If a file has shifted by `known_s`, that
    /// single file is sufficient evidence.
    pub(super) fn shift_s(&self, known_s: Option<i64>) -> Option<i64> {
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        for held in &self.held {
            *counts.entry(held.shift_s).or_default() += 1;
        }
        let (shift_s, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let others = self.changed + self.held.len() - count;
        let is_enough = count >= FILES_LEAST || known_s == Some(shift_s);
        (is_enough && others * 2 <= count).then_some(shift_s)
    }
}

/// Returns a shift as text, such as `+1 h` or `-30 min`.
pub(super) fn described(shift_s: i64) -> String {
    let sign = if shift_s < 0 { '-' } else { '+' };
    let minutes = shift_s.abs() / 60;
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{sign}{minutes} min"),
        (hours, 0) => format!("{sign}{hours} h"),
        (hours, minutes) => format!("{sign}{hours} h {minutes} min"),
    }
}

/// A quarter hour in seconds. Offsets of time zones differ by multiples of a quarter hour.
const QUARTER_S: i64 = 900;

/// Largest possible shift in seconds: the largest difference between two time zones of the world.
const SHIFT_MAX_S: i64 = 26 * 3600;

/// Smallest number of files that proves a shift. One or two files may have been rewritten at times
/// that fit the shift by chance.
const FILES_LEAST: usize = 3;

#[cfg(test)]
mod tests {
    use ftp::listing::ModifiedTime;

    use super::*;

    fn version(size_bytes: u64, unix_s: i64, precision: TimePrecision) -> FileVersion {
        FileVersion {
            size_bytes: Some(size_bytes),
            modified: Some(ModifiedTime { unix_s, precision }),
        }
    }

    #[test]
    fn a_time_moves_by_quarter_hours_or_is_another_one() {
        let likeness = |before, now, precision| {
            TimeChange::of(&version(5, before, precision), &version(5, now, precision))
        };
        for (before, now, expected) in [
            (10_000, 10_000, TimeChange::Same),
            (10_000, 13_600, TimeChange::Shifted(3600)),
            (10_000, 6_401, TimeChange::Shifted(-3600)),
            (10_000, 11_800, TimeChange::Shifted(1800)),
            (10_000, 10_900, TimeChange::Shifted(900)),
            (10_000, 10_450, TimeChange::Changed),
            (10_000, 13_603, TimeChange::Changed),
            (10_000, 10_000 + 27 * 3600, TimeChange::Changed),
        ] {
            let found = likeness(before, now, TimePrecision::Second);
            assert_eq!(found, Some(expected), "{before} to {now}");
        }
        let minutes = likeness(10_020, 13_580, TimePrecision::Minute);
        assert_eq!(minutes, Some(TimeChange::Shifted(3600)));
        assert_eq!(likeness(0, 86_400, TimePrecision::Day), None);
        let other_size = version(6, 13_600, TimePrecision::Second);
        let known = version(5, 10_000, TimePrecision::Second);
        assert_eq!(TimeChange::of(&known, &other_size), None);
    }

    #[test]
    fn shifts_are_written_for_people() {
        let texts = [3600, -1800, 20_700].map(described);
        assert_eq!(texts, ["+1 h", "-30 min", "+5 h 45 min"]);
    }
}
