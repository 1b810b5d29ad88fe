//! The commands by which the client has logged in. They are repeated on another connection if the
//! session leaves the server because of a prefetched command.

use crate::{
    command::Command,
    reply::{ReplyClass, ReplyCode},
};

#[derive(Debug, Clone)]
pub(super) enum LogInRecord {
    /// Commands so far, without failed ones.
    Recorded(Vec<LogInStep>),
    /// All commands, the number of repeated ones, and the number of refusals.
    Relogin {
        steps: Vec<LogInStep>,
        repeated: usize,
        attempts: u32,
        /// Number of the one wait for all attempts.
        wait: u64,
    },
    /// The session cannot be repeated any more, or was repeated already.
    Past,
}

/// A command of the log-in.
#[derive(Debug, Clone)]
pub(super) struct LogInStep {
    pub(super) line: Vec<u8>,
    pub(super) verb: String,
    /// Class of the reply, which the server must repeat on another connection. `None` before the
    /// reply.
    reply: Option<ReplyClass>,
}

impl LogInStep {
    /// Returns the class of the reply on the first connection.
    pub(super) fn needs(&self) -> ReplyClass {
        self.reply.unwrap_or(ReplyClass::Completed)
    }
}

/// Whether a step with this reply has the same result as on the first connection.
pub(super) fn satisfies(reply: ReplyClass, needs: ReplyClass) -> bool {
    match needs {
        ReplyClass::Intermediate => {
            matches!(reply, ReplyClass::Completed | ReplyClass::Intermediate)
        }
        _ => reply == ReplyClass::Completed,
    }
}

impl LogInRecord {
    /// Records a command for the server.
    pub(super) fn record(&mut self, line: &[u8]) {
        let Self::Recorded(steps) = self else {
            return;
        };
        let command = Command::parse(line);
        let verb = command.verb();
        if CHANGES_NOTHING.contains(&verb) {
            return;
        }
        if verb == "USER" {
            // An earlier account has no effect any more.
            steps.retain(|step| !ACCOUNT.contains(&step.verb.as_str()));
        }
        if REPEATABLE.contains(&verb) && steps.len() < STEPS_MAX {
            steps.push(LogInStep {
                line: line.to_vec(),
                verb: verb.to_owned(),
                reply: None,
            });
        } else {
            *self = Self::Past;
        }
    }

    /// Records the final reply to a command. A failed command is not repeated.
    pub(super) fn answered(&mut self, verb: &str, code: ReplyCode) {
        let Self::Recorded(steps) = self else {
            return;
        };
        let is_it = |step: &LogInStep| step.reply.is_none() && step.verb == verb;
        if let Some(at) = steps.iter().position(is_it) {
            match code.class() {
                ReplyClass::Failed => {
                    steps.remove(at);
                }
                class => steps[at].reply = Some(class),
            }
        }
    }

    /// Ends the recording, since the client has sent a command that cannot be repeated.
    pub(super) fn end(&mut self) {
        if self.is_recorded() {
            *self = Self::Past;
        }
    }

    /// Whether the session can be repeated.
    pub(super) fn is_recorded(&self) -> bool {
        matches!(self, Self::Recorded(_))
    }

    /// Whether the session is logging in again.
    pub(super) fn is_in_relogin(&self) -> bool {
        matches!(self, Self::Relogin { .. })
    }

    /// Starts to repeat the recorded steps. `wait` is the number of the wait that starts now.
    pub(super) fn begin_relogin(&mut self, wait: u64) {
        let now = std::mem::replace(self, Self::Past);
        if let Self::Recorded(steps) = now {
            *self = Self::Relogin {
                steps,
                repeated: 0,
                attempts: 0,
                wait,
            };
        }
    }

    /// Returns the number of the wait for the repeated log-in.
    pub(super) fn wait(&self) -> Option<u64> {
        match self {
            Self::Relogin { wait, .. } => Some(*wait),
            _ => None,
        }
    }

    /// Starts another attempt after a refusal. Returns the number of retries before it, or `None`
    /// after the last.
    pub(super) fn next_attempt(&mut self) -> Option<u32> {
        match self {
            Self::Relogin {
                repeated, attempts, ..
            } if *attempts < RELOGIN_RETRIES_MAX => {
                *repeated = 0;
                *attempts += 1;
                Some(*attempts - 1)
            }
            _ => None,
        }
    }

    /// Returns the next command to repeat.
    pub(super) fn next(&mut self) -> Option<LogInStep> {
        let Self::Relogin {
            steps, repeated, ..
        } = self
        else {
            return None;
        };
        let step = steps.get(*repeated).cloned();
        *repeated += 1;
        if step.is_none() {
            *self = Self::Past;
        }
        step
    }
}

/// Attempts to log in again after the first.
const RELOGIN_RETRIES_MAX: u32 = 4;

/// Commands that name an account.
const ACCOUNT: [&str; 3] = ["USER", "PASS", "ACCT"];

/// Commands that bring a new connection to the state of the first one.
const REPEATABLE: [&str; 8] = [
    "USER", "PASS", "ACCT", "HOST", "CLNT", "LANG", "OPTS", "TYPE",
];

/// Commands that do not change the state of a connection.
const CHANGES_NOTHING: [&str; 7] = ["NOOP", "SYST", "FEAT", "PWD", "XPWD", "HELP", "STAT"];

/// Whether this command may be sent on another connection, although the server may have executed it
/// on the first.
pub(super) fn may_be_sent_again(command: &Command<'_>) -> bool {
    let verb = command.verb();
    CHANGES_NOTHING.contains(&verb) || SETS_DIRECTORY.contains(&verb) || verb == "TYPE"
}

/// Commands that change only the directory of a connection.
const SETS_DIRECTORY: [&str; 4] = ["CWD", "XCWD", "CDUP", "XCUP"];

/// Commands of a log-in: `HOST`, `CLNT`, `OPTS`, `USER`, `PASS`, `ACCT`, and some more.
const STEPS_MAX: usize = 16;
