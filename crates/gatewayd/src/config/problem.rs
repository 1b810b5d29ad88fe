//! A mistake in a configuration file, and its position.

use std::ops::Range;

use toml::Spanned;

/// A mistake, and the bytes of the file that contain it.
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
