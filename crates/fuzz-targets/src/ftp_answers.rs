//! Fuzz target: both halves of an FTP session, between a client that sends arbitrary commands and a
//! server that follows the protocol. The server replies to each command once, in order.
//!
//! Invariant: each command of the client gets one final reply, in order. If a final reply comes
//! from the server, it is the server's reply to this command. Only ABOR may overtake other
//! commands.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use ftp::{
    reply::{ReplyClass, ReplyTracker},
    session::{
        SessionMode, TransferId,
        data::{
            far::{FarDataEvent, FarDataOrder},
            near::{NearDataEvent, NearDataOrder},
        },
        far::{
            self, DataOpener, FarSession, FarSetup, ServerTlsMode, ServerTraits, SessionOpening,
        },
        near::{self, ClientTlsMode, NearSession, NearSetup, ServerSource},
    },
};

use crate::Tape;

const CLIENT_LINES: [&str; 24] = [
    "NOOP",
    "CWD a",
    "PASV",
    "EPSV",
    "EPSV 2",
    "PORT 127,0,0,1,4,1",
    "PORT 1,2,3,4,5,6",
    "RETR a",
    "STOR a",
    "LIST",
    "ABOR",
    "STAT",
    "TYPE I",
    "SYST",
    "FEAT",
    "PWD",
    "SIZE a",
    "USER joe",
    "PASS x",
    "XYZZY",
    "AUTH TLS",
    "PROT P",
    "LPRT 1",
    "",
];

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

struct World {
    near: NearSession,
    far: FarSession,
    to_far: VecDeque<near::NearOutput>,
    to_near: VecDeque<far::FarOutput>,
    /// Commands that the server has received, but has not replied to yet.
    server: VecDeque<String>,
    /// Whether the server has started the transfer of the first command in `server`.
    is_transferring: bool,
    /// Whether the server has agreed on a data connection that no transfer has used yet.
    has_port: bool,
    begun: Vec<TransferId>,
    /// Transfers whose data connection with the server has not ended yet.
    commanded: Vec<TransferId>,
    /// Commands of the client that have no final reply yet.
    asked: VecDeque<String>,
    replies: ReplyTracker,
    answered: usize,
    is_over: bool,
}

/// Runs `data`. Returns the number of commands that got a final reply.
pub(crate) fn play(data: &[u8]) -> usize {
    let mut tape = Tape::new(data);
    let options = tape.byte();
    let mode = if options & 8 == 0 {
        SessionMode::Strict
    } else {
        SessionMode::Fast
    };
    let setup = FarSetup {
        server_is_v6: false,
        data: if options & 16 == 0 {
            DataOpener::Passive
        } else {
            DataOpener::Active
        },
        mode,
        tls: ServerTlsMode::Off,
        known: ServerTraits::default(),
    };
    let mut world = World {
        near: NearSession::new(NearSetup {
            server_source: ServerSource::Fixed,
            mode,
            tls: ClientTlsMode::Off,
            local: LOCAL,
            client: LOCAL,
        }),
        far: FarSession::new(SessionOpening::RelayGreeting, setup),
        to_far: VecDeque::new(),
        to_near: VecDeque::new(),
        server: VecDeque::new(),
        is_transferring: false,
        has_port: false,
        begun: Vec::new(),
        commanded: Vec::new(),
        asked: VecDeque::from(["greeting".to_owned()]),
        replies: ReplyTracker::default(),
        answered: 0,
        is_over: false,
    };
    world.server.push_back("greeting".to_owned());
    for _ in 0..400 {
        if tape.is_over() || world.is_over {
            break;
        }
        world.step(&mut tape);
    }
    world.settle();
    assert!(
        world.is_over || world.asked.is_empty(),
        "never answered: {:?}",
        world.asked
    );
    world.answered
}

impl World {
    fn step(&mut self, tape: &mut Tape<'_>) {
        match tape.byte() % 16 {
            0..=2 if self.near.wants_client() => {
                let line = CLIENT_LINES[tape.below(CLIENT_LINES.len())];
                // An empty line is no command.
                self.asked
                    .extend((!line.is_empty()).then(|| line.to_owned()));
                self.near(near::NearInput::ClientLine(line.as_bytes()));
            }
            3..=5 => {
                let is_refusal = tape.byte().is_multiple_of(4);
                self.server_speaks(is_refusal);
            }
            6 | 7 => self.carry_to_far(),
            8 | 9 => self.carry_to_near(),
            10 => {
                for _ in 0..8 {
                    self.carry_to_far();
                    self.carry_to_near();
                }
            }
            11 if tape.byte().is_multiple_of(8) => self.wait_in_vain(),
            12 if !self.begun.is_empty() => {
                let transfer = self.begun.remove(tape.below(self.begun.len()));
                let event = match tape.byte() % 4 {
                    0..=2 => NearDataEvent::Delivered,
                    _ => NearDataEvent::Failed("broken".to_owned()),
                };
                self.near(near::NearInput::Data(transfer, event));
            }
            13 if tape.byte().is_multiple_of(16) => self.near(near::NearInput::ClientClosed),
            _ => {}
        }
    }

    /// Simulates the timeout of a reply, unless an `ABOR` is in flight. Perhaps the server never
    /// replies to an `ABOR`, and a late reply to `ABOR` looks like any other reply.
    fn wait_in_vain(&mut self) {
        let aborts = self.server.iter().any(|line| line == "ABOR");
        if !aborts && self.far.wait().is_some() {
            self.far(far::FarInput::WaitTimedOut);
        }
    }

    /// Runs the client, the gateways and the server until all their work is complete.
    fn settle(&mut self) {
        for _ in 0..4000 {
            if self.is_over || self.asked.is_empty() {
                return;
            }
            self.carry_to_far();
            self.carry_to_near();
            if self.server.is_empty() {
                self.wait_in_vain();
            }
            self.server_speaks(false);
            if let Some(transfer) = self.begun.pop() {
                self.near(near::NearInput::Data(transfer, NearDataEvent::Delivered));
            }
            if let Some(transfer) = self.commanded.pop() {
                self.far(far::FarInput::Data(transfer, FarDataEvent::Delivered));
            }
        }
    }

    /// Sends the server's next reply to its oldest command. A transfer has two replies. If an ABOR
    /// has arrived, the second reply of a transfer is 426.
    fn server_speaks(&mut self, is_refusal: bool) {
        let Some(line) = self.server.front().cloned() else {
            return;
        };
        let verb = line.split(' ').next().unwrap_or_default();
        let is_transfer = matches!(verb, "RETR" | "STOR" | "LIST");
        let aborted = self.server.iter().any(|line| line == "ABOR");
        let code = match verb {
            _ if self.is_transferring && aborted => 426,
            _ if self.is_transferring => 226,
            "greeting" => 220,
            _ if is_refusal => 550,
            "PASV" => 227,
            "EPSV" => 229,
            "USER" => 331,
            "PASS" => 230,
            "XYZZY" | "" => 500,
            "PWD" => 257,
            "FEAT" => 211,
            "ABOR" => 226,
            _ if is_transfer && !self.has_port => 425,
            _ if is_transfer => 150,
            _ => 200,
        };
        self.has_port = match verb {
            "PASV" | "EPSV" | "PORT" => code != 550,
            _ => self.has_port && !is_transfer && verb != "ABOR",
        };
        if code == 150 {
            self.is_transferring = true;
        } else {
            self.is_transferring = false;
            self.server.pop_front();
        }
        let text = match code {
            227 => "(127,0,0,1,4,1)",
            229 => "(|||6446|)",
            _ => "",
        };
        if code == 211 {
            self.far(far::FarInput::ServerLine(b"211-list"));
            self.far(far::FarInput::ServerLine(b" MDTM"));
        }
        let reply = format!("{code} {text} to:{line}");
        self.far(far::FarInput::ServerLine(reply.as_bytes()));
    }

    fn near(&mut self, input: near::NearInput<'_>) {
        self.near.handle(input);
        while let Some(output) = self.near.poll() {
            match output {
                near::NearOutput::ToClient(line) => self.client_reads(&line),
                near::NearOutput::Listen { transfer, .. } => {
                    let at = SocketAddr::new(LOCAL, 5000);
                    self.near
                        .handle(near::NearInput::Listening { transfer, at });
                }
                near::NearOutput::Order(transfer, NearDataOrder::Start(_)) => {
                    self.begun.push(transfer)
                }
                near::NearOutput::Order(transfer, NearDataOrder::Kill) => {
                    self.begun.retain(|other| *other != transfer);
                }
                near::NearOutput::Close => self.is_over = true,
                output => self.to_far.push_back(output),
            }
        }
    }

    fn client_reads(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r\n").expect("a whole line is written");
        let position = self.replies.locate(line);
        let code = position.code.expect("a line of a reply");
        if !position.last || code.class() == ReplyClass::Preliminary {
            return;
        }
        let text = String::from_utf8_lossy(line);
        // An ABOR overtakes commands that wait for the end of the transfer.
        let aborts = text.ends_with("to:ABOR");
        let abort = self.asked.iter().position(|asked| asked == "ABOR");
        let asked = match abort.filter(|_| aborts) {
            Some(at) => self.asked.remove(at),
            None => self.asked.pop_front(),
        };
        let asked = asked.unwrap_or_else(|| panic!("nobody asked for {text:?}"));
        // A reply of the gateway itself may quote the server's reply to a command that the gateway
        // has sent.
        let is_servers = !text.contains("gateway:");
        if let Some((_, to)) = text.rsplit_once("to:").filter(|_| is_servers) {
            assert_eq!(
                subject(to),
                subject(&asked),
                "the answer to another command: {text:?}"
            );
        }
        self.answered += 1;
    }

    fn far(&mut self, input: far::FarInput<'_>) {
        let result = self.far.handle(input);
        assert!(result.is_ok(), "the near half keeps to the limit");
        let mut listening = false;
        let mut reconnects = false;
        while let Some(output) = self.far.poll() {
            match output {
                far::FarOutput::Leave => {
                    self.server.clear();
                    self.is_transferring = false;
                    self.has_port = false;
                }
                far::FarOutput::Reconnect => reconnects = true,
                far::FarOutput::ToServer { line, .. } => {
                    let line = String::from_utf8(line).expect("what the client has said");
                    self.server.push_back(line);
                }
                far::FarOutput::Listen(_) => listening = true,
                far::FarOutput::Order(_, FarDataOrder::Abort { .. } | FarDataOrder::Unlisten) => {
                    self.has_port = false;
                }
                far::FarOutput::Order(transfer, FarDataOrder::Commanded(_)) => {
                    self.commanded.push(transfer);
                }
                output => self.to_near.push_back(output),
            }
        }
        if reconnects {
            self.server.push_back("greeting".to_owned());
            self.far(far::FarInput::Reconnected);
        }
        if listening {
            let at = SocketAddr::new(LOCAL, 6000);
            self.far(far::FarInput::Listening(Some(at)));
        }
    }

    fn carry_to_far(&mut self) {
        match self.to_far.pop_front() {
            Some(
                near::NearOutput::Send(message)
                | near::NearOutput::OpenData {
                    request: message, ..
                },
            ) => self.far(far::FarInput::Received(message)),
            Some(near::NearOutput::LeaveServer) => self.far(far::FarInput::ClientGone),
            _ => {}
        }
    }

    fn carry_to_near(&mut self) {
        if let Some(far::FarOutput::Send(message)) = self.to_near.pop_front() {
            self.near(near::NearInput::Received(message));
        }
    }
}

/// Returns the text by which the target compares a command of the client with a command at the
/// server. Commands for data ports compare as equal, since the gateway requests data ports in its
/// own way.
fn subject(line: &str) -> &str {
    match line.split(' ').next() {
        Some("PASV" | "EPSV" | "PORT" | "EPRT") => "a data port",
        _ => line,
    }
}

/// Returns first inputs for the fuzzer: a few sessions with prefetched commands, transfers and
/// aborts.
#[cfg(test)]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let client = |line: &str| {
        let at = CLIENT_LINES.iter().position(|l| *l == line);
        [0, at.expect("a known line") as u8, 10]
    };
    let server = [3, 1, 10];
    let session = |setup: u8| {
        let commands = [
            "USER joe", "PASS x", "SYST", "FEAT", "PWD", "TYPE I", "PASV", "RETR a", "ABOR",
            "EPSV", "STOR a", "STAT", "NOOP",
        ];
        let mut tape = vec![setup];
        for command in commands {
            tape.extend(client(command));
            tape.extend(server);
            tape.extend([12, 0, 0, 10]);
        }
        tape
    };
    [0, 8, 16, 24].map(session).to_vec()
}
