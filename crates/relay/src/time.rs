//! Formatting of Unix times.

use std::time::SystemTime;

use jiff::Timestamp;

/// Returns the seconds since 1970. Returns 0 for earlier times.
pub fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

/// Formats seconds since 1970 as `2024-02-29T12:00:00Z`.
pub fn utc(unix_s: u64) -> String {
    let seconds = i64::try_from(unix_s).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    format!("{time:.0}")
}

/// Formats a time with milliseconds, as `2024-02-29T12:00:00.250Z`.
pub(crate) fn utc_ms(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

/// Converts a text from [`utc`] or [`utc_ms`] to the format of C's `ctime`, such as `Thu Feb 29
/// 12:00:00 2024`. Returns any other text unchanged.
pub(crate) fn ctime(utc: &str) -> String {
    let time: Result<Timestamp, _> = utc.parse();
    time.map_or_else(
        |_| utc.to_owned(),
        |time| time.strftime("%a %b %e %H:%M:%S %Y").to_string(),
    )
}

/// Formats `time` like [`utc`]. Returns the text `never` for `None`.
pub(crate) fn or_never(time: Option<SystemTime>) -> String {
    time.and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok())
        .map_or("never".to_owned(), |since| utc(since.as_secs()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
