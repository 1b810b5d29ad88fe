//! The commands by which the client has logged in. A server that ends the session at a question which the client has not
//! asked is connected again, and gets them again.

use std::collections::VecDeque;

use crate::command::{Command, Kind};

#[derive(Debug)]
pub(super) enum LogIn {
    /// Commands so far.
    Recorded(Vec<Vec<u8>>),
    /// Commands still to be repeated.
    Repeating(VecDeque<Vec<u8>>),
    /// The session has come too far to be repeated, or has been.
    Past,
}

impl LogIn {
    /// Takes note of a command that the server is sent.
    pub(super) fn record(&mut self, line: &[u8]) {
        let Self::Recorded(lines) = self else {
            return;
        };
        let kind = Command::parse(line).kind();
        let is_repeatable = matches!(kind, Kind::User | Kind::Pass | Kind::Other | Kind::Type);
        if is_repeatable && lines.len() < LINES_MAX {
            lines.push(line.to_vec());
        } else {
            *self = Self::Past;
        }
    }

    /// Whether the session can be repeated.
    pub(super) fn is_recorded(&self) -> bool {
        matches!(self, Self::Recorded(_))
    }

    pub(super) fn is_repeating(&self) -> bool {
        matches!(self, Self::Repeating(_))
    }

    /// Begins to repeat what is recorded.
    pub(super) fn repeat(&mut self) {
        let now = std::mem::replace(self, Self::Past);
        if let Self::Recorded(lines) = now {
            *self = Self::Repeating(lines.into());
        }
    }

    /// The next command to repeat.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let Self::Repeating(lines) = self else {
            return None;
        };
        let line = lines.pop_front();
        if line.is_none() {
            *self = Self::Past;
        }
        line
    }
}

/// Commands of a log-in: `HOST`, `CLNT`, `OPTS`, `USER`, `PASS`, `ACCT`, and some more.
const LINES_MAX: usize = 16;
