//! Record of the commands by which the client has logged in. If a prefetched command confuses the
//! server, the session reconnects and repeats the recorded commands.

use crate::{
    command::Command,
    reply::{ReplyClass, ReplyCode},
};

#[derive(Debug, Clone)]
pub(super) enum LogInRecord {
    /// Commands recorded so far. A command is removed when the server refuses it.
    Recorded(Vec<LogInStep>),
    /// State of the repeated log-in: all commands, the number of commands already repeated, and the
    /// number of retries.
    Relogin {
        steps: Vec<LogInStep>,
        repeated: usize,
        attempts: u32,
        /// Number that identifies the wait for the server. All log-in attempts share one wait, and
        /// thus one time limit.
        wait: u64,
    },
    /// The log-in cannot be repeated any more, or was already repeated.
    Past,
}

/// One command of the log-in.
#[derive(Debug, Clone)]
pub(super) struct LogInStep {
    pub(super) line: Vec<u8>,
    pub(super) verb: String,
    /// Class of the server's reply. On another connection, the server must reply at least as
    /// successfully. `None` before the reply.
    reply: Option<ReplyClass>,
}

impl LogInStep {
    /// Returns the class that the reply to this command must have on another connection.
    pub(super) fn needs(&self) -> ReplyClass {
        self.reply.unwrap_or(ReplyClass::Completed)
    }
}

/// Whether a reply of class `reply` is at least as successful as the recorded reply of class
/// `needs`.
pub(super) fn satisfies(reply: ReplyClass, needs: ReplyClass) -> bool {
    match needs {
        ReplyClass::Intermediate => {
            matches!(reply, ReplyClass::Completed | ReplyClass::Intermediate)
        }
        _ => reply == ReplyClass::Completed,
    }
}

impl LogInRecord {
    /// Records a command that the session sends to the server. A command that cannot be repeated
    /// ends the recording.
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
            // After another `USER`, an earlier account has no effect.
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

    /// Records the final reply to a command. If the command failed, the function removes it from
    /// the record.
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

    /// Ends the recording. The caller calls this when the client sends a command that cannot be
    /// repeated.
    pub(super) fn end(&mut self) {
        if self.is_recorded() {
            *self = Self::Past;
        }
    }

    /// Whether the log-in can be repeated.
    pub(super) fn is_recorded(&self) -> bool {
        matches!(self, Self::Recorded(_))
    }

    /// Whether the session is repeating its log-in.
    pub(super) fn is_in_relogin(&self) -> bool {
        matches!(self, Self::Relogin { .. })
    }

    /// Starts to repeat the recorded commands. `wait` is the number that identifies the wait that
    /// starts now.
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

    /// Returns the number that identifies the wait for the repeated log-in. Returns `None` if no
    /// log-in is being repeated.
    pub(super) fn wait(&self) -> Option<u64> {
        match self {
            Self::Relogin { wait, .. } => Some(*wait),
            _ => None,
        }
    }

    /// Starts another attempt after a refusal. Returns the number of earlier retries, or `None` if
    /// no further retry is permitted.
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

    /// Returns the next command to repeat. Returns `None` after the last command.
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

/// Maximum number of retries after the first attempt to log in again.
const RELOGIN_RETRIES_MAX: u32 = 4;

/// Commands that identify the account.
const ACCOUNT: [&str; 3] = ["USER", "PASS", "ACCT"];

/// Commands that restore the state of the old connection if the session sends them on a new
/// connection.
const REPEATABLE: [&str; 8] = [
    "USER", "PASS", "ACCT", "HOST", "CLNT", "LANG", "OPTS", "TYPE",
];

/// Commands that do not change the state of a connection.
const CHANGES_NOTHING: [&str; 7] = ["NOOP", "SYST", "FEAT", "PWD", "XPWD", "HELP", "STAT"];

/// Whether the session may send this command again on another connection. The server may already
/// have executed the command on the first connection.
pub(super) fn may_be_sent_again(command: &Command<'_>) -> bool {
    let verb = command.verb();
    CHANGES_NOTHING.contains(&verb) || SETS_DIRECTORY.contains(&verb) || verb == "TYPE"
}

/// Commands that change only the working directory of a connection.
const SETS_DIRECTORY: [&str; 4] = ["CWD", "XCWD", "CDUP", "XCUP"];

/// Maximum number of recorded commands. A log-in may consist of `HOST`, `CLNT`, `OPTS`, `USER`,
/// `PASS`, `ACCT` and a few more.
const STEPS_MAX: usize = 16;
