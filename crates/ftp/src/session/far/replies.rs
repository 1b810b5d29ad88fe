//! What the server says: which command it answers, and what becomes of each line.

use super::{
    CommandId, Entry, Expect, FarSession, Found, Greeted, Greeting, Order, Output, Question,
    ReplyBuffer, Stage, Tag, ToNear, TransferId, in_flight::stage_of,
};
use crate::reply::{Class, Code, Place, leading_code};

impl FarSession {
    pub(super) fn server_line(&mut self, line: &[u8]) {
        let open = self.doubtful.as_ref().map(|(_, place)| place.code);
        if open.is_some_and(|open| self.in_flight.begins_next(line, open)) {
            self.end_doubtful();
        }
        if let Some((line, place)) = self.doubtful.take() {
            // Text inside its reply: another line follows.
            self.placed_line(&line, place);
        }
        let place = self.in_flight.place(line);
        if place.first && self.in_flight.is_duplicate() {
            self.duplicate_begun();
            if !self.in_flight.is_duplicate() {
                return;
            }
        }
        if place.in_doubt {
            self.doubtful = Some((line.to_vec(), place));
        } else {
            self.placed_line(line, place);
        }
    }

    /// Nothing has followed a line in doubt: it is the last of its reply, and its code counts.
    pub(super) fn end_doubtful(&mut self) {
        let Some((line, place)) = self.doubtful.take() else {
            return;
        };
        self.in_flight.end_in_doubt();
        let code = leading_code(&line).or(place.code);
        let last = true;
        self.placed_line(
            &line,
            Place {
                code,
                last,
                ..place
            },
        );
    }

    fn placed_line(&mut self, line: &[u8], place: Place) {
        let Some(code) = place.code else {
            // Outside any reply.
            if self.log_in.is_in_relogin() {
                return;
            }
            let tag = Tag {
                command: None,
                transfer: None,
                stage: Stage::Final,
                code: 0,
                last: true,
                prefetches: false,
            };
            return self.reply(tag, line.to_vec());
        };
        self.is_logged_in |= matches!(code.0, 230 | 232) && place.last;
        if !self.keeps(line, code) {
            let prefetches = place.last && self.prefetches(code);
            let (command, transfer) = self.answered_by(code);
            if let (Some(transfer), Stage::Final) = (transfer, stage_of(code)) {
                let succeeded = code.class() == Class::Completed;
                match code.0 {
                    425 => self.substitute_failed(transfer),
                    _ if succeeded && place.last => self.substitute_succeeded(transfer),
                    _ => {}
                }
                let worth = self.connections.answered(transfer, succeeded);
                self.report_upload(transfer, worth);
            }
            let tag = Tag {
                command,
                transfer,
                stage: stage_of(code),
                code: code.0,
                last: place.last,
                prefetches,
            };
            match self.overtaking(&tag) {
                Some(id) => self.early.push_back((id, tag, line.to_vec())),
                None => self.reply(tag, line.to_vec()),
            }
        }
        if place.last {
            self.reply_ended(code);
        }
    }

    /// The `ABOR` that the open reply answers before what the client has sent before it.
    pub(super) fn overtaking(&mut self, tag: &Tag) -> Option<CommandId> {
        let is_abort = matches!(self.in_flight.answering()?.expect, Expect::Abort);
        let id = tag.command.filter(|_| is_abort)?;
        (self.is_early(id, tag) && self.early.len() < EARLY_LINES_MAX).then_some(id)
    }

    /// Whether the answer to `ABOR` must wait: for those to earlier commands, and if it denies that there is a
    /// transfer, for what becomes of the one that has not been answered.
    fn is_early(&self, id: CommandId, tag: &Tag) -> bool {
        self.queue.has_earlier(id)
            || self.in_flight.has_earlier(id)
            || tag.code == DENIES_TRANSFER && self.transfer_running() && !self.server_gone
    }

    /// A server that denies a transfer which it has not answered answers it no more, as pyftpdlib does while it
    /// waits for the data connection: when that is over, the gateway answers.
    pub(super) fn end_denied(&mut self) {
        let denies = |(_, tag, _): &(CommandId, Tag, Vec<u8>)| tag.code == DENIES_TRANSFER;
        if !self.early.front().is_some_and(denies) || self.in_flight.is_answering() {
            return;
        }
        let Some(transfer) = self.in_flight.transfers().next() else {
            return;
        };
        if !self.connections.is_open(transfer) {
            let id = self.in_flight.forget(transfer);
            self.end_unanswered(id, transfer);
        }
    }

    /// Ends an aborted transfer in place of the server, which says nothing of it.
    pub(super) fn end_unanswered(&mut self, id: Option<CommandId>, transfer: TransferId) {
        let worth = self.connections.answered(transfer, false);
        self.report_upload(transfer, worth);
        if let Some(id) = id {
            let text = "426 gateway: aborted; the server has nothing to say of it";
            self.answer(id, Some(transfer), text);
        }
    }

    /// Relays the answers to `ABOR` whose turn has come; those to commands `before` one that is about to be answered.
    pub(super) fn relay_early(&mut self, before: Option<CommandId>) {
        while let Some((id, tag, _)) = self.early.front() {
            let comes_later = before.is_some_and(|before| *id > before);
            if comes_later || self.is_early(*id, tag) {
                return;
            }
            if let Some((_, tag, line)) = self.early.pop_front() {
                self.reply(tag, line);
            }
        }
    }

    /// Whether the open reply, which has this code, lets the gateway ask ahead.
    pub(super) fn prefetches(&mut self, code: Code) -> bool {
        match self.in_flight.answering().map(|entry| &entry.expect) {
            Some(Expect::Plain(cause)) => self.prefetch.answered(*cause, code),
            _ => false,
        }
    }

    /// Keeps a line of a reply that is not relayed as it comes.
    pub(super) fn keeps(&mut self, line: &[u8], code: Code) -> bool {
        let is_farewell = matches!(code.0, 221 | 421);
        let repeats = self.log_in.is_recorded();
        let is_in_relogin = self.log_in.is_in_relogin();
        let held = match self.in_flight.answering().map(|entry| &mut entry.expect) {
            Some(Expect::Late(_) | Expect::Duplicate | Expect::DuplicateLogIn) => return true,
            // A server that ends the session at a question gets none on another connection.
            Some(Expect::Question(question)) if is_farewell && repeats => {
                question.is_farewell = true;
                &mut question.held
            }
            Some(Expect::Pause(_)) => return true,
            // If the repeated log-in fails, the client gets 421.
            Some(Expect::Relogin(_, held)) => held,
            Some(Expect::Protection(held)) if is_in_relogin => held,
            Some(Expect::Greeting(greeting)) => &mut greeting.held,
            Some(Expect::DataPort(asked)) => &mut asked.held,
            Some(Expect::Type(_, false)) => return false,
            // A server that takes its leave answers nobody's question.
            Some(Expect::Type(..) | Expect::Question(_) | Expect::Protection(_))
                if code.0 == 421 =>
            {
                return false;
            }
            Some(Expect::Question(question)) => &mut question.held,
            Some(Expect::Type(held, _) | Expect::Protection(held)) => held,
            _ => return false,
        };
        held.push(line);
        true
    }

    /// The command that the open reply, whose code is given, answers; and its transfer.
    pub(super) fn answered_by(&mut self, code: Code) -> (Option<CommandId>, Option<TransferId>) {
        let Some(entry) = self.in_flight.answering() else {
            return (None, None);
        };
        // A verb that is unknown here, but starts a transfer on the prepared connection.
        if matches!(entry.expect, Expect::Plain(_))
            && matches!(code.0, 125 | 150)
            && let Found::Connection(transfer) = self.prepared.take()
        {
            let begun = true;
            entry.expect = Expect::Transfer { transfer, begun };
            let order = Order::Commanded(None);
            self.out.push_back(Output::Order(transfer, order));
        }
        match entry.expect {
            Expect::Transfer { transfer, .. } => (entry.id, Some(transfer)),
            _ => (entry.id, None),
        }
    }

    pub(super) fn reply_ended(&mut self, code: Code) {
        let Some((index, entry)) = self.in_flight.reply_ended() else {
            return;
        };
        let Entry {
            id,
            verb,
            mut expect,
        } = entry;
        let is_preliminary = stage_of(code) == Stage::Preliminary;
        if is_preliminary && let Some(held) = expect.held_mut() {
            *held = ReplyBuffer::default();
            return self.in_flight.keep(index, Entry { id, verb, expect });
        }
        if !is_preliminary {
            self.log_in.answered(&verb, code);
        }
        if self.in_flight.is_passed_over(index)
            && !is_preliminary
            && let Some(id) = self.in_flight.pass_abort()
        {
            // The server answers in order, and has passed it over.
            self.abort_prepared();
            self.tell_near(ToNear::LeftUnanswered(id));
        }
        let then = match expect {
            Expect::Plain(_) | Expect::Begun => {
                if !is_preliminary && id.is_some() && id == self.forgets_protection {
                    self.forgets_protection = None;
                    self.protection.forget();
                }
                is_preliminary.then_some(Expect::Begun)
            }
            Expect::Quit | Expect::Abort if is_preliminary => Some(expect),
            Expect::Quit => None,
            Expect::Abort => {
                self.abort_prepared();
                None
            }
            Expect::Greeted if is_preliminary => Some(expect),
            Expect::Greeted => {
                if code.class() == Class::Completed {
                    let next = self.protection.greeted();
                    self.protect(next);
                } else {
                    // Nothing more is to be expected of such a server.
                    self.server_refused = true;
                }
                None
            }
            Expect::Protection(held) => {
                let next = self.protection.answered(code, &held);
                self.protect(next);
                None
            }
            Expect::Transfer { transfer, .. } if is_preliminary => {
                if self.protection.is_private() {
                    self.order(transfer, Order::Begin);
                }
                Some(Expect::Transfer {
                    transfer,
                    begun: true,
                })
            }
            Expect::Transfer { transfer, begun } => {
                // Without TLS the data of a success may have come in spite of it.
                let is_over = code.class() != Class::Completed || self.protection.is_private();
                if !begun && is_over {
                    self.order(transfer, Order::Unlisten);
                } else if !begun && self.connections.is_open_download(transfer) {
                    self.order(transfer, Order::Done);
                }
                None
            }
            Expect::Greeting(greeting) => self.greeted(id, greeting, code),
            Expect::DataPort(asked) => self.data_answered(id, asked, code),
            Expect::Type(held, answered) => {
                self.type_answered(&held, answered, code);
                None
            }
            // The end of the connection comes next, or the time for an answer runs out.
            Expect::Question(question) if question.is_farewell => Some(Expect::Question(question)),
            Expect::Question(question) => {
                self.prefetched(question, code);
                None
            }
            Expect::Late(_) if is_preliminary => Some(expect),
            Expect::Relogin(needs, held) => {
                self.relogin_answered(needs, &held, code);
                None
            }
            Expect::Pause(_) => Some(expect),
            Expect::Late(_) | Expect::Duplicate | Expect::DuplicateLogIn => None,
        };
        if let Some(expect) = then {
            self.in_flight.keep(index, Entry { id, verb, expect });
        }
    }

    /// Returns what to expect next.
    pub(super) fn greeted(
        &mut self,
        id: Option<CommandId>,
        greeting: Greeting,
        code: Code,
    ) -> Option<Expect> {
        match greeting.ended(code) {
            Greeted::Wait(greeting) => Some(Expect::Greeting(greeting)),
            Greeted::Send(line) => {
                self.account = Some((id, line));
                let next = self.protection.greeted();
                self.protect(next);
                None
            }
            Greeted::Refused(held) => {
                self.server_refused = true;
                self.relay_held(id, code, held);
                None
            }
        }
    }

    pub(super) fn type_answered(&mut self, held: &ReplyBuffer, answered: bool, code: Code) {
        if answered {
            self.tell_near(ToNear::Taken);
        }
        if code.class() == Class::Completed {
            self.type_refusal = None;
        } else if answered {
            let text = format!(
                "451 gateway: the server has refused the TYPE: {}",
                held.quoted()
            );
            self.type_refusal = Some(text);
        }
    }

    fn prefetched(&mut self, question: Question, code: Code) {
        let is_answer = question.is_answer(code);
        if self.prefetch.is_out_of_step(question.subject, code) && !self.dislikes_questions {
            return self.answered_out_of_step(question.subject);
        }
        if !is_answer && code.class() != Class::Failed {
            // Its codes are not those of the standard, so a stray reply cannot be told from an answer.
            self.prefetch.stop();
        }
        if self.dislikes_questions {
            // The near half has been told that there is none.
            return;
        }
        let subject = question.subject;
        let answer = question.held.into_text().filter(|_| is_answer);
        let last = self.prefetch.is_done();
        self.tell_near(ToNear::Prefetched {
            subject,
            answer,
            last,
        });
    }

    pub(super) fn relay_held(&mut self, command: Option<CommandId>, code: Code, held: ReplyBuffer) {
        for (line, last) in held.into_lines() {
            let tag = Tag {
                command,
                transfer: None,
                stage: Stage::Final,
                code: code.0,
                last,
                prefetches: false,
            };
            self.reply(tag, line);
        }
    }
}

/// Lines of answers to `ABOR` that wait; a longer answer is relayed out of turn.
const EARLY_LINES_MAX: usize = 64;
/// The answer to `ABOR` where no transfer is under way (RFC 959 section 5.4).
const DENIES_TRANSFER: u16 = 225;
