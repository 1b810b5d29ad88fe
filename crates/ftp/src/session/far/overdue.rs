//! Questions asked ahead that the server does not answer in time, or at which it leaves.
//!
//! Nothing else is under way then. What came next might be the late answer as well as the reply to another command, so the
//! session sends none: it leaves the server and logs in again, and asks nothing ahead any more. A session that cannot be
//! repeated waits for the answer.

use std::time::Duration;

use super::{
    Class, Code, Entry, Expect, FarSession, InFlight, Lesson, Output, Protection, log_in::Step,
};
use crate::{
    command::Command,
    session::{Subject, ToNear},
};

impl FarSession {
    /// The server has not answered the question in time.
    pub(super) fn question_overdue(&mut self, subject: Subject) {
        match self.log_in.is_recorded() {
            true => self.reconnect(subject),
            false => self.dislikes(subject),
        }
    }

    /// The server is asked nothing ahead any more.
    fn dislikes(&mut self, subject: Subject) {
        self.dislikes_questions = true;
        self.prefetch.stop();
        let lesson = Lesson::DislikesQuestions;
        self.out.push_back(Output::Learned(lesson));
        self.tell_near(ToNear::Prefetched {
            subject,
            answer: None,
            last: true,
        });
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
    pub(super) fn reconnect(&mut self, subject: Subject) {
        self.dislikes(subject);
        self.log_in.repeat();
        self.abort_prepared();
        self.out.push_back(Output::Leave);
        self.connect_again();
    }

    /// Connects to the server that the session has left.
    pub(super) fn connect_again(&mut self) {
        self.begin(Expect::Repeated(Step::Needed));
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
    pub(super) fn pauses(&mut self) -> bool {
        let pause = self.log_in.next_attempt();
        if let Some(attempt) = pause {
            self.out.push_back(Output::Leave);
            self.begin(Expect::Pause(FIRST_PAUSE * 2_u32.pow(attempt)));
        }
        pause.is_some()
    }

    /// The server has answered a step of the repeated log-in.
    pub(super) fn repeated(&mut self, step: Step, code: Code) {
        let is_refused = code.class() == Class::Failed;
        if code.0 == 421 || is_refused && step == Step::Needed {
            self.server_closed();
        } else if self.protection.is_done() {
            self.repeat();
        } else {
            let next = self.protection.greeted();
            self.protect(next);
        }
    }

    /// Sends the next step of the repeated log-in.
    pub(super) fn repeat(&mut self) {
        if let Some(line) = self.log_in.next() {
            let verb = Command::parse(&line).verb().to_owned();
            let expect = Expect::Repeated(Step::of(&verb));
            self.in_flight.push(None, &verb, expect);
            self.send_line(line);
        }
    }
}

/// Pause before the second attempt to log in again. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
