//! Recovery from servers that do not reply correctly to prefetched commands: they reply late, reply
//! twice, or end the session.
//!
//! While the session waits for the reply to a prefetched command, no other command is in flight.
//! Once that reply is overdue, the next reply is ambiguous: it may belong to the prefetched command
//! or to another command. The session therefore disconnects, logs in again, and sends no further
//! prefetched commands. A session that cannot log in again waits for the late reply. Such a session
//! ends if a second reply arrives.

use std::time::Duration;

use super::{
    CommandInFlight, DataOpener, ExpectedReply, FarOutput, FarSession, InFlight, LearnedTrait,
    LogInRecord, ReplyClass, ReplyCode, ServerProtection, ServerRequest,
    log_in::{self, LogInStep},
    reply_buffer::ReplyBuffer,
};
use crate::{
    command::Command,
    session::{MessageToNear, QuestionSubject},
};

impl FarSession {
    /// Handles a prefetched command whose reply did not arrive in time.
    pub(super) fn on_question_overdue(&mut self, subject: QuestionSubject) {
        match self.log_in.is_recorded() {
            true => self.reconnect(Some(subject)),
            false => self.stop_questions(Some(subject)),
        }
    }

    /// Stops prefetching. If a prefetched command has no reply, the function reports the missing
    /// reply to the near gateway.
    fn stop_questions(&mut self, unanswered: Option<QuestionSubject>) {
        self.dislikes_questions = true;
        let unanswered = unanswered.or_else(|| self.prefetch.next().map(|next| next.subject));
        self.prefetch.stop();
        let learned_trait = LearnedTrait::DislikesQuestions;
        self.out.push_back(FarOutput::Learned(learned_trait));
        if let Some(subject) = unanswered {
            self.send_to_near(MessageToNear::Prefetched {
                subject,
                answer: None,
                last: true,
            });
        }
    }

    /// Handles a server that may have replied twice to an earlier prefetched command. `subject` is
    /// the prefetched command whose reply is still missing. The session disconnects, and logs in
    /// again if possible.
    pub(super) fn answered_out_of_step(&mut self, subject: QuestionSubject) {
        match self.log_in.is_recorded() {
            true => self.reconnect(Some(subject)),
            false => {
                self.stop_questions(Some(subject));
                self.end_unanswerable(OUT_OF_STEP);
            }
        }
    }

    /// Handles the first line of a reply that may be a second reply to a prefetched command.
    pub(super) fn on_duplicate_begun(&mut self) {
        match self.in_flight.awaited().map(|entry| &entry.expect) {
            // No command awaits the line, so it is dropped.
            None => self.stop_questions(None),
            Some(ExpectedReply::Question(question)) => self.answered_out_of_step(question.subject),
            Some(ExpectedReply::Protection(_)) if self.log_in.is_recorded() => self.reconnect(None),
            Some(_) => match self.resendable.take() {
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

    /// Returns `request` and the present log-in record, if the session may send both on another
    /// connection. Returns `None` if the session must not send them again. Also returns `None` if
    /// no second reply to a prefetched command can arrive.
    pub(super) fn resendable_with(
        &self,
        request: &ServerRequest,
    ) -> Option<(ServerRequest, LogInRecord)> {
        let is_next = self.in_flight.is_empty() && self.in_flight.may_be_answered_twice();
        let is_repeatable = match request {
            ServerRequest::Command { line, .. } => log_in::may_be_sent_again(&Command::parse(line)),
            ServerRequest::Data { .. } => {
                self.setup.data == DataOpener::Passive && !self.substitute.is_first_choice()
            }
        };
        (is_next && is_repeatable && self.log_in.is_recorded())
            .then(|| (request.clone(), self.log_in.clone()))
    }

    /// Returns the prefetched command that waits for its reply, if the session can log in again.
    pub(super) fn repeatable_question(&self) -> Option<QuestionSubject> {
        match &self.in_flight.awaited()?.expect {
            ExpectedReply::Question(question) => Some(question.subject),
            _ => None,
        }
        .filter(|_| self.log_in.is_recorded())
    }

    /// Disconnects from the server because of a prefetched command, and logs in again.
    pub(super) fn reconnect(&mut self, unanswered: Option<QuestionSubject>) {
        self.stop_questions(unanswered);
        if self.client_gone && self.queue.is_empty() {
            return self.close();
        }
        self.heard += 1;
        self.log_in.begin_relogin(self.heard);
        self.abort_prepared();
        self.out.push_back(FarOutput::Leave);
        self.connect_again();
    }

    /// Connects again to the server from which the session has disconnected.
    pub(super) fn connect_again(&mut self) {
        self.await_only(ExpectedReply::Relogin(
            ReplyClass::Completed,
            ReplyBuffer::default(),
        ));
        self.protection = ServerProtection::new(self.setup.tls);
        self.out.push_back(FarOutput::Reconnect);
    }

    fn await_only(&mut self, expect: ExpectedReply) {
        let (id, verb) = (None, String::new());
        self.in_flight = InFlight::greeting(CommandInFlight { id, verb, expect });
        self.doubtful = None;
    }

    /// Disconnects from a server that refuses the repeated log-in, and pauses before the next
    /// attempt. Perhaps the server has not detected the end of the earlier connection yet. Returns
    /// whether another attempt follows.
    fn pause_relogin(&mut self) -> bool {
        let pause = self.log_in.next_attempt();
        if let Some(attempt) = pause {
            self.out.push_back(FarOutput::Leave);
            self.await_only(ExpectedReply::Pause(
                RETRY_PAUSE * (2_u32.pow(attempt + 1) - 1),
            ));
        }
        pause.is_some()
    }

    /// Handles a refusal of the repeated log-in. The session makes another attempt, or ends.
    pub(super) fn relogin_refused(&mut self, why: &str) {
        if !self.pause_relogin() {
            self.end_relogin(&format!("the server refuses to log in again: {why}"));
        }
    }

    /// Replies with 421 to the client's next command, and ends the session.
    pub(super) fn end_relogin(&mut self, why: &str) {
        if let Some(id) = self.queue.first_unanswered() {
            self.answer(id, None, &format!("421 gateway: {why}"));
        }
        self.end_server();
    }

    /// Handles the reply to a command of the repeated log-in.
    pub(super) fn on_relogin_reply(
        &mut self,
        needs: ReplyClass,
        held: &ReplyBuffer,
        code: ReplyCode,
    ) {
        if code.0 == 421 || !log_in::satisfies(code.class(), needs) {
            self.relogin_refused(&held.quoted());
        } else if self.protection.is_done() {
            self.send_next_step();
        } else {
            let next = self.protection.greeted();
            self.protect(next);
        }
    }

    /// Sends the next command of the repeated log-in.
    pub(super) fn send_next_step(&mut self) {
        if let Some(step) = self.log_in.next() {
            let expect = ExpectedReply::Relogin(step.needs(), ReplyBuffer::default());
            let LogInStep { line, verb, .. } = step;
            self.in_flight.push(None, &verb, expect);
            self.send_line(line);
        }
    }
}

/// Reason that the `421` reply states if the server may have replied twice.
const OUT_OF_STEP: &str = "the server's replies are out of order; log in again";

/// Interval between the first and the second attempt to log in again. Each further interval is
/// twice as long as the preceding interval.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
