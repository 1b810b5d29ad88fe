//! The half of a session beside the server.
//!
//! In: the client's commands from the near half, the server's lines, what became of data
//! connections. Out: lines for the server, tagged reply lines for the near half, data connections
//! to open and to abort. The caller owns the sockets; it drains [`FarSession::poll`] before the
//! next [`FarSession::handle`].

mod greeting;
mod held;
mod in_flight;
mod io;
mod passive;
mod prepared;
mod queue;

pub use io::{Input, Opening, Output, TooManyCommands};

use std::collections::VecDeque;

use self::{
    greeting::{Greeted, Greeting},
    held::Held,
    in_flight::{Entry, Expect, InFlight, stage_of},
    passive::{Answer, Passive},
    prepared::{Found, Prepared},
    queue::{Queue, Request},
};
use super::{CommandId, Stage, Tag, TransferId, refusal};
use crate::{
    address::{EpsvArgument, epsv_argument},
    command::{Command, Kind, PassiveForm},
    reply::Code,
};

/// One session beside the server.
#[derive(Debug)]
pub struct FarSession {
    queue: Queue,
    in_flight: InFlight,
    prepared: Prepared,
    server_is_v6: bool,
    epsv_only: bool,
    client_gone: bool,
    quit_sent: bool,
    closed: bool,
    out: VecDeque<Output>,
}

impl FarSession {
    /// A session with a server that has just been connected.
    pub fn new(opening: Opening, server_is_v6: bool) -> Self {
        let (id, expect) = match opening {
            Opening::RelayGreeting => (None, Expect::Plain),
            Opening::ConsumeGreeting { id, line } => {
                (Some(id), Expect::Greeting(Greeting::new(line)))
            }
        };
        Self {
            queue: Queue::default(),
            in_flight: InFlight::greeting(Entry { id, expect }),
            prepared: Prepared::default(),
            server_is_v6,
            epsv_only: false,
            client_gone: false,
            quit_sent: false,
            closed: false,
            out: VecDeque::new(),
        }
    }

    /// Takes note of what happened.
    ///
    /// # Errors
    /// [`TooManyCommands`] if the near half sends more commands ahead than it may.
    pub fn handle(&mut self, input: Input<'_>) -> Result<(), TooManyCommands> {
        if self.closed {
            return Ok(());
        }
        match input {
            Input::Command { id, line, synch } => {
                let line = line.to_vec();
                self.enqueue(Request::Command { id, line, synch })?;
            }
            Input::Passive { id, transfer, form } => {
                self.enqueue(Request::Passive { id, transfer, form })?;
            }
            Input::Abandon(transfer) => {
                self.prepared.abandon(transfer);
                self.abort(transfer);
            }
            Input::ClientGone => self.client_gone = true,
            Input::ServerLine(line) => self.server_line(line),
            Input::ServerClosed => self.server_closed(),
            Input::DataRefused(transfer) => self.prepared.refused(transfer),
        }
        self.advance();
        Ok(())
    }

    /// The next thing to do; `None` until the next input.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Whether a transfer has been commanded and not answered.
    pub fn transfer_running(&self) -> bool {
        self.in_flight.transfers().next().is_some()
    }

    fn enqueue(&mut self, request: Request) -> Result<(), TooManyCommands> {
        self.queue.check_room()?;
        if let Some(code) = self.in_flight.client_went_on() {
            self.reply_ended(code);
        }
        if self.transfer_running() && request.is_abort() {
            self.send(request);
        } else {
            self.queue.push(request);
        }
        Ok(())
    }

    /// Sends what may be sent now.
    fn advance(&mut self) {
        while !self.closed && self.may_send_next() {
            match self.queue.pop() {
                Some(request) => self.send(request),
                None => break,
            }
        }
        if self.client_gone && self.in_flight.is_empty() && self.queue.is_empty() && !self.closed {
            if !self.quit_sent {
                self.send_line(b"QUIT".to_vec());
            }
            self.close();
        }
    }

    fn may_send_next(&self) -> bool {
        self.in_flight.is_empty()
            || self.in_flight.transfer_is_first() && self.queue.next_may_overtake()
    }

    fn send(&mut self, request: Request) {
        match request {
            Request::Command { id, line, synch } => self.send_command(id, line, synch),
            Request::Passive { id, transfer, form } => self.ask_passive(id, transfer, form),
        }
    }

    fn send_command(&mut self, id: CommandId, line: Vec<u8>, synch: bool) {
        let command = Command::parse(&line);
        if let Some(text) = refusal(&command, self.epsv_only) {
            return self.answer(id, None, text);
        }
        let kind = command.kind();
        let mut expect = Expect::Plain;
        match kind {
            Kind::Transfer(_) => match self.prepared.take() {
                Found::Nothing => {
                    return self.answer(id, None, "425 gateway: use PASV or EPSV first");
                }
                Found::Refused(transfer) => {
                    let text = "425 gateway: the server's data port did not accept the connection";
                    return self.answer(id, Some(transfer), text);
                }
                Found::Connection(transfer) => {
                    let begun = false;
                    expect = Expect::Transfer { transfer, begun };
                }
            },
            Kind::Quit => {
                self.quit_sent = true;
                expect = Expect::Quit;
            }
            Kind::Passive(_) if epsv_argument(command.argument()) == EpsvArgument::All => {
                self.epsv_only = true;
                return self.answer(id, None, "200 gateway: EPSV ALL accepted");
            }
            _ => {}
        }
        self.out.push_back(Output::ToServer { line, synch });
        if kind == Kind::Abort {
            self.abort_data();
        }
        self.in_flight.push(id, expect);
    }

    /// After ABOR the data connection ends too: vsftpd looks at its control connection only then.
    fn abort_data(&mut self) {
        if let Some(transfer) = self.in_flight.transfers().next_back() {
            let grace = true;
            self.out.push_back(Output::Abort { transfer, grace });
        } else {
            self.abort_prepared();
        }
    }

    fn ask_passive(&mut self, id: CommandId, transfer: TransferId, form: PassiveForm) {
        self.abort_prepared();
        if self.epsv_only && form == PassiveForm::Pasv {
            let text = "501 gateway: only EPSV is allowed after EPSV ALL";
            return self.answer(id, None, text);
        }
        let passive = Passive::new(transfer, self.server_is_v6);
        self.send_line(passive.line());
        self.in_flight.push(id, Expect::Passive(passive));
    }

    fn server_line(&mut self, line: &[u8]) {
        let place = self.in_flight.place(line);
        let Some(code) = place.code else {
            // Outside any reply.
            let tag = Tag {
                command: None,
                transfer: None,
                stage: Stage::Final,
                code: 0,
                last: true,
            };
            return self.reply(tag, line.to_vec());
        };
        if !self.keeps(line) {
            let (command, transfer) = self.answered_by(code);
            let tag = Tag {
                command,
                transfer,
                stage: stage_of(code),
                code: code.0,
                last: place.last,
            };
            self.reply(tag, line.to_vec());
        }
        if place.last {
            self.reply_ended(code);
        }
    }

    /// Keeps a line of a reply that is not relayed as it comes.
    fn keeps(&mut self, line: &[u8]) -> bool {
        let held = match self.in_flight.answering().map(|entry| &mut entry.expect) {
            Some(Expect::Greeting(greeting)) => &mut greeting.held,
            Some(Expect::Passive(passive)) => &mut passive.held,
            _ => return false,
        };
        held.push(line);
        true
    }

    /// The command that the open reply, whose code is given, answers; and its transfer.
    fn answered_by(&mut self, code: Code) -> (Option<CommandId>, Option<TransferId>) {
        let Some(entry) = self.in_flight.answering() else {
            return (None, None);
        };
        // A verb that is unknown here, but starts a transfer on the prepared connection.
        if matches!(entry.expect, Expect::Plain)
            && matches!(code.0, 125 | 150)
            && let Found::Connection(transfer) = self.prepared.take()
        {
            let begun = true;
            entry.expect = Expect::Transfer { transfer, begun };
        }
        match entry.expect {
            Expect::Transfer { transfer, .. } => (entry.id, Some(transfer)),
            _ => (entry.id, None),
        }
    }

    fn reply_ended(&mut self, code: Code) {
        let Some((index, Entry { id, expect })) = self.in_flight.reply_ended() else {
            return;
        };
        let is_preliminary = stage_of(code) == Stage::Preliminary;
        let then = match expect {
            Expect::Plain | Expect::Quit => is_preliminary.then_some(expect),
            Expect::Transfer { transfer, .. } => is_preliminary.then_some(Expect::Transfer {
                transfer,
                begun: true,
            }),
            Expect::Greeting(greeting) => self.greeted(id, greeting, code),
            Expect::Passive(passive) => self.passive_answered(id, passive, code),
        };
        if let Some(expect) = then {
            self.in_flight.keep(index, Entry { id, expect });
        }
    }

    /// Returns what to expect next.
    fn greeted(&mut self, id: Option<CommandId>, greeting: Greeting, code: Code) -> Option<Expect> {
        match greeting.ended(code) {
            Greeted::Wait(greeting) => Some(Expect::Greeting(greeting)),
            Greeted::Send(line) => {
                self.send_line(line);
                Some(Expect::Plain)
            }
            Greeted::Refused(held) => {
                self.relay_held(id, code, held);
                None
            }
        }
    }

    /// Returns what to expect next.
    fn passive_answered(
        &mut self,
        id: Option<CommandId>,
        passive: Passive,
        code: Code,
    ) -> Option<Expect> {
        let id = id.expect("every passive request has a number");
        let transfer = passive.transfer;
        match passive.ended(code) {
            Answer::Port(port) => {
                self.prepared.set(transfer);
                self.out.push_back(Output::Connect { transfer, port });
                self.out.push_back(Output::PassiveReady { id, transfer });
            }
            Answer::Again(passive) => {
                self.send_line(passive.line());
                return Some(Expect::Passive(passive));
            }
            Answer::Refused(held) => self.relay_held(Some(id), code, held),
            Answer::Unreadable => {
                let text = "425 gateway: the server's answer to PASV cannot be read";
                self.answer(id, None, text);
            }
        }
        None
    }

    fn relay_held(&mut self, command: Option<CommandId>, code: Code, held: Held) {
        for (line, last) in held.into_lines() {
            let tag = Tag {
                command,
                transfer: None,
                stage: Stage::Final,
                code: code.0,
                last,
            };
            self.reply(tag, line);
        }
    }

    /// Answers a command with the gateway's own words.
    fn answer(&mut self, id: CommandId, transfer: Option<TransferId>, text: &str) {
        let code = text
            .get(..3)
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(500);
        let tag = Tag {
            command: Some(id),
            transfer,
            stage: Stage::Final,
            code,
            last: true,
        };
        self.reply(tag, text.as_bytes().to_vec());
    }

    fn server_closed(&mut self) {
        let unanswered: Vec<_> = self.in_flight.transfers().collect();
        for transfer in unanswered {
            self.abort(transfer);
        }
        self.abort_prepared();
        self.close();
    }

    fn close(&mut self) {
        self.closed = true;
        self.out.push_back(Output::Close);
    }

    fn abort_prepared(&mut self) {
        if let Some(transfer) = self.prepared.give_up() {
            self.abort(transfer);
        }
    }

    fn abort(&mut self, transfer: TransferId) {
        let grace = false;
        self.out.push_back(Output::Abort { transfer, grace });
    }

    fn send_line(&mut self, line: Vec<u8>) {
        let synch = false;
        self.out.push_back(Output::ToServer { line, synch });
    }

    fn reply(&mut self, tag: Tag, line: Vec<u8>) {
        self.out.push_back(Output::Reply { tag, line });
    }
}

#[cfg(test)]
mod tests;
