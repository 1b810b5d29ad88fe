//! Handling of the server's replies. Each line is assigned to a command and then processed.

use super::{
    CommandId, CommandInFlight, ExpectedReply, FarDataOrder, FarOutput, FarSession, Greeting,
    GreetingAction, MessageToNear, Question, ReplyBuffer, ReplyStage, ReplyTag, TransferConnection,
    TransferId, in_flight::stage_of,
};
use crate::reply::{LinePosition, ReplyClass, ReplyCode, leading_code};

impl FarSession {
    pub(super) fn handle_server_line(&mut self, line: &[u8]) {
        let open = self.doubtful.as_ref().map(|(_, position)| position.code);
        if open.is_some_and(|open| self.in_flight.begins_next(line, open)) {
            self.end_doubtful();
        }
        if let Some((line, position)) = self.doubtful.take() {
            // Another line follows, so this line was text within its reply.
            self.handle_located_line(&line, position);
        }
        let position = self.in_flight.locate(line);
        if position.first && self.in_flight.is_duplicate() {
            self.on_duplicate_begun();
            if !self.in_flight.is_duplicate() {
                return;
            }
        }
        if position.in_doubt {
            self.doubtful = Some((line.to_vec(), position));
        } else {
            self.handle_located_line(line, position);
        }
    }

    /// Ends a reply whose first and last lines have different codes. The code of the last line then
    /// counts as the code of the reply.
    pub(super) fn end_doubtful(&mut self) {
        let Some((line, position)) = self.doubtful.take() else {
            return;
        };
        self.in_flight.end_in_doubt();
        let code = leading_code(&line).or(position.code);
        let last = true;
        self.handle_located_line(
            &line,
            LinePosition {
                code,
                last,
                ..position
            },
        );
    }

    fn handle_located_line(&mut self, line: &[u8], position: LinePosition) {
        let Some(code) = position.code else {
            // The line is outside any reply.
            if self.log_in.is_in_relogin() {
                return;
            }
            let tag = ReplyTag {
                command: None,
                transfer: None,
                stage: ReplyStage::Final,
                code: 0,
                last: true,
                prefetches: false,
            };
            return self.reply(tag, line.to_vec());
        };
        self.is_logged_in |= matches!(code.0, 230 | 232) && position.last;
        if !self.keeps(line, code) {
            let prefetches = position.last && self.prefetches(code);
            let (command, transfer) = self.answered_by(code);
            if let (Some(transfer), ReplyStage::Final) = (transfer, stage_of(code)) {
                let succeeded = code.class() == ReplyClass::Completed;
                match code.0 {
                    425 => self.substitute_failed(transfer),
                    _ if succeeded && position.last => self.substitute_succeeded(transfer),
                    _ => {}
                }
                let worth = self.connections.answered(transfer, succeeded);
                self.report_upload(transfer, worth);
            }
            let tag = ReplyTag {
                command,
                transfer,
                stage: stage_of(code),
                code: code.0,
                last: position.last,
                prefetches,
            };
            match self.overtaking(&tag) {
                Some(id) => self.early.push_back((id, tag, line.to_vec())),
                None => self.reply(tag, line.to_vec()),
            }
        }
        if position.last {
            self.on_reply_ended(code);
        }
    }

    /// If the gateway must hold back the arriving reply to an `ABOR`, returns the number of that
    /// `ABOR`. Returns `None` if the gateway may relay the reply now.
    pub(super) fn overtaking(&mut self, tag: &ReplyTag) -> Option<CommandId> {
        let is_abort = matches!(self.in_flight.answering()?.expect, ExpectedReply::Abort);
        let id = tag.command.filter(|_| is_abort)?;
        (self.is_early(id, tag) && self.early.len() < EARLY_LINES_MAX).then_some(id)
    }

    /// Whether the gateway must hold back the reply to `ABOR`. The reply must follow the replies to
    /// earlier commands. A reply which states that no transfer is running must also follow the
    /// reply to each transfer.
    fn is_early(&self, id: CommandId, tag: &ReplyTag) -> bool {
        self.queue.has_earlier(id)
            || self.in_flight.has_earlier(id)
            || tag.code == DENIES_TRANSFER && self.transfer_running() && !self.server_gone
    }

    /// Ends transfers to which the server will not reply. If an `ABOR` arrives before the data
    /// connection opens, pyftpdlib replies that no transfer is running. pyftpdlib then never
    /// replies to the transfer command. The gateway therefore replies to the transfer command
    /// itself.
    pub(super) fn end_denied(&mut self) {
        let denies = |(_, tag, _): &(CommandId, ReplyTag, Vec<u8>)| tag.code == DENIES_TRANSFER;
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

    /// Ends an aborted transfer to which the server does not reply. The gateway sends the client a
    /// reply instead.
    pub(super) fn end_unanswered(&mut self, id: Option<CommandId>, transfer: TransferId) {
        let worth = self.connections.answered(transfer, false);
        self.report_upload(transfer, worth);
        if let Some(id) = id {
            let text = "426 gateway: aborted; the server sent no reply to it";
            self.answer(id, Some(transfer), text);
        }
    }

    /// Relays the held-back replies to `ABOR`, except for replies that must still wait. If `before`
    /// is given, the function relays only replies to commands that precede the command `before`.
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

    /// Whether the session sends prefetched commands after the reply that is arriving. `code` is
    /// the code of that reply.
    pub(super) fn prefetches(&mut self, code: ReplyCode) -> bool {
        match self.in_flight.answering().map(|entry| &entry.expect) {
            Some(ExpectedReply::Plain(cause)) => self.prefetch.answered(*cause, code),
            _ => false,
        }
    }

    /// Stores a line of a reply that the gateway does not relay immediately. Returns `true` if the
    /// line was stored or dropped, and `false` if the gateway must relay it.
    pub(super) fn keeps(&mut self, line: &[u8], code: ReplyCode) -> bool {
        let is_farewell = matches!(code.0, 221 | 421);
        let repeats = self.log_in.is_recorded();
        let is_in_relogin = self.log_in.is_in_relogin();
        let held = match self.in_flight.answering().map(|entry| &mut entry.expect) {
            Some(
                ExpectedReply::Late(_) | ExpectedReply::Duplicate | ExpectedReply::DuplicateLogIn,
            ) => return true,
            // If the server ends the session because of a prefetched command, the session sends no
            // prefetched commands on its next connection.
            Some(ExpectedReply::Question(question)) if is_farewell && repeats => {
                question.is_farewell = true;
                &mut question.held
            }
            Some(ExpectedReply::Pause(_)) => return true,
            // The client does not receive this reply. If the repeated log-in fails, the client
            // receives a 421 reply.
            Some(ExpectedReply::Relogin(_, held)) => held,
            Some(ExpectedReply::Protection(held)) if is_in_relogin => held,
            Some(ExpectedReply::Greeting(greeting)) => &mut greeting.held,
            Some(ExpectedReply::DataPort(asked)) => &mut asked.held,
            Some(ExpectedReply::Type(_, false)) => return false,
            // With code 421, the server ends the session instead of replying to this command.
            Some(
                ExpectedReply::Type(..) | ExpectedReply::Question(_) | ExpectedReply::Protection(_),
            ) if code.0 == 421 => {
                return false;
            }
            Some(ExpectedReply::Question(question)) => &mut question.held,
            Some(ExpectedReply::Type(held, _) | ExpectedReply::Protection(held)) => held,
            _ => return false,
        };
        held.push(line);
        true
    }

    /// Returns the command to which the arriving reply belongs, and the transfer of that command.
    /// `code` is the code of the reply.
    pub(super) fn answered_by(
        &mut self,
        code: ReplyCode,
    ) -> (Option<CommandId>, Option<TransferId>) {
        let Some(entry) = self.in_flight.answering() else {
            return (None, None);
        };
        // The verb is unknown, but this reply shows that it has started a transfer on the prepared
        // connection.
        if matches!(entry.expect, ExpectedReply::Plain(_))
            && matches!(code.0, 125 | 150)
            && let TransferConnection::Connection(transfer) = self.prepared.take()
        {
            let begun = true;
            entry.expect = ExpectedReply::Transfer { transfer, begun };
            let order = FarDataOrder::Commanded(None);
            self.out.push_back(FarOutput::Order(transfer, order));
        }
        match entry.expect {
            ExpectedReply::Transfer { transfer, .. } => (entry.id, Some(transfer)),
            _ => (entry.id, None),
        }
    }

    pub(super) fn on_reply_ended(&mut self, code: ReplyCode) {
        let Some((index, entry)) = self.in_flight.end_reply() else {
            return;
        };
        let CommandInFlight {
            id,
            verb,
            mut expect,
        } = entry;
        let is_preliminary = stage_of(code) == ReplyStage::Preliminary;
        if is_preliminary && let Some(held) = expect.held_mut() {
            *held = ReplyBuffer::default();
            return self
                .in_flight
                .keep(index, CommandInFlight { id, verb, expect });
        }
        if !is_preliminary {
            self.log_in.answered(&verb, code);
        }
        if self.in_flight.is_passed_over(index)
            && !is_preliminary
            && let Some(id) = self.in_flight.pass_abort()
        {
            // Servers reply in order, so this server sends no reply to the `ABOR`.
            self.abort_prepared();
            self.send_to_near(MessageToNear::LeftUnanswered(id));
        }
        let then = match expect {
            ExpectedReply::Plain(_) | ExpectedReply::Begun => {
                if !is_preliminary && id.is_some() && id == self.forgets_protection {
                    self.forgets_protection = None;
                    self.protection.forget();
                }
                is_preliminary.then_some(ExpectedReply::Begun)
            }
            ExpectedReply::Quit | ExpectedReply::Abort if is_preliminary => Some(expect),
            ExpectedReply::Quit => None,
            ExpectedReply::Abort => {
                self.abort_prepared();
                None
            }
            ExpectedReply::Greeted if is_preliminary => Some(expect),
            ExpectedReply::Greeted => {
                if code.class() == ReplyClass::Completed {
                    let next = self.protection.greeted();
                    self.protect(next);
                } else {
                    // The greeting is not a success, so the server does not accept the session.
                    self.server_refused = true;
                }
                None
            }
            ExpectedReply::Protection(held) => {
                let next = self.protection.answered(code, &held);
                self.protect(next);
                None
            }
            ExpectedReply::Transfer { transfer, .. } if is_preliminary => {
                if self.protection.is_private() {
                    self.order(transfer, FarDataOrder::Begin);
                }
                Some(ExpectedReply::Transfer {
                    transfer,
                    begun: true,
                })
            }
            ExpectedReply::Transfer { transfer, begun } => {
                // Without TLS, the data of a successful transfer may have arrived although the
                // server sent no 1yz reply.
                let is_over = code.class() != ReplyClass::Completed || self.protection.is_private();
                if !begun && is_over {
                    self.order(transfer, FarDataOrder::Unlisten);
                } else if !begun && self.connections.is_open_download(transfer) {
                    self.order(transfer, FarDataOrder::Done);
                }
                None
            }
            ExpectedReply::Greeting(greeting) => self.greeted(id, greeting, code),
            ExpectedReply::DataPort(asked) => self.on_data_reply(id, asked, code),
            ExpectedReply::Type(held, answered) => {
                self.on_type_reply(&held, answered, code);
                None
            }
            // Next, the server closes the connection, or the timeout for the reply expires.
            ExpectedReply::Question(question) if question.is_farewell => {
                Some(ExpectedReply::Question(question))
            }
            ExpectedReply::Question(question) => {
                self.prefetched(question, code);
                None
            }
            ExpectedReply::Late(_) if is_preliminary => Some(expect),
            ExpectedReply::Relogin(needs, held) => {
                self.on_relogin_reply(needs, &held, code);
                None
            }
            ExpectedReply::Pause(_) => Some(expect),
            ExpectedReply::Late(_) | ExpectedReply::Duplicate | ExpectedReply::DuplicateLogIn => {
                None
            }
        };
        if let Some(expect) = then {
            self.in_flight
                .keep(index, CommandInFlight { id, verb, expect });
        }
    }

    /// Handles the server's greeting. Returns the next expected reply, if another greeting follows.
    pub(super) fn greeted(
        &mut self,
        id: Option<CommandId>,
        greeting: Greeting,
        code: ReplyCode,
    ) -> Option<ExpectedReply> {
        match greeting.ended(code) {
            GreetingAction::Wait(greeting) => Some(ExpectedReply::Greeting(greeting)),
            GreetingAction::Send(line) => {
                self.account = Some((id, line));
                let next = self.protection.greeted();
                self.protect(next);
                None
            }
            GreetingAction::Refused(held) => {
                self.server_refused = true;
                self.relay_held(id, code, held);
                None
            }
        }
    }

    pub(super) fn on_type_reply(&mut self, held: &ReplyBuffer, answered: bool, code: ReplyCode) {
        if answered {
            self.send_to_near(MessageToNear::AnsweredAhead);
        }
        if code.class() == ReplyClass::Completed {
            self.type_refusal = None;
        } else if answered {
            let text = format!(
                "451 gateway: the server has refused the TYPE: {}",
                held.quoted()
            );
            self.type_refusal = Some(text);
        }
    }

    fn prefetched(&mut self, question: Question, code: ReplyCode) {
        let is_answer = question.is_answer(code);
        if self.prefetch.is_out_of_step(question.subject, code) && !self.dislikes_questions {
            return self.answered_out_of_step(question.subject);
        }
        if !is_answer && code.class() != ReplyClass::Failed {
            // The server uses non-standard codes, so a stray reply cannot be distinguished from an
            // answer.
            self.prefetch.stop();
        }
        if self.dislikes_questions {
            // The near half has already received the report that this prefetched command has no
            // reply.
            return;
        }
        let subject = question.subject;
        let answer = question.held.into_text().filter(|_| is_answer);
        let last = self.prefetch.is_done();
        self.send_to_near(MessageToNear::Prefetched {
            subject,
            answer,
            last,
        });
    }

    pub(super) fn relay_held(
        &mut self,
        command: Option<CommandId>,
        code: ReplyCode,
        held: ReplyBuffer,
    ) {
        for (line, last) in held.into_lines() {
            let tag = ReplyTag {
                command,
                transfer: None,
                stage: ReplyStage::Final,
                code: code.0,
                last,
                prefetches: false,
            };
            self.reply(tag, line);
        }
    }
}

/// Maximum number of held-back lines of replies to `ABOR`. The gateway relays further lines
/// immediately and thus out of order.
const EARLY_LINES_MAX: usize = 64;
/// Code of the reply to `ABOR` if no transfer is running (RFC 959 section 5.4).
const DENIES_TRANSFER: u16 = 225;
