//! The far gateway's half of a session.
//!
//! Inputs are messages from the near gateway, lines from the server, and events of data
//! connections. Outputs are lines for the server, messages for the near gateway, and orders for
//! data connections. The caller owns the sockets. After each [`FarSession::handle`], the caller
//! must call [`FarSession::poll`] until it returns `None`.

mod connections;
mod data;
mod duplicate;
mod greeting;
mod in_flight;
mod io;
mod log_in;
mod port_request;
mod prefetch;
mod prepared;
mod protection;
mod queue;
mod relogin;
mod replies;
mod reply_buffer;
mod substitute;
mod waits;

pub use io::{
    DataOpener, FarInput, FarOutput, FarSetup, LearnedTrait, ServerTraits, ServerWait,
    SessionOpening, TooManyCommands,
};
pub use protection::ServerTlsMode;
pub use waits::{LONG_REPLY_TIMEOUT, REPLY_TIMEOUT};

use std::collections::VecDeque;

use self::{
    connections::DataConnections,
    greeting::{Greeting, GreetingAction},
    in_flight::{CommandInFlight, ExpectedReply, InFlight},
    log_in::LogInRecord,
    prefetch::{Prefetch, Question},
    prepared::{PreparedConnection, TransferConnection},
    protection::{ProtectionStep, ServerProtection},
    queue::RequestQueue,
    reply_buffer::ReplyBuffer,
    substitute::Substitute,
};
use super::{
    CommandId, MessageToFar, MessageToNear, ReplyStage, ReplyTag, ServerRequest, TransferId,
    data::far::{FarDataEvent, FarDataOrder},
    refusal,
};
use crate::{
    command::{Command, CommandKind},
    reply::{LinePosition, ReplyClass, ReplyCode},
    spool::SpoolRequest,
    wait,
};

/// The far gateway's half of one FTP session.
#[derive(Debug)]
pub struct FarSession {
    queue: RequestQueue,
    in_flight: InFlight,
    prepared: PreparedConnection,
    setup: FarSetup,
    prefetch: Prefetch,
    protection: ServerProtection,
    /// The client's first command, which is a `USER`. The gateway sends this command after the
    /// negotiation of TLS.
    account: Option<(Option<CommandId>, Vec<u8>)>,
    /// A request for a data connection whose listening socket is being opened.
    unbound: Option<(Option<CommandId>, TransferId, bool)>,
    /// Whether the server has accepted the client's log-in.
    is_logged_in: bool,
    /// Number of the command that requested a spool. `None` after the caller has returned the
    /// reply.
    spooling: Option<CommandId>,
    /// Reply that refuses transfers while the server's transfer type differs from the client's
    /// transfer type. `None` if the types are equal.
    type_refusal: Option<String>,
    /// Whether the server refused the session.
    server_refused: bool,
    client_gone: bool,
    /// Whether the server's control connection has ended.
    server_gone: bool,
    closed: bool,
    /// Whether the gateway has sent a `USER` to the server.
    has_account: bool,
    /// Number of a command in flight that may make the server forget `PBSZ` and `PROT`.
    forgets_protection: Option<CommandId>,
    connections: DataConnections,
    /// Whether the session avoids prefetching, because the server mishandles prefetched commands.
    dislikes_questions: bool,
    substitute: Substitute,
    log_in: LogInRecord,
    /// The latest request, with a copy of the log-in record as it was before this request. `None`
    /// if the request must not be sent on another connection.
    resendable: Option<(ServerRequest, LogInRecord)>,
    /// A line that may be the last line of its reply. The next line, or a timeout, shows whether
    /// the reply has ended.
    doubtful: Option<(Vec<u8>, LinePosition)>,
    /// Number of commands sent to the server plus number of inputs that do not come from the near
    /// gateway. The sum identifies each wait for the server.
    heard: u64,
    /// Lines of replies to `ABOR` that arrived before the replies to earlier commands. The session
    /// holds these lines back.
    early: VecDeque<(CommandId, ReplyTag, Vec<u8>)>,
    out: VecDeque<FarOutput>,
}

impl FarSession {
    /// Creates a session with a server whose control connection has just been opened.
    pub fn new(opening: SessionOpening, setup: FarSetup) -> Self {
        let (id, expect) = match opening {
            SessionOpening::RelayGreeting => (None, ExpectedReply::Greeted),
            SessionOpening::ConsumeGreeting { id, line } => {
                (Some(id), ExpectedReply::Greeting(Greeting::new(line)))
            }
        };
        let known = setup.known;
        let mut prefetch = Prefetch::new(setup.mode);
        if known.dislikes_questions {
            prefetch.stop();
        }
        let verb = String::new();
        Self {
            queue: RequestQueue::default(),
            in_flight: InFlight::greeting(CommandInFlight { id, verb, expect }),
            prepared: PreparedConnection::default(),
            setup,
            prefetch,
            protection: ServerProtection::new(setup.tls),
            account: None,
            unbound: None,
            is_logged_in: false,
            spooling: None,
            type_refusal: None,
            server_refused: false,
            client_gone: false,
            server_gone: false,
            closed: false,
            has_account: false,
            forgets_protection: None,
            connections: DataConnections::default(),
            dislikes_questions: known.dislikes_questions,
            substitute: Substitute::new(known.lacks_passive),
            log_in: LogInRecord::Recorded(Vec::new()),
            resendable: None,
            doubtful: None,
            heard: 0,
            early: VecDeque::new(),
            out: VecDeque::new(),
        }
    }

    /// Handles an input.
    ///
    /// # Errors
    /// [`TooManyCommands`] if the near gateway sends more commands than the limit permits.
    pub fn handle(&mut self, input: FarInput<'_>) -> Result<(), TooManyCommands> {
        if self.closed {
            return Ok(());
        }
        let is_of_near = matches!(input, FarInput::Received(_) | FarInput::ClientGone);
        if !is_of_near {
            self.heard += 1;
        }
        match input {
            FarInput::Received(MessageToFar::Request(request)) => self.enqueue(request)?,
            FarInput::Received(MessageToFar::Abandon(transfer)) => {
                self.prepared.abandon(transfer);
                self.abort(transfer);
            }
            FarInput::TlsBegun => {
                let next = self.protection.tls_begun();
                self.protect(next);
            }
            FarInput::Listening(at) => self.on_listening(at),
            FarInput::Spooled(text) => {
                if let Some(id) = self.spooling.take() {
                    self.answer(id, None, text);
                }
            }
            FarInput::ClientGone => self.client_gone = true,
            FarInput::ServerLine(line) => self.handle_server_line(line),
            FarInput::ServerClosed => self.on_server_closed(),
            FarInput::ServerSilent => self.on_server_silent(),
            FarInput::WaitTimedOut => self.handle_wait_timeout(),
            FarInput::Reconnected => {}
            FarInput::Data(transfer, event) => self.handle_data_event(transfer, event),
        }
        self.end_denied();
        self.advance();
        self.relay_early(None);
        self.close_if_over();
        Ok(())
    }

    /// Returns the next action. After `None`, no action follows until the next input.
    pub fn poll(&mut self) -> Option<FarOutput> {
        self.out.pop_front()
    }

    /// Whether a transfer still waits for its final reply.
    pub fn transfer_running(&self) -> bool {
        self.in_flight.transfers().next().is_some()
    }

    /// Whether the session waits only for the server: the client has disconnected, and no data
    /// connection is open.
    pub fn waits_only_for_server(&self) -> bool {
        self.client_gone && !self.closed && !self.connections.any_open()
    }

    /// Whether the session is repeating its log-in on another connection to the server.
    pub fn is_in_relogin(&self) -> bool {
        self.log_in.is_in_relogin()
    }

    /// Whether the caller must read lines from the server. `false` if the control connection is
    /// closed.
    pub fn wants_server(&self) -> bool {
        !self.server_gone && !self.closed && !self.in_flight.is_paused()
    }

    fn enqueue(&mut self, request: ServerRequest) -> Result<(), TooManyCommands> {
        self.queue.check_room()?;
        self.in_flight.drop_begun();
        self.queue.push(request);
        Ok(())
    }

    /// Performs the next step of the TLS negotiation.
    fn protect(&mut self, next: ProtectionStep) {
        match next {
            ProtectionStep::Send(line) => {
                self.send_line(line.as_bytes().to_vec());
                let expect = ExpectedReply::Protection(ReplyBuffer::default());
                self.in_flight.push(None, line, expect);
            }
            ProtectionStep::BeginTls => self.out.push_back(FarOutput::BeginTls),
            ProtectionStep::Done if self.log_in.is_in_relogin() => self.send_next_step(),
            ProtectionStep::Done => {
                if let Some((id, line)) = self.account.take() {
                    self.send_account(id, line);
                }
            }
            ProtectionStep::Refused(why) if self.log_in.is_in_relogin() => {
                self.relogin_refused(&why)
            }
            ProtectionStep::Refused(text) => {
                self.close_with(MessageToNear::Refused { code: 530, text })
            }
        }
    }

    fn send_account(&mut self, id: Option<CommandId>, line: Vec<u8>) {
        let command = Command::parse(&line);
        let cause = self.prefetch.cause(&command);
        self.has_account = true;
        self.log_in.record(&line);
        self.in_flight
            .push(id, command.verb(), ExpectedReply::Plain(cause));
        self.send_line(line);
    }

    /// Sends all queued commands that the session may send now.
    fn advance(&mut self) {
        self.send_waiting();
        while self.transfer_running()
            && !self.server_gone
            && let Some(abort) = self.queue.pop_abort()
        {
            self.send(abort);
            self.send_waiting();
        }
    }

    fn send_waiting(&mut self) {
        while !self.closed && !self.server_gone && self.may_send_next() {
            // The session sends all prefetched commands before the queued commands. The replies to
            // prefetched commands show whether replies match commands.
            let question = self.in_flight.is_empty().then(|| self.prefetch.next());
            if let Some(question) = question.flatten() {
                self.ask(question);
            } else if self.queue.next_asks_data() && self.protection.is_forgotten() {
                let next = self.protection.settle_again();
                self.protect(next);
            } else if let Some(request) = self.queue.pop() {
                self.resendable = self.resendable_with(&request);
                self.send(request);
            } else {
                break;
            }
        }
    }

    fn close_if_over(&mut self) {
        let is_idle = self.in_flight.is_empty() || self.log_in.is_in_relogin();
        let is_done = is_idle && self.queue.is_empty() || self.server_refused;
        // The gateway sends no QUIT in place of the client: the server receives the same commands
        // as without gateways.
        let is_left = self.client_gone && is_done;
        let is_over = is_left || self.server_gone;
        // The near half may hold back a successful final reply to an upload. It then needs the
        // report whether all bytes were written.
        if is_over && !self.closed && !self.connections.any_unreported() {
            self.close();
        }
    }

    fn may_send_next(&self) -> bool {
        self.protection.is_done()
            && self.unbound.is_none()
            && self.spooling.is_none()
            && (self.in_flight.is_empty()
                || self.in_flight.transfer_is_first() && self.queue.next_may_overtake())
    }

    fn ask(&mut self, mut question: Question) {
        let verb = question.subject.verb();
        self.send_line(verb.as_bytes().to_vec());
        question.wait = self.heard;
        self.in_flight
            .push(None, verb, ExpectedReply::Question(question));
    }

    fn send(&mut self, request: ServerRequest) {
        match request {
            ServerRequest::Command {
                id,
                line,
                synch,
                answered,
            } => self.send_command(id, line, synch, answered),
            ServerRequest::Data {
                id,
                transfer,
                answered,
            } => self.request_data(id, transfer, answered),
        }
    }

    fn send_command(&mut self, id: CommandId, line: Vec<u8>, synch: bool, answered: bool) {
        let command = Command::parse(&line);
        if let Some(text) = refusal(&command) {
            return self.answer(id, None, text);
        }
        self.log_in.record(&line);
        match SpoolRequest::from_command(&command) {
            Some(Ok(_)) if !self.is_logged_in => {
                return self.answer(id, None, "530 gateway: log in first");
            }
            Some(Ok(request)) => {
                self.spooling = Some(id);
                return self.out.push_back(FarOutput::Spool(request));
            }
            Some(Err(wrong)) => return self.answer(id, None, &format!("501 gateway: {wrong}")),
            None => {}
        }
        match wait::from_command(&command) {
            Some(Ok(wait)) => {
                self.out.push_back(FarOutput::Wait(wait));
                return self.answer(id, None, &wait::answer());
            }
            Some(Err(wrong)) => return self.answer(id, None, &format!("501 gateway: {wrong}")),
            None => {}
        }
        if let Some(text) = self.type_refusal(&command) {
            if let Some(transfer) = self.prepared.give_up() {
                self.abort(transfer);
                return self.answer(id, Some(transfer), &text);
            }
            return self.answer(id, None, &text);
        }
        let kind = command.kind();
        if kind == CommandKind::User || command.verb() == "REIN" {
            self.is_logged_in = false;
        }
        let mut expect = ExpectedReply::Plain(self.prefetch.cause(&command));
        match kind {
            CommandKind::Transfer(direction) => match self.prepared.take() {
                // The server replies itself, because it may have another reason for a refusal.
                TransferConnection::Nothing => {}
                TransferConnection::Refused(transfer, text) => {
                    return self.answer(id, Some(transfer), &text);
                }
                TransferConnection::Connection(transfer) => {
                    let begun = false;
                    expect = ExpectedReply::Transfer { transfer, begun };
                    self.order(transfer, FarDataOrder::Commanded(Some(direction)));
                    self.connections.commanded(transfer, direction);
                }
            },
            CommandKind::User if !self.has_account => self.has_account = true,
            CommandKind::User => self.forgets_protection = Some(id),
            _ if command.verb() == "REIN" => self.forgets_protection = Some(id),
            CommandKind::Quit => expect = ExpectedReply::Quit,
            CommandKind::Abort => expect = ExpectedReply::Abort,
            CommandKind::Type => expect = ExpectedReply::Type(ReplyBuffer::default(), answered),
            _ => {}
        }
        let verb = command.verb().to_owned();
        self.heard += 1;
        self.out.push_back(FarOutput::ToServer { line, synch });
        if kind == CommandKind::Abort {
            self.abort_transfer();
        }
        self.in_flight
            .push((!answered).then_some(id), &verb, expect);
    }

    /// Returns the refusal for a transfer or a `SIZE` while the server has the wrong transfer type.
    /// Returns `None` if the command is permitted.
    fn type_refusal(&self, command: &Command<'_>) -> Option<String> {
        let depends =
            matches!(command.kind(), CommandKind::Transfer(_)) || command.verb() == "SIZE";
        self.type_refusal.clone().filter(|_| depends)
    }

    /// Aborts the newest transfer after an `ABOR`. The gateway also closes the data connection of
    /// the transfer, because vsftpd reads `ABOR` only after that close. If no transfer uses the
    /// data connection, the gateway closes it only after the reply to the `ABOR`. The server thus
    /// receives the `ABOR` first.
    fn abort_transfer(&mut self) {
        let newest = self.in_flight.transfers().next_back();
        if let Some(transfer) = newest {
            self.order(transfer, FarDataOrder::Abort { grace: true });
        }
    }

    /// Sends the gateway's own reply to the client.
    fn answer(&mut self, id: CommandId, transfer: Option<TransferId>, text: &str) {
        self.relay_early(Some(id));
        let code = text
            .get(..3)
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(500);
        let tag = ReplyTag {
            command: Some(id),
            transfer,
            stage: ReplyStage::Final,
            code,
            last: true,
            prefetches: false,
        };
        self.reply(tag, text.as_bytes().to_vec());
    }

    fn handle_data_event(&mut self, transfer: TransferId, event: FarDataEvent) {
        if event == FarDataEvent::Refused {
            self.prepared.refused(transfer);
            // After its reply to a transfer, the server no longer needs to connect.
            if self.in_flight.transfers().any(|it| it == transfer) {
                self.substitute_failed(transfer);
            }
        }
        let ended = self.connections.on_event(transfer, event);
        self.report_upload(transfer, ended);
    }

    fn report_upload(&mut self, transfer: TransferId, is_whole: Option<bool>) {
        if let Some(is_whole) = is_whole {
            self.send_to_near(MessageToNear::UploadEnded { transfer, is_whole });
        }
    }

    fn on_server_closed(&mut self) {
        self.end_doubtful();
        match self.repeatable_question() {
            Some(subject) => self.reconnect(Some(subject)),
            None if self.log_in.is_in_relogin() => {
                self.relogin_refused("it has closed the connection");
            }
            None => self.end_server(),
        }
    }

    /// Handles the end of the server's control connection.
    fn end_server(&mut self) {
        self.server_gone = true;
        let unanswered: Vec<_> = self.in_flight.transfers().collect();
        for transfer in unanswered {
            self.abort(transfer);
        }
        self.abort_prepared();
    }

    fn on_server_silent(&mut self) {
        if self.waits_only_for_server() {
            self.close();
        }
    }

    fn close(&mut self) {
        self.close_with(MessageToNear::ServerClosed);
    }

    fn close_with(&mut self, last: MessageToNear) {
        self.abort_prepared();
        self.closed = true;
        self.send_to_near(last);
        self.out.push_back(FarOutput::Close);
    }

    fn abort_prepared(&mut self) {
        if let Some(transfer) = self.prepared.give_up() {
            self.abort(transfer);
        }
    }

    fn abort(&mut self, transfer: TransferId) {
        self.order(transfer, FarDataOrder::Abort { grace: false });
    }

    fn order(&mut self, transfer: TransferId, order: FarDataOrder) {
        self.out.push_back(FarOutput::Order(transfer, order));
    }

    fn send_line(&mut self, line: Vec<u8>) {
        self.heard += 1;
        let synch = false;
        self.out.push_back(FarOutput::ToServer { line, synch });
    }

    fn reply(&mut self, tag: ReplyTag, line: Vec<u8>) {
        self.send_to_near(MessageToNear::Reply { tag, line });
    }

    fn send_to_near(&mut self, message: MessageToNear) {
        self.out.push_back(FarOutput::Send(message));
    }
}

/// Time limit for the server's reply after the client has disconnected and all data connections are
/// closed. Busy servers take several seconds.
pub const SERVER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

#[cfg(test)]
mod tests;
