//! The text form of a share, such as a loss rate of `0.1%`.

use crate::text::ParseUnitError;

/// Parses a share such as `"0.1%"`, and returns it as a fraction from 0 to 1.
///
/// The percent sign is required, except for zero. Without it, `0.1` could mean 0.1 % or 10 %.
///
/// # Errors
/// [`ParseUnitError`] for any other text, and for more than 100 %.
pub fn parse_share(text: &str) -> Result<f64, ParseUnitError> {
    let trimmed = text.trim();
    let number = trimmed
        .strip_suffix('%')
        .or((trimmed == "0").then_some("0"));
    number
        .and_then(|number| number.trim().parse::<f64>().ok())
        .filter(|percent| (0.0..=100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| ParseUnitError::new(text, "a share such as \"0.1%\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_and_nothing_else() {
        assert_eq!(parse_share("0.1%"), Ok(0.001));
        assert_eq!(parse_share(" 5 % "), Ok(0.05));
        assert_eq!(parse_share("0"), Ok(0.0));
        for text in ["", "0.1", "101%", "-1%", "%", "x%", "NaN%"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }
}
