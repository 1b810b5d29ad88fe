//! A mistake in a configuration file and its position.

use std::ops::Range;

use toml::Spanned;

/// Something wrong, and the bytes of the file that say it.
pub(super) struct Problem {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

pub(super) fn problem<T>(at: &Spanned<T>, message: impl Into<String>) -> Problem {
    Problem {
        span: at.span(),
        message: message.into(),
    }
}
