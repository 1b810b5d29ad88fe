//! A mistake in a configuration file, and its position.

use std::ops::Range;

use toml::Spanned;

/// A mistake, and the byte range in the file where it is.
pub(super) struct Problem {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    /// Another place in the file that the mistake concerns.
    pub(super) other: Option<OtherPlace>,
}

/// Another place in the file, and the step to take at that place.
pub(super) struct OtherPlace {
    pub(super) span: Range<usize>,
    pub(super) next_step: &'static str,
}

pub(super) fn problem<T>(at: &Spanned<T>, message: impl Into<String>) -> Problem {
    Problem {
        span: at.span(),
        message: message.into(),
        other: None,
    }
}

/// Returns the text of an error and of all its causes.
pub(super) fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
