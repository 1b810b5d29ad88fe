//! Questions asked ahead that the server does not answer in time or answers twice, or at which it leaves.
//!
//! The session has nothing else in flight while it asks a question. A reply behind an overdue answer is ambiguous: it may be
//! the late answer or the reply to another command. The session therefore leaves the server, logs in again and asks nothing
//! ahead any more. A session that cannot log in again waits for a late answer, and ends at a second one.

use std::time::Duration;

use super::{
    Class, Code, DataWay, Entry, Expect, FarSession, InFlight, Lesson, LogIn, Output, Protection,
    Request,
    log_in::{self, Step},
    reply_buffer::ReplyBuffer,
};
use crate::{
    command::Command,
    session::{Subject, ToNear},
};

impl FarSession {
    /// The server has not answered the question in time.
    pub(super) fn question_overdue(&mut self, subject: Subject) {
        match self.log_in.is_recorded() {
            true => self.reconnect(Some(subject)),
            false => self.stop_questions(Some(subject)),
        }
    }

    /// Asks the server nothing ahead any more. The near half is told of the question that has no answer.
    fn stop_questions(&mut self, unanswered: Option<Subject>) {
        self.dislikes_questions = true;
        let unanswered = unanswered.or_else(|| self.prefetch.next().map(|next| next.subject));
        self.prefetch.stop();
        let lesson = Lesson::DislikesQuestions;
        self.out.push_back(Output::Learned(lesson));
        if let Some(subject) = unanswered {
            self.tell_near(ToNear::Prefetched {
                subject,
                answer: None,
                last: true,
            });
        }
    }

    /// The server has answered this question, or has begun the answer, out of step with what it was asked.
    pub(super) fn answered_out_of_step(&mut self, subject: Subject) {
        match self.log_in.is_recorded() {
            true => self.reconnect(Some(subject)),
            false => {
                self.stop_questions(Some(subject));
                self.end_unanswerable(OUT_OF_STEP);
            }
        }
    }

    /// A reply has begun that may be the second answer to a question.
    pub(super) fn duplicate_begun(&mut self) {
        match self.in_flight.awaited().map(|entry| &entry.expect) {
            // It is dropped.
            None => self.stop_questions(None),
            Some(Expect::Question(question)) => self.answered_out_of_step(question.subject),
            Some(Expect::Protection(_)) if self.log_in.is_recorded() => self.reconnect(None),
            Some(_) => match self.repeatable.take() {
                Some((request, log_in)) => {
                    self.log_in = log_in;
                    self.queue.push_front(request);
                    self.reconnect(None);
                }
                None => {
                    self.stop_questions(None);
                    self.end_unanswerable(OUT_OF_STEP);
                }
            },
        }
    }

    /// The request that is about to be sent, and the log-in before it, if the server may answer a question twice now and
    /// another connection can get both.
    pub(super) fn repeatable_with(&self, request: &Request) -> Option<(Request, LogIn)> {
        let is_next = self.in_flight.is_empty() && self.in_flight.may_be_answered_twice();
        let is_repeatable = match request {
            Request::Command { line, .. } => log_in::may_be_sent_again(&Command::parse(line)),
            Request::Data { .. } => {
                self.manner.data == DataWay::Passive && !self.substitute.is_first_choice()
            }
        };
        (is_next && is_repeatable && self.log_in.is_recorded())
            .then(|| (request.clone(), self.log_in.clone()))
    }

    /// The question that is not the client's and at which the session can leave the server.
    pub(super) fn repeatable_question(&self) -> Option<Subject> {
        match &self.in_flight.awaited()?.expect {
            Expect::Question(question) => Some(question.subject),
            _ => None,
        }
        .filter(|_| self.log_in.is_recorded())
    }

    /// Leaves a server at a question that the client has not asked, and logs in again.
    pub(super) fn reconnect(&mut self, unanswered: Option<Subject>) {
        self.stop_questions(unanswered);
        if self.client_gone && self.queue.is_empty() {
            return self.close();
        }
        self.heard += 1;
        self.log_in.repeat(self.heard);
        self.abort_prepared();
        self.out.push_back(Output::Leave);
        self.connect_again();
    }

    /// Connects to the server that the session has left.
    pub(super) fn connect_again(&mut self) {
        self.begin(Expect::Repeated(Class::Completed, ReplyBuffer::default()));
        self.protection = Protection::new(self.manner.tls);
        self.out.push_back(Output::Reconnect);
    }

    fn begin(&mut self, expect: Expect) {
        let (id, verb) = (None, String::new());
        self.in_flight = InFlight::greeting(Entry { id, verb, expect });
        self.doubtful = None;
    }

    /// Leaves a server that does not let the session log in again, and waits before the next attempt: it may not have
    /// noticed yet that the connection before has ended. Returns whether there is another attempt.
    fn pause(&mut self) -> bool {
        let pause = self.log_in.next_attempt();
        if let Some(attempt) = pause {
            self.out.push_back(Output::Leave);
            self.begin(Expect::Pause(PAUSE * (2_u32.pow(attempt + 1) - 1)));
        }
        pause.is_some()
    }

    /// The server has not let the session log in again: tries once more, or ends the session.
    pub(super) fn refused_again(&mut self, why: &str) {
        if !self.pause() {
            self.end_log_in(&format!("the server refuses to log in again: {why}"));
        }
    }

    /// Answers the client's next command by 421, and ends the session.
    pub(super) fn end_log_in(&mut self, why: &str) {
        if let Some(id) = self.queue.first_unanswered() {
            self.answer(id, None, &format!("421 gateway: {why}"));
        }
        self.end_server();
    }

    /// The server has answered a step of the repeated log-in.
    pub(super) fn repeated(&mut self, needs: Class, held: &ReplyBuffer, code: Code) {
        if code.0 == 421 || !log_in::is_as_good(code.class(), needs) {
            self.refused_again(&held.quoted());
        } else if self.protection.is_done() {
            self.repeat();
        } else {
            let next = self.protection.greeted();
            self.protect(next);
        }
    }

    /// Sends the next step of the repeated log-in.
    pub(super) fn repeat(&mut self) {
        if let Some(step) = self.log_in.next() {
            let expect = Expect::Repeated(step.needs(), ReplyBuffer::default());
            let Step { line, verb, .. } = step;
            self.in_flight.push(None, &verb, expect);
            self.send_line(line);
        }
    }
}

/// Why a session ends that has heard an answer too many.
const OUT_OF_STEP: &str = "the server answers out of step; log in again";

/// Time from the first attempt to log in again to the second. Each further one comes after twice the time.
const PAUSE: Duration = Duration::from_secs(1);
