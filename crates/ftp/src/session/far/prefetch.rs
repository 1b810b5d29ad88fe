//! Prefetched commands of fast mode. After a log-in or a change of directory, the far gateway sends
//! these commands before the client does.

use std::collections::VecDeque;

use super::reply_buffer::ReplyBuffer;
use crate::{
    command::Command,
    reply::{ReplyClass, ReplyCode},
    session::{QuestionSubject, SessionMode},
};

#[derive(Debug)]
pub(super) struct Prefetch {
    logged_in: bool,
    /// Whether prefetching is off in this session.
    is_off: bool,
    questions: VecDeque<(QuestionCause, QuestionSubject)>,
    /// Commands that were prefetched since the latest event that permits prefetching.
    asked: Vec<QuestionSubject>,
    /// Whether the server has refused one of the commands in `asked`.
    has_refused: bool,
}

/// A prefetched command. The gateway sends it to the server before the client requests it.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) subject: QuestionSubject,
    cause: QuestionCause,
    pub(super) held: ReplyBuffer,
    /// Number that identifies the wait for the reply to this command.
    pub(super) wait: u64,
    /// Whether the server ended the session instead of replying to the command.
    pub(super) is_farewell: bool,
}

impl Question {
    /// Whether a reply with `code` is a second reply to the client's preceding command. Some
    /// servers reply twice.
    pub(super) fn is_stray(&self, code: ReplyCode) -> bool {
        match self.cause {
            QuestionCause::LogIn => matches!(code.0, 202 | 220 | 230 | 232),
            QuestionCause::Directory => matches!(code.0, 200 | 250),
            QuestionCause::Nothing => false,
        }
    }

    /// Whether a reply with `code` is a successful reply to this command.
    pub(super) fn is_answer(&self, code: ReplyCode) -> bool {
        code == self.subject.answer_code()
    }
}

/// Event after which the gateway sends prefetched commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuestionCause {
    /// The client has logged in.
    LogIn,
    /// The working directory, or the encoding of its name, has changed.
    Directory,
    Nothing,
}

impl Prefetch {
    pub(super) fn new(mode: SessionMode) -> Self {
        Self {
            logged_in: false,
            is_off: mode == SessionMode::Strict,
            questions: VecDeque::new(),
            asked: Vec::new(),
            has_refused: false,
        }
    }

    /// Records a command that the session sends to the server. Returns the event that occurs if the
    /// command succeeds.
    pub(super) fn cause(&mut self, command: &Command<'_>) -> QuestionCause {
        if matches!(command.verb(), "USER" | "REIN" | "HOST") {
            self.logged_in = false;
        }
        match command.verb() {
            "USER" | "PASS" | "ACCT" => QuestionCause::LogIn,
            "CWD" | "CDUP" | "XCWD" | "XCUP" => QuestionCause::Directory,
            "OPTS" if starts_with(command.argument(), b"UTF8") => QuestionCause::Directory,
            _ => QuestionCause::Nothing,
        }
    }

    /// Records the final reply to a command. Returns whether the session now sends prefetched
    /// commands.
    pub(super) fn answered(&mut self, cause: QuestionCause, code: ReplyCode) -> bool {
        if self.is_off {
            return false;
        }
        let questions: &[QuestionSubject] = match cause {
            QuestionCause::LogIn if matches!(code.0, 202 | 230 | 232) => {
                self.logged_in = true;
                &[
                    QuestionSubject::System,
                    QuestionSubject::Features,
                    QuestionSubject::Directory,
                ]
            }
            QuestionCause::Directory if self.logged_in && code.class() == ReplyClass::Completed => {
                &[QuestionSubject::Directory]
            }
            _ => &[],
        };
        let questions = questions.iter().map(|subject| (cause, *subject));
        self.questions.extend(questions.clone());
        if questions.len() > 0 {
            self.asked.clear();
            self.has_refused = false;
        }
        questions.len() > 0
    }

    /// Removes and returns the next prefetched command. Returns `None` if none is queued.
    pub(super) fn next(&mut self) -> Option<Question> {
        let (cause, subject) = self.questions.pop_front()?;
        self.asked.push(subject);
        Some(Question {
            subject,
            cause,
            held: ReplyBuffer::default(),
            wait: 0,
            is_farewell: false,
        })
    }

    /// Records the reply to a prefetched command. Returns whether the server may have replied twice
    /// to an earlier prefetched command.
    ///
    /// The function returns `true` only after the server has refused a prefetched command. In
    /// addition, this reply must have the code of a successful reply to another prefetched command,
    /// or be a refusal of `PWD`. Such a refusal is suspicious, because every server supports `PWD`.
    pub(super) fn is_out_of_step(&mut self, subject: QuestionSubject, code: ReplyCode) -> bool {
        let is_refusal = code.class() == ReplyClass::Failed;
        let mut others = self.asked.iter().filter(|it| **it != subject);
        let is_of_another = others.any(|it| it.answer_code() == code);
        let is_odd = is_of_another || is_refusal && subject == QuestionSubject::Directory;
        let is_out_of_step = self.has_refused && is_odd;
        self.has_refused |= is_refusal;
        is_out_of_step
    }

    /// Stops prefetching for this session.
    pub(super) fn stop(&mut self) {
        self.is_off = true;
        self.questions.clear();
    }

    /// Whether the queue of prefetched commands is empty.
    pub(super) fn is_done(&self) -> bool {
        self.questions.is_empty()
    }
}

fn starts_with(argument: &[u8], word: &[u8]) -> bool {
    argument
        .get(..word.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(word))
}
