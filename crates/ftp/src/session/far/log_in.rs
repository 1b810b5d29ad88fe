//! The commands by which the client has logged in. A server that is left at a question which the client has not asked is
//! connected again, and gets them again.

use crate::command::Command;

#[derive(Debug, Clone)]
pub(super) enum LogIn {
    /// Commands so far.
    Recorded(Vec<Vec<u8>>),
    /// All commands; how many have been repeated, and how often the server has refused them.
    Repeating {
        lines: Vec<Vec<u8>>,
        repeated: usize,
        attempts: u32,
    },
    /// The session has come too far to be repeated, or has been.
    Past,
}

/// A step of the repeated log-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Without its success there is no session.
    Needed,
    /// The server may have refused it the first time.
    Optional,
}

impl Step {
    /// The step that sends this verb.
    pub(super) fn of(verb: &str) -> Self {
        match ACCOUNT.contains(&verb) {
            true => Self::Needed,
            false => Self::Optional,
        }
    }
}

impl LogIn {
    /// Takes note of a command that the server is sent.
    pub(super) fn record(&mut self, line: &[u8]) {
        let Self::Recorded(lines) = self else {
            return;
        };
        let command = Command::parse(line);
        let verb = command.verb();
        if CHANGES_NOTHING.contains(&verb) {
            return;
        }
        if verb == "USER" {
            // An earlier account has no meaning any more.
            lines.retain(|line| !ACCOUNT.contains(&Command::parse(line).verb()));
        }
        if REPEATABLE.contains(&verb) && lines.len() < LINES_MAX {
            lines.push(line.to_vec());
        } else {
            *self = Self::Past;
        }
    }

    /// The client has asked for what cannot be repeated.
    pub(super) fn end(&mut self) {
        if self.is_recorded() {
            *self = Self::Past;
        }
    }

    /// Whether the session can be repeated.
    pub(super) fn is_recorded(&self) -> bool {
        matches!(self, Self::Recorded(_))
    }

    pub(super) fn is_repeating(&self) -> bool {
        matches!(self, Self::Repeating { .. })
    }

    /// Begins to repeat what is recorded.
    pub(super) fn repeat(&mut self) {
        let now = std::mem::replace(self, Self::Past);
        if let Self::Recorded(lines) = now {
            *self = Self::Repeating {
                lines,
                repeated: 0,
                attempts: 0,
            };
        }
    }

    /// The server has refused to let the session log in again. Returns how many times it had done so before, unless these
    /// were the last.
    pub(super) fn next_attempt(&mut self) -> Option<u32> {
        match self {
            Self::Repeating {
                repeated, attempts, ..
            } if *attempts < REFUSALS_MAX => {
                *repeated = 0;
                *attempts += 1;
                Some(*attempts - 1)
            }
            _ => None,
        }
    }

    /// The next command to repeat.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let Self::Repeating {
            lines, repeated, ..
        } = self
        else {
            return None;
        };
        let line = lines.get(*repeated).cloned();
        *repeated += 1;
        if line.is_none() {
            *self = Self::Past;
        }
        line
    }
}

/// Refusals after which another attempt to log in follows.
const REFUSALS_MAX: u32 = 4;

/// Commands that name an account.
const ACCOUNT: [&str; 3] = ["USER", "PASS", "ACCT"];

/// Commands whose repetition brings a new connection to the state of the first.
const REPEATABLE: [&str; 8] = [
    "USER", "PASS", "ACCT", "HOST", "CLNT", "LANG", "OPTS", "TYPE",
];

/// Commands that leave the state of a connection as it is.
const CHANGES_NOTHING: [&str; 7] = ["NOOP", "SYST", "FEAT", "PWD", "XPWD", "HELP", "STAT"];

/// Whether another connection that has logged in can get this command, although the server may have executed it on the
/// first.
pub(super) fn may_be_sent_again(command: &Command<'_>) -> bool {
    let verb = command.verb();
    CHANGES_NOTHING.contains(&verb) || SETS_DIRECTORY.contains(&verb) || verb == "TYPE"
}

/// Commands that change nothing but the directory of a connection.
const SETS_DIRECTORY: [&str; 4] = ["CWD", "XCWD", "CDUP", "XCUP"];

/// Commands of a log-in: `HOST`, `CLNT`, `OPTS`, `USER`, `PASS`, `ACCT`, and some more.
const LINES_MAX: usize = 16;
