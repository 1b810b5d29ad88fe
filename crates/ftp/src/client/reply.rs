//! A complete reply of a server.

use std::fmt;

use crate::{
    command::escape,
    reply::{ReplyClass, ReplyCode},
};

/// A complete reply: its code and its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    code: ReplyCode,
    lines: Vec<Vec<u8>>,
}

impl Reply {
    /// Creates a reply from `lines`, which must contain at least one line.
    pub(super) fn new(code: ReplyCode, lines: Vec<Vec<u8>>) -> Self {
        debug_assert!(!lines.is_empty());
        Self { code, lines }
    }

    /// Returns the three-digit code of the reply.
    pub fn code(&self) -> ReplyCode {
        self.code
    }

    /// Returns the class of the code, which determines the client's next step.
    pub fn class(&self) -> ReplyClass {
        self.code.class()
    }

    /// Whether the server carried out the command (code `2yz`).
    pub fn is_completed(&self) -> bool {
        self.class() == ReplyClass::Completed
    }

    /// Whether the same command may succeed later (code `4yz`).
    pub fn is_temporary(&self) -> bool {
        self.code.0 / 100 == 4
    }

    /// Returns the lines as received, without line terminators. The first line and the last line
    /// contain the code.
    pub fn lines(&self) -> &[Vec<u8>] {
        &self.lines
    }

    /// Returns the text that follows the code in the last line.
    pub fn text(&self) -> &[u8] {
        self.lines
            .last()
            .and_then(|line| line.get(4..))
            .unwrap_or_default()
    }
}

/// Writes the code and the text of the last line. The output is safe to print.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code.0, escape(self.text()))
    }
}
