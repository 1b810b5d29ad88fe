//! Text form of a duration, for flags and files.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::text::{self, ParseUnitError};

/// Parses `"250ms"`, `"1.5 s"`, `"10 min"`, `"2 h"`, `"1 d"` or `"300us"`. The unit is required,
/// except for zero.
///
/// # Errors
/// [`ParseUnitError`] for any other text, and for a duration that exceeds [`Duration::MAX`].
pub fn parse_duration(text: &str) -> Result<Duration, ParseUnitError> {
    const EXPECTED: &str = "a duration such as \"250 ms\", \"90 s\" or \"10 min\"";
    let seconds = if text.trim() == "0" {
        Some(0.0)
    } else {
        text::quantity(text, scale_s)
    };
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| ParseUnitError::new(text, EXPECTED))
}

/// Deserializes a string with [`parse_duration`]. Use it in `#[serde(deserialize_with)]`.
///
/// # Errors
/// The deserializer's error if the value is not a string, or the string is not a duration.
pub fn deserialize_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

fn scale_s(unit: &str) -> Option<f64> {
    Some(match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        "w" | "week" | "weeks" => 7.0 * 86_400.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, expected) in [
            ("250ms", Duration::from_millis(250)),
            ("10 min", Duration::from_secs(600)),
            ("10m", Duration::from_secs(600)),
            ("1.5 s", Duration::from_millis(1500)),
            ("300us", Duration::from_micros(300)),
            (" 2 h ", Duration::from_secs(7200)),
            ("1 d", Duration::from_secs(86_400)),
            ("2w", Duration::from_secs(14 * 86_400)),
            ("0", Duration::ZERO),
        ] {
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "5",
            "-1s",
            "ms",
            "5 parsecs",
            "1.2.3 s",
            "1e400 s",
            "99999999999999999999 d",
        ] {
            let error = parse_duration(text).expect_err(text).to_string();
            assert!(error.contains("is not a duration such as"), "{error}");
        }
    }
}
