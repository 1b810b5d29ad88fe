//! Ages of files in the notation of the command line: a duration such as `2h`, or a date.

use std::{str::FromStr, time::Duration};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use units::parse_duration;

/// The age of a file, given as a duration or as a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// A duration before the present time.
    Of(Duration),
    /// The time since a moment. The moment is given in seconds of Unix time.
    Since(i64),
}

/// Error: the text is neither a duration nor a date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is neither a time such as \"2h\", \"7d\" or \"1w\" nor a date such as \"2026-11-01\" or \"2026-11-01 08:00\""
)]
pub(crate) struct AgeError(String);

impl Age {
    /// Returns the age at the moment `now_unix_s`. Returns zero for a date in the future.
    pub(crate) fn at(self, now_unix_s: i64) -> Duration {
        match self {
            Self::Of(time) => time,
            Self::Since(unix_s) => {
                Duration::from_secs(u64::try_from(now_unix_s - unix_s).unwrap_or(0))
            }
        }
    }
}

impl FromStr for Age {
    type Err = AgeError;

    /// Parses a duration, a date in this machine's time zone, or a time in the format of RFC 3339.
    fn from_str(text: &str) -> Result<Self, AgeError> {
        if let Ok(time) = parse_duration(text) {
            return Ok(Self::Of(time));
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(Self::Since(time.as_second()));
        }
        let time = text.parse().ok();
        let unix_s = time.and_then(|it| unix_s_of(it, &TimeZone::system()));
        let unix_s = unix_s.ok_or_else(|| AgeError(text.to_owned()))?;
        Ok(Self::Since(unix_s))
    }
}

/// Returns the Unix time of a local date and time. When clocks are set back, a local time occurs
/// twice, and the function uses the first occurrence. If a clock change skips a local time, the
/// time zone offset before the change applies.
fn unix_s_of(time: DateTime, zone: &TimeZone) -> Option<i64> {
    zone.to_timestamp(time).ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_time_or_a_date() {
        let week = "1w".parse::<Age>().expect("an age");
        assert_eq!(week.at(0), Duration::from_secs(7 * 86_400));
        let zoned = "2026-11-01T08:00:00+02:00".parse::<Age>().expect("an age");
        assert_eq!(zoned, Age::Since(1_793_512_800));
        assert_eq!(zoned.at(1_793_512_860), Duration::from_secs(60));
        assert_eq!(zoned.at(0), Duration::ZERO, "it is to come");
        let since = |text: &str| match text.parse::<Age>() {
            Ok(Age::Since(unix_s)) => unix_s,
            other => panic!("{text}: {other:?}"),
        };
        let midnight = since("2026-11-01");
        assert_eq!(since("2026-11-01 08:00") - midnight, 8 * 3600);
        assert_eq!(since("2026-11-01T08:00:30") - midnight, 8 * 3600 + 30);
        for text in ["", "yesterday", "2026-13-01", "2026-11-01 25:00", "-1d"] {
            let error = text.parse::<Age>().expect_err(text).to_string();
            assert!(error.contains("nor a date such as"), "{error}");
        }
    }

    #[test]
    fn a_date_means_one_moment_also_when_clocks_change() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a rule");
        for (text, unix_s) in [
            ("2026-03-29 01:30", 1_774_744_200),
            ("2026-03-29 02:30", 1_774_747_800),
            ("2026-10-25 02:30", 1_792_888_200),
        ] {
            let time = text.parse().expect("a date");
            assert_eq!(unix_s_of(time, &berlin), Some(unix_s), "{text}");
        }
    }
}
