//! Position in a text file. Error messages show it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// File, line and column of a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextPosition {
    file: PathBuf,
    line: usize,
    column: usize,
}

impl TextPosition {
    /// Returns the position of the byte `offset` in the text of a file.
    pub(crate) fn of(text: &str, offset: usize, file: &Path) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for TextPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}
