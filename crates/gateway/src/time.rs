//! Unix time as text.

use std::time::{Duration, SystemTime};

/// Seconds since 1970; none before.
pub(crate) fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

/// Seconds since 1970 as `2024-02-29T12:00:00Z`.
///
/// Source: the civil-from-days algorithm of Howard Hinnant's `chrono`-compatible date algorithms.
pub(crate) fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The same with milliseconds: `2024-02-29T12:00:00.250Z`.
pub(crate) fn utc_ms(time: SystemTime) -> String {
    let since: Duration = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = utc(since.as_secs());
    let seconds = seconds.trim_end_matches('Z');
    format!("{seconds}.{:03}Z", since.subsec_millis())
}

/// A text of [`utc`] or [`utc_ms`] as C's `ctime` has it: `Thu Feb 29 12:00:00 2024`. A text of another form
/// is returned as it is.
pub(crate) fn ctime(utc: &str) -> String {
    let number = |range: std::ops::Range<usize>| utc.get(range)?.parse::<usize>().ok();
    let parts = || {
        let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
        let name = MONTHS.get(month.checked_sub(1)?)?;
        // Sakamoto's algorithm: January and February belong to the year before.
        let shifted = year - usize::from(month < 3);
        let offset = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4][month - 1];
        let weekday = (shifted + shifted / 4 - shifted / 100 + shifted / 400 + offset + day) % 7;
        let clock = utc.get(11..19)?;
        let weekday = WEEKDAYS[weekday];
        Some(format!("{weekday} {name} {day:>2} {clock} {year}"))
    };
    parts().unwrap_or_else(|| utc.to_owned())
}

/// `time` as [`utc`]; `never` for `None`.
pub(crate) fn or_never(time: Option<SystemTime>) -> String {
    time.and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok())
        .map_or("never".to_owned(), |since| utc(since.as_secs()))
}

const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_fall_on_their_dates() {
        for (unix_s, text, of_c) in [
            (0, "1970-01-01T00:00:00Z", "Thu Jan  1 00:00:00 1970"),
            (
                951_782_400,
                "2000-02-29T00:00:00Z",
                "Tue Feb 29 00:00:00 2000",
            ),
            (
                1_709_208_000,
                "2024-02-29T12:00:00Z",
                "Thu Feb 29 12:00:00 2024",
            ),
            (
                4_107_542_399,
                "2100-02-28T23:59:59Z",
                "Sun Feb 28 23:59:59 2100",
            ),
        ] {
            assert_eq!(utc(unix_s), text);
            assert_eq!(ctime(text), of_c);
        }
        let moment = SystemTime::UNIX_EPOCH + Duration::from_millis(951_782_400_007);
        assert_eq!(utc_ms(moment), "2000-02-29T00:00:00.007Z");
        assert_eq!(or_never(None), "never");
    }
}
