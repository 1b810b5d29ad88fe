//! Questions asked ahead that the server does not answer in time.
//!
//! Servers answer in order. A marker follows such a question: a command whose reply answers no question. What comes until
//! then tells a server that is slow from one that leaves the question unanswered. Where it does not tell, the session
//! leaves the server and logs in again. So no late answer is taken for that to another command.

use super::{
    Class, Code, Entry, Expect, FarSession, InFlight, Lesson, Output, Protection,
    in_flight::Late,
    log_in::Step,
    marker::{MARKER, MARKER_CODE, Marker},
};
use crate::{
    command::Command,
    session::{Subject, ToNear},
};

impl FarSession {
    /// Sends the marker behind the question that has not been answered.
    pub(super) fn mark_question(&mut self) {
        if let Some(subject) = self.in_flight.mark_question() {
            self.dislikes(subject);
            self.send_line(MARKER.to_vec());
        }
    }

    /// A reply has come while the marker's is due. Returns what to expect next.
    pub(super) fn marker_heard(&mut self, mut marker: Marker, code: Code) -> Option<Expect> {
        if marker.is_farewell || !marker.heard(code) {
            return Some(Expect::Marker(marker));
        }
        // A server that answers out of order may still send the other one.
        if !marker.is_answered {
            self.in_flight.drop_late(Late::Answer(marker.subject));
        }
        if code != MARKER_CODE {
            self.in_flight.drop_late(Late::Marker);
        }
        None
    }

    /// The server is asked nothing ahead any more.
    fn dislikes(&mut self, subject: Subject) {
        if std::mem::replace(&mut self.dislikes_questions, true) {
            return;
        }
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
        let subject = match &self.in_flight.awaited()?.expect {
            Expect::Question(question) => question.subject,
            Expect::Marker(marker) => marker.subject,
            _ => return None,
        };
        self.log_in.is_recorded().then_some(subject)
    }

    /// Leaves a server at a question that the client has not asked, and logs in again.
    pub(super) fn reconnect(&mut self, subject: Subject) {
        self.dislikes(subject);
        self.log_in.repeat();
        let (id, verb, expect) = (None, String::new(), Expect::Repeated(Step::Needed));
        self.in_flight = InFlight::greeting(Entry { id, verb, expect });
        self.protection = Protection::new(self.manner.tls);
        self.doubtful = None;
        self.abort_prepared();
        self.out.push_back(Output::Reconnect);
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
