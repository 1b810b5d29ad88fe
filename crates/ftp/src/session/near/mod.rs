//! The near gateway's half of a session.
//!
//! Inputs are lines from the client, messages from the far gateway, and events of data connections.
//! Outputs are bytes for the client, messages for the far gateway, and orders for data connections.
//!
//! The caller owns sockets and link streams. After each [`NearSession::handle`], the caller must
//! call [`NearSession::poll`] until it returns `None`. The caller may pass client lines only while
//! [`NearSession::wants_client`] is true, and messages only while [`NearSession::wants_far`] is
//! true.
//!
//! Two barriers protect the order. The client receives data only after the `1yz` reply to the
//! transfer. The client receives the final `2yz` reply only after complete delivery of the data and
//! of the end of file.

mod data_port;
mod endings;
mod features;
mod held_replies;
mod io;
mod pending;
mod prefetched;
mod protection;
mod server_selection;
mod transfers;

pub use io::{NearInput, NearOutput};
pub use protection::ClientTlsMode;
pub use server_selection::ServerSource;
pub use transfers::TransferSummary;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
};

use self::{
    data_port::{DataMethod, DataPort},
    held_replies::HeldReplies,
    pending::{PendingCommands, PendingRequest},
    prefetched::{CommandHandling, PrefetchedReplies},
    protection::ClientProtection,
    server_selection::{Admission, LOG_IN_FIRST, ServerSelection},
    transfers::Transfers,
};
use super::{
    CommandId, MessageToFar, MessageToNear, QuestionSubject, ReplyStage, ReplyTag, ServerRequest,
    SessionMode, TransferId, data::near::NearDataOrder, refusal,
};
use crate::{
    address::passive_reply,
    command::{Command, CommandKind},
    logon::Logon,
    reply::{ReplyClass, ReplyCode},
};

/// Properties of a session at the near gateway.
#[derive(Debug, Clone, Copy)]
pub struct NearSetup {
    /// Method by which the session selects its server.
    pub server_source: ServerSource,
    /// Session mode of the gateways: fast or strict.
    pub mode: SessionMode,
    /// TLS mode of the client's control connection.
    pub tls: ClientTlsMode,
    /// Local address of the client's control connection.
    pub local: IpAddr,
    /// Remote address of the client's control connection.
    pub client: IpAddr,
}

/// Progress of a TLS start that the client has requested. During the start, the session reads no
/// client lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TlsStep {
    None,
    /// The reply to `AUTH TLS` waits for the replies to earlier commands.
    Answering,
    /// The reply has been sent. The TLS handshake is the next step.
    Beginning,
}

/// The near gateway's half of one FTP session.
#[derive(Debug)]
pub struct NearSession {
    server_selection: ServerSelection,
    data_port: DataPort,
    pending: PendingCommands,
    transfers: Transfers,
    held: HeldReplies,
    prefetched: PrefetchedReplies,
    protection: ClientProtection,
    tls_step: TlsStep,
    /// Whether the session has relayed some lines of a reply to `FEAT`, but not the last line.
    in_features: bool,
    /// A client's command whose reply the far gateway has prefetched. The reply is in flight.
    waiting: Option<Vec<u8>>,
    /// Whether the gateway itself refused the latest request for a data connection.
    is_data_refused: bool,
    logged_in: bool,
    /// Account in the client's latest log-in. Empty before the first log-in.
    user: Vec<u8>,
    last_code: u16,
    server_gone: bool,
    /// Whether the client has closed its sending direction.
    client_ended: bool,
    closed: bool,
    out: VecDeque<NearOutput>,
}

impl NearSession {
    /// Creates a session with a client that has just connected. With a fixed server, the stream to
    /// the far gateway is already open. With implicit TLS, the handshake is complete.
    pub fn new(setup: NearSetup) -> Self {
        let mut session = Self {
            server_selection: ServerSelection::new(setup.server_source),
            data_port: DataPort::new(setup.local, setup.client),
            pending: match setup.server_source {
                ServerSource::Fixed => PendingCommands::greeting(),
                ServerSource::Logon => PendingCommands::default(),
            },
            transfers: Transfers::default(),
            held: HeldReplies::default(),
            prefetched: PrefetchedReplies::new(setup.mode),
            protection: ClientProtection::new(setup.tls),
            tls_step: TlsStep::None,
            in_features: false,
            waiting: None,
            is_data_refused: false,
            logged_in: false,
            user: Vec::new(),
            last_code: 0,
            server_gone: false,
            client_ended: false,
            closed: false,
            out: VecDeque::new(),
        };
        if let Some(greeting) = session.server_selection.greeting() {
            session.write(greeting);
        }
        session
    }

    /// Whether the session accepts the client's next line.
    pub fn wants_client(&self) -> bool {
        self.pending.has_room()
            && self.waiting.is_none()
            && self.tls_step == TlsStep::None
            && !self.server_gone
            && !self.client_ended
            && !self.closed
    }

    /// Whether the client has closed its sending direction and waits for replies. The caller limits
    /// this wait to [`HALF_CLOSED_TIMEOUT`].
    pub fn is_half_closed(&self) -> bool {
        self.client_ended && !self.closed
    }

    /// Whether the session accepts the next message from the far gateway.
    ///
    /// The session accepts no message while it holds back too many reply lines. Until the client
    /// has read the data of a transfer, the session holds back a successful final reply, and all
    /// later replies.
    pub fn wants_far(&self) -> bool {
        // The first held reply may wait for a report that the far gateway sends after that reply.
        let waits_for = self.held.next().and_then(|tag| tag.transfer);
        self.held.has_room() || waits_for.is_some_and(|id| self.transfers.awaits_report(id))
    }

    /// Whether the server has accepted the client's log-in.
    pub fn is_logged_in(&self) -> bool {
        self.logged_in
    }

    /// Returns the account in the client's latest log-in. The account is empty before the first
    /// log-in.
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// Whether a transfer waits for its final reply.
    pub fn is_transferring(&self) -> bool {
        self.transfers.is_running()
    }

    /// Whether all commands and transfers have received their final replies.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && !self.is_transferring()
    }

    /// Handles an input.
    pub fn handle(&mut self, input: NearInput<'_>) {
        if self.closed {
            return;
        }
        match input {
            NearInput::ClientLine(line) => self.handle_client_line(line),
            NearInput::ClientLineTooLong => self.pending.answer(b"500 Command line too long"),
            NearInput::ClientEnded => self.on_client_ended(),
            NearInput::ClientClosed => self.on_client_closed(),
            NearInput::Received(message) => self.handle_far_message(message),
            NearInput::TlsBegun => {
                self.tls_step = TlsStep::None;
                self.protection.begun();
            }
            NearInput::Listening { transfer, at } => self.on_listening(transfer, at),
            NearInput::NoData(transfer) => self.refuse_data(transfer),
            NearInput::NotReached { code, text } => self.on_refused(code, text),
            NearInput::LinkLost(why) | NearInput::LimitReached(why) => self.on_link_lost(why),
            NearInput::Data(transfer, event) => {
                if self.transfers.on_event(transfer, event) {
                    self.order(transfer, NearDataOrder::Kill);
                }
            }
        }
        self.settle();
    }

    fn handle_far_message(&mut self, message: MessageToNear) {
        match message {
            MessageToNear::Reply { tag, line } => self.handle_far_reply(tag, &line),
            MessageToNear::AnsweredAhead => self.pending.complete_ahead(),
            MessageToNear::LeftUnanswered(id) => self.on_left_unanswered(id),
            MessageToNear::DataReady(id) => {
                if let Some((transfer, method)) = self.pending.data_ready(id) {
                    self.await_client(transfer, method);
                }
            }
            MessageToNear::Prefetched {
                subject,
                answer,
                last,
            } => {
                self.prefetched.learn(subject, answer.as_deref(), last);
                if let Some(line) = self.waiting.take() {
                    self.handle_client_line(&line);
                }
            }
            MessageToNear::Refused { code, text } => self.on_refused(code, &text),
            MessageToNear::ServerClosed => self.on_server_closed(),
            MessageToNear::UploadEnded { transfer, is_whole } => {
                self.transfers.upload_ended(transfer, is_whole);
            }
        }
    }

    /// Returns the next action. After `None`, no action follows until the next input.
    pub fn poll(&mut self) -> Option<NearOutput> {
        self.out.pop_front()
    }

    fn handle_client_line(&mut self, line: &[u8]) {
        let command = Command::parse(line);
        if command.kind() == CommandKind::Blank {
            // Some servers answer a blank line and others do not, so no client waits for a reply.
            return;
        }
        self.pending.note_client_command(line);
        match command.kind() {
            CommandKind::Protection => return self.protect(&command),
            CommandKind::Malformed | CommandKind::Split => {
                let text = refusal(&command).unwrap_or("500 gateway: no command");
                return self.pending.answer(text.as_bytes());
            }
            _ => {}
        }
        if let Some(text) = self.protection.refusal(&command) {
            return self.pending.answer(text.as_bytes());
        }
        match self.server_selection.admit(&command) {
            Admission::Server => self.handle_server_command(&command),
            Admission::LogOn(logon) => self.log_on(logon),
            Admission::Answer(text) => self.pending.answer(text.as_bytes()),
            Admission::Goodbye(text) => {
                self.pending.answer(text.as_bytes());
                self.server_gone = true;
                self.last_code = 221;
            }
        }
    }

    fn protect(&mut self, command: &Command<'_>) {
        let was_private = self.protection.is_private();
        let text = match self.protection.answer(command) {
            protection::TlsReply::Text(text) => text,
            protection::TlsReply::Begin(text) => {
                self.tls_step = TlsStep::Answering;
                text
            }
        };
        if self.protection.is_private() != was_private {
            // The unused data connection was prepared with the previous protection.
            self.kill_unused();
        }
        self.pending.answer(text.as_bytes());
    }

    fn log_on(&mut self, logon: Logon) {
        self.user.clone_from(&logon.user);
        let transfers = self.transfers.take_all();
        self.give_up(transfers, None);
        self.held.clear();
        // The session has left the server, so no further replies of that server arrive.
        for line in self.pending.give_up("503 gateway: cancelled by a new USER") {
            self.write(&line);
        }
        self.prefetched.reset();
        self.logged_in = false;
        let id = self.pending.command(PendingRequest::Login);
        self.out.push_back(NearOutput::Connect { id, logon });
    }

    fn handle_server_command(&mut self, command: &Command<'_>) {
        if let (CommandKind::Other, Some(text)) = (command.kind(), refusal(command)) {
            return self.pending.answer(text.as_bytes());
        }
        // After a transfer command, a reply of the gateway itself would precede the server's
        // replies to later commands.
        let may_answer = !self.pending.awaits_transfer();
        let next_id = self.pending.next_id();
        match self.prefetched.answer(command, next_id, may_answer) {
            CommandHandling::Server => {}
            CommandHandling::Wait => {
                self.waiting = Some(command.line().to_vec());
                return;
            }
            CommandHandling::Known(lines) => {
                let is_list =
                    QuestionSubject::from_verb(command.verb()) == Some(QuestionSubject::Features);
                let offers_tls = self.protection.is_offered();
                return self.pending.answer(&match is_list {
                    true => features::edit_reply(&lines, offers_tls),
                    false => lines,
                });
            }
            CommandHandling::Certain(text) => {
                self.pending.answer(text.as_bytes());
                let id = self.pending.command_ahead();
                return self.relay(id, command, true);
            }
        }
        if command.kind() == CommandKind::User {
            self.user = command.argument().to_vec();
        }
        match command.kind() {
            CommandKind::OtherData => {
                let text = refusal(command).unwrap_or("502 gateway: not offered");
                self.pending.answer(text.as_bytes());
            }
            CommandKind::Passive(form) => {
                let method = self.data_port.passive(form, command.argument());
                self.request_data(method);
            }
            CommandKind::Active(form) => {
                let method = self.data_port.active(form, command.argument());
                self.request_data(method);
            }
            // The server has not received the refused request. If it received the transfer command,
            // it would wait for a connection that never comes.
            CommandKind::Transfer(_) if self.is_data_refused => {
                let text =
                    "425 gateway: there is no data connection, the request for one was refused";
                self.pending.answer(text.as_bytes());
            }
            kind => {
                if let CommandKind::Transfer(direction) = kind
                    && let Some(id) = self.transfers.start(command, direction)
                {
                    self.order(id, NearDataOrder::Start(Some(direction)));
                }
                let request = match (kind, QuestionSubject::from_verb(command.verb())) {
                    (CommandKind::User | CommandKind::Pass, _) => PendingRequest::Login,
                    _ if command.verb() == "ACCT" => PendingRequest::Login,
                    (CommandKind::Transfer(_), _) => PendingRequest::Transfer,
                    (_, Some(QuestionSubject::Features)) => PendingRequest::Features,
                    _ => PendingRequest::Anything,
                };
                let id = self.pending.command(request);
                if kind == CommandKind::Abort {
                    self.transfers.abort(id);
                }
                self.relay(id, command, false);
            }
        }
    }

    fn request_data(&mut self, method: Result<DataMethod, &'static str>) {
        let method = match method {
            Ok(method) => method,
            Err(text) => {
                self.is_data_refused = !text.starts_with('2');
                return self.pending.answer(text.as_bytes());
            }
        };
        self.is_data_refused = false;
        self.kill_unused();
        let transfer = self.transfers.prepare();
        let answered = self.prefetched.promises_data();
        let id = if answered {
            self.pending.answer_data(transfer, method);
            self.pending.command_ahead()
        } else {
            self.pending.command(PendingRequest::Data(transfer, method))
        };
        let request = ServerRequest::Data {
            id,
            transfer,
            answered,
        };
        self.out.push_back(NearOutput::OpenData {
            transfer,
            request: request.into(),
        });
        if answered {
            self.await_client(transfer, method);
        }
    }

    fn await_client(&mut self, transfer: TransferId, method: DataMethod) {
        let is_private = self.protection.is_private();
        self.out.push_back(match method {
            DataMethod::Passive(_) => NearOutput::Listen {
                transfer,
                is_private,
            },
            DataMethod::Active(at) => NearOutput::Dial {
                transfer,
                at,
                is_private,
            },
        });
        // The client may already have requested the transfer.
        if let Some(direction) = self.transfers.direction(transfer) {
            self.order(transfer, NearDataOrder::Start(direction));
        }
    }

    fn relay(&mut self, id: CommandId, command: &Command<'_>, answered: bool) {
        let (line, synch) = (command.line().to_vec(), command.synch());
        let request = ServerRequest::Command {
            id,
            synch,
            answered,
            line,
        };
        self.out.push_back(NearOutput::Send(request.into()));
    }

    fn handle_far_reply(&mut self, tag: ReplyTag, line: &[u8]) {
        if let (Some(transfer), ReplyStage::Final) = (tag.transfer, tag.stage) {
            // If a newer PASV or an ABOR has superseded the command, the reply has no effect.
            let succeeded = succeeded(tag);
            self.order(transfer, NearDataOrder::Finish { succeeded });
        }
        if tag.prefetches {
            self.prefetched.begin(tag.command);
        }
        self.held.push(tag, line);
    }

    /// Relays all held reply lines that the session may relay now.
    fn settle(&mut self) {
        while let Some(tag) = self.held.next() {
            let waits_for = tag
                .transfer
                .filter(|_| tag.stage == ReplyStage::Final && succeeded(tag));
            let ended = match waits_for {
                None => Some(Ok(())),
                Some(id) => self.transfers.end(id),
            };
            let Some(ended) = ended else {
                match waits_for.and_then(|id| Some((id, self.transfers.end_aborted(id)?))) {
                    Some((id, record)) => self.give_up(vec![(id, record)], Some(426)),
                    None => return,
                }
                continue;
            };
            let Some((tag, line)) = self.held.pop() else {
                return;
            };
            if let (Some(id), ReplyStage::Final) = (tag.command, tag.stage) {
                // The server has received the ABOR, so the data connection may end now.
                let aborted = self.transfers.take_aborted(id);
                self.kill(aborted);
            }
            let code = match ended {
                Ok(()) => {
                    self.relay_line(tag, &line);
                    tag.code
                }
                Err(broken) => {
                    if tag.last {
                        self.write(broken.to_string().as_bytes());
                    }
                    broken.code()
                }
            };
            if tag.last {
                self.on_reply_relayed(ReplyTag { code, ..tag });
                self.write_own_answers();
            }
        }
        self.write_own_answers();
        if self.tls_step == TlsStep::Answering && self.pending.is_empty() {
            self.tls_step = TlsStep::Beginning;
            self.out.push_back(NearOutput::BeginTls);
        }
        if self.server_gone && !self.closed {
            self.close();
        }
        self.leave_if_answered();
    }

    /// Handles a command to which the server sent no reply, and for which the client expects no
    /// reply.
    fn on_left_unanswered(&mut self, id: CommandId) {
        let aborted = self.transfers.take_aborted(id);
        self.kill(aborted);
        if let Some(transfer) = self.pending.answered(id) {
            self.remove(transfer);
        }
    }

    fn relay_line(&mut self, tag: ReplyTag, line: &[u8]) {
        let request = tag.command.and_then(|id| self.pending.request(id));
        if request != Some(PendingRequest::Features) {
            return self.write(line);
        }
        let offers_tls = self.protection.is_offered() && self.in_features;
        self.in_features = !tag.last;
        for line in features::edit_line(line, tag.last, offers_tls) {
            self.write(&line);
        }
    }

    fn on_reply_relayed(&mut self, tag: ReplyTag) {
        self.last_code = tag.code;
        let request = tag.command.and_then(|id| self.pending.request(id));
        let is_greeting = tag.command.is_none();
        if is_greeting && tag.stage == ReplyStage::Final && tag.code != 0 {
            self.pending.greeted();
        }
        if request == Some(PendingRequest::Login) || is_greeting {
            self.logged_in |= matches!(tag.code, 202 | 230 | 232);
        }
        if request == Some(PendingRequest::Login) && matches!(tag.code, 430 | 530) {
            self.out.push_back(NearOutput::LoginFailed);
        }
        match (tag.transfer, tag.stage) {
            (Some(transfer), ReplyStage::Preliminary) => {
                if self.transfers.start_unknown(transfer) {
                    self.order(transfer, NearDataOrder::Start(None));
                }
                self.order(transfer, NearDataOrder::Release);
            }
            (Some(transfer), ReplyStage::Final) => {
                let record = self.transfers.answered(transfer, tag.code, succeeded(tag));
                self.record(record);
            }
            (None, ReplyStage::Preliminary) => {
                if let Some(id) = tag.command {
                    self.pending.begun(id);
                }
            }
            (None, ReplyStage::Final) => {}
        }
        if let (Some(id), ReplyStage::Final) = (tag.command, tag.stage)
            && let Some(transfer) = self.pending.answered(id)
        {
            // The command has received a reply line instead of a listener, so it has no data
            // connection.
            self.remove(transfer);
        }
    }

    fn on_listening(&mut self, transfer: TransferId, at: SocketAddr) {
        let form = self.pending.awaited_form(transfer);
        match form.and_then(|form| passive_reply(form, at)) {
            Some(line) => self.pending.announce(transfer, line),
            None => self.refuse_data(transfer),
        }
    }

    fn refuse_data(&mut self, transfer: TransferId) {
        let text = "425 gateway: no data connection can be opened at the moment";
        self.is_data_refused = true;
        self.pending.answer_awaited(transfer, text);
        self.remove(transfer);
    }

    fn remove(&mut self, transfer: TransferId) {
        if let Some(record) = self.transfers.remove(transfer) {
            self.record(record);
            self.order(transfer, NearDataOrder::Kill);
        }
    }

    /// Ends data connections that no command has used.
    fn kill_unused(&mut self) {
        let unused = self.transfers.take_unused();
        self.kill(unused);
    }

    fn kill(&mut self, transfers: Vec<TransferId>) {
        for id in transfers {
            self.order(id, NearDataOrder::Kill);
        }
    }

    /// Ends transfers. `code` is the code of their final reply to the client. `None` means that the
    /// client receives no final reply.
    fn give_up(
        &mut self,
        transfers: Vec<(TransferId, Option<TransferSummary>)>,
        code: Option<u16>,
    ) {
        for (id, record) in transfers {
            // The record needs the counters of the transfer. The order that ends the transfer must
            // therefore follow the record.
            self.record(record.map(|record| TransferSummary { code, ..record }));
            self.order(id, NearDataOrder::Kill);
        }
    }

    fn record(&mut self, record: Option<TransferSummary>) {
        self.out.extend(record.map(NearOutput::Transferred));
    }

    fn order(&mut self, transfer: TransferId, order: NearDataOrder) {
        let is_abandoned = order == NearDataOrder::Kill;
        self.out.push_back(NearOutput::Order(transfer, order));
        if is_abandoned {
            let message = MessageToFar::Abandon(transfer);
            self.out.push_back(NearOutput::Send(message));
        }
    }

    /// Writes the gateway's own replies. The function stops at the next command that waits for a
    /// reply from the far gateway.
    fn write_own_answers(&mut self) {
        while let Some((lines, announced)) = self.pending.pop_answer() {
            for line in lines.split(|&b| b == b'\n') {
                self.write(line.strip_suffix(b"\r").unwrap_or(line));
            }
            if let Some(transfer) = announced {
                self.order(transfer, NearDataOrder::Announced);
            }
        }
    }

    fn write(&mut self, line: &[u8]) {
        let mut bytes = Vec::with_capacity(line.len() + 2);
        bytes.extend_from_slice(line);
        bytes.extend_from_slice(b"\r\n");
        self.out.push_back(NearOutput::ToClient(bytes));
    }
}

/// Time limit for the replies to a client that has closed its sending direction.
pub const HALF_CLOSED_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// Whether the code of the reply is `2yz`. For a transfer, a `3yz` reply is a failure (RFC 959
/// section 6).
fn succeeded(tag: ReplyTag) -> bool {
    ReplyCode(tag.code).class() == ReplyClass::Completed
}

#[cfg(test)]
mod tests;
