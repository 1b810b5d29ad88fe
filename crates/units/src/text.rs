//! Parser and formatter of numbers with a unit.

/// Error for a text that is not a quantity with a known unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseUnitError {
    text: String,
    expected: &'static str,
}

impl ParseUnitError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            expected,
        }
    }
}

/// Splits `text` into a non-negative number and a unit. Returns the number multiplied by the scale
/// of the unit. Returns `None` if the number or the unit is invalid.
pub(crate) fn quantity(text: &str, scale: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let number: f64 = number.parse().ok()?;
    Some(number * scale(unit.trim())?)
}

/// Returns the nearest whole number. Returns `None` if it does not fit a `u64`, or if a value above
/// zero rounds to zero.
pub(crate) fn whole(value: f64) -> Option<u64> {
    let rounded = value.round();
    let vanishes = rounded == 0.0 && value > 0.0;
    (value.is_finite() && value < u64::MAX as f64 && !vanishes).then_some(rounded as u64)
}

/// Formats a number with at most two decimals, and without trailing zeros: `1`, `1.5`, `12.3`,
/// `941`. Numbers from 10 have at most one decimal, and numbers from 100 have none.
pub(crate) fn short(value: f64) -> String {
    let text = if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
