//! A whole reply, as a client reads it.

use std::fmt;

use crate::{
    command::escape,
    reply::{Class, Code},
};

/// A code, and the lines that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    code: Code,
    lines: Vec<Vec<u8>>,
}

impl Reply {
    /// A reply of `lines`, of which there is at least one.
    pub(super) fn new(code: Code, lines: Vec<Vec<u8>>) -> Self {
        debug_assert!(!lines.is_empty());
        Self { code, lines }
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What the client does next.
    pub fn class(&self) -> Class {
        self.code.class()
    }

    /// Whether the command was carried out (`2yz`).
    pub fn is_completed(&self) -> bool {
        self.class() == Class::Completed
    }

    /// Whether the same command may succeed later (`4yz`).
    pub fn is_temporary(&self) -> bool {
        self.code.0 / 100 == 4
    }

    /// The lines as they came, without terminators; the code is in the first and the last one.
    pub fn lines(&self) -> &[Vec<u8>] {
        &self.lines
    }

    /// What follows the code in the last line.
    pub fn text(&self) -> &[u8] {
        self.lines
            .last()
            .and_then(|line| line.get(4..))
            .unwrap_or_default()
    }
}

/// The code and the last line's text, safe to print.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code.0, escape(self.text()))
    }
}
