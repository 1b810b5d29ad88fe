//! The half of a session beside the server.
//!
//! In: the client's commands from the near half, the server's lines, what became of data
//! connections. Out: lines for the server, tagged reply lines for the near half, data connections
//! to open and to abort. The caller owns the sockets; it drains [`FarSession::poll`] before the
//! next [`FarSession::handle`].

use std::collections::VecDeque;

use super::{CommandId, PIPELINED_MAX, Stage, Tag, TransferId, refusal};
use crate::{
    address::{EpsvArgument, announced_port, epsv_argument},
    command::{Command, Kind, PassiveForm},
    reply::{Class, Code, ReplyTracker},
};

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// The client sent a command.
    Command {
        /// Its number.
        id: CommandId,
        /// The line without terminator and Telnet prefix.
        line: &'a [u8],
        /// A Telnet Synch came with it.
        synch: bool,
    },
    /// The client asked for a passive data connection.
    Passive {
        /// Number of the command.
        id: CommandId,
        /// Number of the data connection.
        transfer: TransferId,
        /// How the client asked; the server is asked in the form that fits its own address.
        form: PassiveForm,
    },
    /// The near half gave a data connection up.
    Abandon(TransferId),
    /// The client closed its control connection in an orderly way.
    ClientGone,
    /// The server sent a line.
    ServerLine(&'a [u8]),
    /// The server closed its control connection, or it broke.
    ServerClosed,
    /// The data connection could not be opened.
    DataRefused(TransferId),
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this line to the server in one write.
    ToServer {
        /// Without terminator.
        line: Vec<u8>,
        /// Put a Telnet interrupt and Synch in front.
        synch: bool,
    },
    /// Relay a reply line to the near half.
    Reply {
        /// What it answers.
        tag: Tag,
        /// Without terminator.
        line: Vec<u8>,
    },
    /// Tell the near half that the server awaits the data connection.
    PassiveReady {
        /// Number of the command that asked.
        id: CommandId,
        /// Number of the data connection.
        transfer: TransferId,
    },
    /// Connect to this port of the control connection's peer, at once.
    Connect {
        /// Number of the data connection.
        transfer: TransferId,
        /// The port that the server announced.
        port: u16,
    },
    /// Reset the server's data connection.
    Abort {
        /// Number of the data connection.
        transfer: TransferId,
        /// Give the server a moment to end it by itself.
        grace: bool,
    },
    /// Close the server's control connection. Nothing follows.
    Close,
}

/// How a session begins.
#[derive(Debug)]
pub enum Opening {
    /// Relay the server's greeting.
    RelayGreeting,
    /// The client has been greeted; consume the server's greeting, then send this command.
    ConsumeGreeting {
        /// Number of the command.
        id: CommandId,
        /// `USER name`, without terminator.
        line: Vec<u8>,
    },
}

/// The near half broke its own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {PIPELINED_MAX} commands ahead of their replies")]
pub struct TooManyCommands;

#[derive(Debug)]
enum Request {
    Command {
        id: CommandId,
        line: Vec<u8>,
        synch: bool,
    },
    Passive {
        id: CommandId,
        transfer: TransferId,
        form: PassiveForm,
    },
}

#[derive(Debug)]
struct InFlight {
    id: Option<CommandId>,
    expect: Expect,
}

#[derive(Debug)]
enum Expect {
    Plain,
    Quit,
    Greeting {
        then: Vec<u8>,
        lines: Vec<Vec<u8>>,
    },
    Passive {
        transfer: TransferId,
        tried: PassiveForm,
        fallback: bool,
        lines: Vec<Vec<u8>>,
    },
    Transfer {
        transfer: TransferId,
        /// Its `1yz` reply came.
        begun: bool,
    },
}

#[derive(Debug, Clone, Copy)]
struct Prepared {
    transfer: TransferId,
    refused: bool,
}

/// One session beside the server.
#[derive(Debug)]
pub struct FarSession {
    queue: VecDeque<Request>,
    in_flight: VecDeque<InFlight>,
    /// Which entry of `in_flight` the open reply answers; `None` when it answers nothing.
    answering: Option<usize>,
    tracker: ReplyTracker,
    prepared: Option<Prepared>,
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
            Opening::ConsumeGreeting { id, line } => (
                Some(id),
                Expect::Greeting {
                    then: line,
                    lines: Vec::new(),
                },
            ),
        };
        Self {
            queue: VecDeque::new(),
            in_flight: VecDeque::from([InFlight { id, expect }]),
            answering: None,
            tracker: ReplyTracker::default(),
            prepared: None,
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
                let request = Request::Command {
                    id,
                    line: line.to_vec(),
                    synch,
                };
                self.enqueue(request)?;
            }
            Input::Passive { id, transfer, form } => {
                self.enqueue(Request::Passive { id, transfer, form })?;
            }
            Input::Abandon(transfer) => {
                self.prepared.take_if(|p| p.transfer == transfer);
                self.out.push_back(Output::Abort {
                    transfer,
                    grace: false,
                });
            }
            Input::ClientGone => self.client_gone = true,
            Input::ServerLine(line) => self.server_line(line),
            Input::ServerClosed => self.server_closed(),
            Input::DataRefused(transfer) => {
                if let Some(prepared) = self.prepared.as_mut().filter(|p| p.transfer == transfer) {
                    prepared.refused = true;
                }
            }
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
        self.in_flight
            .iter()
            .any(|f| matches!(f.expect, Expect::Transfer { .. }))
    }

    fn enqueue(&mut self, request: Request) -> Result<(), TooManyCommands> {
        if self.queue.len() >= PIPELINED_MAX {
            return Err(TooManyCommands);
        }
        if let Some(code) = self.tracker.client_went_on() {
            self.reply_ended(code);
        }
        match request {
            Request::Command { id, line, synch }
                if self.transfer_running() && Command::parse(&line).kind() == Kind::Abort =>
            {
                self.send(id, line, synch);
            }
            request => self.queue.push_back(request),
        }
        Ok(())
    }

    /// Sends what may be sent now.
    fn advance(&mut self) {
        while !self.closed && self.may_send_next() {
            match self.queue.pop_front() {
                Some(Request::Command { id, line, synch }) => self.send(id, line, synch),
                Some(Request::Passive { id, transfer, form }) => {
                    self.ask_passive(id, transfer, form)
                }
                None => break,
            }
        }
        if self.client_gone && self.in_flight.is_empty() && self.queue.is_empty() && !self.closed {
            if !self.quit_sent {
                self.out.push_back(Output::ToServer {
                    line: b"QUIT".to_vec(),
                    synch: false,
                });
            }
            self.close();
        }
    }

    fn may_send_next(&self) -> bool {
        if self.in_flight.is_empty() {
            return true;
        }
        let front_is_transfer = matches!(
            self.in_flight.front(),
            Some(InFlight {
                expect: Expect::Transfer { .. },
                ..
            })
        );
        let overtakes = match self.queue.front() {
            Some(Request::Command { line, .. }) => matches!(
                Command::parse(line).kind(),
                Kind::Abort | Kind::Quit | Kind::Overtaking | Kind::User
            ),
            _ => false,
        };
        front_is_transfer && overtakes
    }

    fn send(&mut self, id: CommandId, line: Vec<u8>, synch: bool) {
        let command = Command::parse(&line);
        if let Some(text) = refusal(&command, self.epsv_only) {
            return self.answer(id, None, text);
        }
        let kind = command.kind();
        let mut expect = Expect::Plain;
        match kind {
            Kind::Transfer(_) => match self.prepared.take() {
                None => {
                    return self.answer(id, None, "425 gateway: use PASV or EPSV first");
                }
                Some(Prepared {
                    transfer,
                    refused: true,
                }) => {
                    let text = "425 gateway: the server's data port did not accept the connection";
                    return self.answer(id, Some(transfer), text);
                }
                Some(Prepared {
                    transfer,
                    refused: false,
                }) => {
                    expect = Expect::Transfer {
                        transfer,
                        begun: false,
                    };
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
        self.in_flight.push_back(InFlight {
            id: Some(id),
            expect,
        });
    }

    /// After ABOR the data connection ends too: vsftpd looks at its control connection only then.
    fn abort_data(&mut self) {
        let mut running = None;
        for entry in &self.in_flight {
            if let Expect::Transfer { transfer, .. } = entry.expect {
                running = Some(transfer);
            }
        }
        if let Some(transfer) = running {
            self.out.push_back(Output::Abort {
                transfer,
                grace: true,
            });
        } else if let Some(prepared) = self.prepared.take() {
            self.out.push_back(Output::Abort {
                transfer: prepared.transfer,
                grace: false,
            });
        }
    }

    fn ask_passive(&mut self, id: CommandId, transfer: TransferId, form: PassiveForm) {
        if let Some(previous) = self.prepared.take() {
            self.out.push_back(Output::Abort {
                transfer: previous.transfer,
                grace: false,
            });
        }
        if self.epsv_only && form == PassiveForm::Pasv {
            let text = "501 gateway: only EPSV is allowed after EPSV ALL";
            return self.answer(id, None, text);
        }
        // EPSV on IPv4 breaks in NATs that do not know FTP; PASV cannot carry IPv6.
        let tried = if self.server_is_v6 {
            PassiveForm::Epsv
        } else {
            PassiveForm::Pasv
        };
        self.out.push_back(Output::ToServer {
            line: passive_line(tried),
            synch: false,
        });
        let expect = Expect::Passive {
            transfer,
            tried,
            fallback: false,
            lines: Vec::new(),
        };
        self.in_flight.push_back(InFlight {
            id: Some(id),
            expect,
        });
    }

    fn server_line(&mut self, line: &[u8]) {
        let place = self.tracker.place(line);
        let Some(code) = place.code else {
            let tag = Tag {
                command: None,
                transfer: None,
                stage: Stage::Final,
                code: 0,
                last: true,
            };
            return self.out.push_back(Output::Reply {
                tag,
                line: line.to_vec(),
            });
        };
        if place.first {
            self.answering = self.attribute(code);
        }
        let entry = self.answering.and_then(|i| self.in_flight.get_mut(i));
        let (id, transfer) = match entry {
            Some(InFlight {
                expect: Expect::Passive { lines, .. } | Expect::Greeting { lines, .. },
                ..
            }) => {
                // The last line says most.
                if lines.len() >= HELD_LINES_MAX {
                    lines.pop();
                }
                lines.push(line.to_vec());
                if place.last {
                    self.reply_ended(code);
                }
                return;
            }
            Some(entry) => {
                // A verb that is unknown here, but starts a transfer on the prepared connection.
                if matches!(entry.expect, Expect::Plain)
                    && matches!(code.0, 125 | 150)
                    && let Some(Prepared {
                        transfer,
                        refused: false,
                    }) = self.prepared.take()
                {
                    entry.expect = Expect::Transfer {
                        transfer,
                        begun: true,
                    };
                }
                match entry.expect {
                    Expect::Transfer { transfer, .. } => (entry.id, Some(transfer)),
                    _ => (entry.id, None),
                }
            }
            None => (None, None),
        };
        let stage = stage_of(code);
        let tag = Tag {
            command: id,
            transfer,
            stage,
            code: code.0,
            last: place.last,
        };
        self.out.push_back(Output::Reply {
            tag,
            line: line.to_vec(),
        });
        if place.last {
            self.reply_ended(code);
        }
    }

    /// Which command in flight a reply with `code` answers. Until a transfer has begun, servers
    /// answer in order; while it runs, what overtook it is answered by codes that no transfer ends
    /// with.
    fn attribute(&self, code: Code) -> Option<usize> {
        match self.in_flight.front()?.expect {
            Expect::Transfer { begun: true, .. } if self.in_flight.len() > 1 => {
                let transfers = stage_of(code) == Stage::Preliminary
                    || matches!(code.0, 226 | 250 | 425 | 426 | 450..=452 | 550..=553);
                Some(usize::from(!transfers))
            }
            _ => Some(0),
        }
    }

    fn reply_ended(&mut self, code: Code) {
        let Some(index) = self.answering.take() else {
            return;
        };
        let Some(mut entry) = self.in_flight.remove(index) else {
            return;
        };
        if let Expect::Transfer { begun, .. } = &mut entry.expect {
            *begun |= stage_of(code) == Stage::Preliminary;
        }
        let keep = match entry.expect {
            Expect::Plain | Expect::Quit | Expect::Transfer { .. } => {
                (stage_of(code) == Stage::Preliminary).then_some(entry)
            }
            Expect::Greeting { then, lines } => self.greeted(entry.id, code, then, lines),
            Expect::Passive {
                transfer,
                tried,
                fallback,
                lines,
            } => self.passive_answered(entry.id, code, transfer, (tried, fallback), lines),
        };
        if let Some(entry) = keep {
            self.in_flight.insert(index, entry);
        }
    }

    fn greeted(
        &mut self,
        id: Option<CommandId>,
        code: Code,
        then: Vec<u8>,
        lines: Vec<Vec<u8>>,
    ) -> Option<InFlight> {
        match code.class() {
            Class::Preliminary => {
                let expect = Expect::Greeting {
                    then,
                    lines: Vec::new(),
                };
                Some(InFlight { id, expect })
            }
            Class::Completed => {
                self.out.push_back(Output::ToServer {
                    line: then,
                    synch: false,
                });
                Some(InFlight {
                    id,
                    expect: Expect::Plain,
                })
            }
            Class::Intermediate | Class::Failed => {
                self.relay_held(id, code, lines);
                None
            }
        }
    }

    fn passive_answered(
        &mut self,
        id: Option<CommandId>,
        code: Code,
        transfer: TransferId,
        (tried, fallback): (PassiveForm, bool),
        lines: Vec<Vec<u8>>,
    ) -> Option<InFlight> {
        let id = id.expect("every passive request has a number");
        let (ok_code, other) = match tried {
            PassiveForm::Pasv => (227, PassiveForm::Epsv),
            PassiveForm::Epsv => (229, PassiveForm::Pasv),
        };
        let port = lines.last().and_then(|line| announced_port(tried, line));
        if let Some(port) = port.filter(|_| code.0 == ok_code) {
            self.prepared = Some(Prepared {
                transfer,
                refused: false,
            });
            self.out.push_back(Output::Connect { transfer, port });
            self.out.push_back(Output::PassiveReady { id, transfer });
            return None;
        }
        let not_understood = matches!(code.0, 500..=504 | 522) || code.0 == ok_code;
        if not_understood && !fallback && !self.server_is_v6 {
            self.out.push_back(Output::ToServer {
                line: passive_line(other),
                synch: false,
            });
            let expect = Expect::Passive {
                transfer,
                tried: other,
                fallback: true,
                lines: Vec::new(),
            };
            return Some(InFlight {
                id: Some(id),
                expect,
            });
        }
        if code.class() == Class::Failed {
            self.relay_held(Some(id), code, lines);
        } else {
            let text = "425 gateway: the server's answer to PASV cannot be read";
            self.answer(id, None, text);
        }
        None
    }

    fn relay_held(&mut self, id: Option<CommandId>, code: Code, lines: Vec<Vec<u8>>) {
        let count = lines.len();
        for (i, line) in lines.into_iter().enumerate() {
            let last = i + 1 == count;
            let tag = Tag {
                command: id,
                transfer: None,
                stage: Stage::Final,
                code: code.0,
                last,
            };
            self.out.push_back(Output::Reply { tag, line });
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
        self.out.push_back(Output::Reply {
            tag,
            line: text.as_bytes().to_vec(),
        });
    }

    fn server_closed(&mut self) {
        let unanswered = self
            .in_flight
            .iter()
            .filter_map(|entry| match entry.expect {
                Expect::Transfer { transfer, .. } => Some(transfer),
                _ => None,
            });
        let prepared = self.prepared.take().map(|p| p.transfer);
        for transfer in unanswered.chain(prepared) {
            self.out.push_back(Output::Abort {
                transfer,
                grace: false,
            });
        }
        self.close();
    }

    fn close(&mut self) {
        self.closed = true;
        self.out.push_back(Output::Close);
    }
}

fn stage_of(code: Code) -> Stage {
    match code.class() {
        Class::Preliminary => Stage::Preliminary,
        _ => Stage::Final,
    }
}

fn passive_line(form: PassiveForm) -> Vec<u8> {
    match form {
        PassiveForm::Pasv => b"PASV".to_vec(),
        PassiveForm::Epsv => b"EPSV".to_vec(),
    }
}

/// Most lines kept of a greeting or of an answer to PASV that is not relayed as it comes.
const HELD_LINES_MAX: usize = 64;

#[cfg(test)]
mod tests;
