//! Fast mode beside the server: what is asked ahead of the client, and after which of its commands.

use std::collections::VecDeque;

use crate::{
    command::Command,
    reply::{Class, Code},
    session::{Mode, Subject},
};

#[derive(Debug)]
pub(super) struct Prefetch {
    mode: Mode,
    logged_in: bool,
    questions: VecDeque<Subject>,
}

/// What the success of a command lets the gateway ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The client is logged in.
    LogIn,
    /// The working directory is another, or has another name.
    Directory,
    Nothing,
}

impl Prefetch {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            mode,
            logged_in: false,
            questions: VecDeque::new(),
        }
    }

    /// Takes note of a command that the server is sent.
    pub(super) fn cause(&mut self, command: &Command<'_>) -> Cause {
        if matches!(command.verb(), "USER" | "REIN" | "HOST") {
            self.logged_in = false;
        }
        match command.verb() {
            "USER" | "PASS" | "ACCT" => Cause::LogIn,
            "CWD" | "CDUP" | "XCWD" | "XCUP" => Cause::Directory,
            "OPTS" if starts_with(command.argument(), b"UTF8") => Cause::Directory,
            _ => Cause::Nothing,
        }
    }

    /// The server has answered a command. Returns whether something is asked now.
    pub(super) fn answered(&mut self, cause: Cause, code: Code) -> bool {
        if self.mode == Mode::Strict {
            return false;
        }
        let questions: &[Subject] = match cause {
            Cause::LogIn if matches!(code.0, 202 | 230 | 232) => {
                self.logged_in = true;
                &[Subject::System, Subject::Features, Subject::Directory]
            }
            Cause::Directory if self.logged_in && code.class() == Class::Completed => {
                &[Subject::Directory]
            }
            _ => &[],
        };
        self.questions.extend(questions);
        !questions.is_empty()
    }

    /// The next question.
    pub(super) fn next(&mut self) -> Option<Subject> {
        self.questions.pop_front()
    }

    /// Whether no question is left.
    pub(super) fn is_done(&self) -> bool {
        self.questions.is_empty()
    }
}

fn starts_with(argument: &[u8], word: &[u8]) -> bool {
    argument
        .get(..word.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(word))
}
