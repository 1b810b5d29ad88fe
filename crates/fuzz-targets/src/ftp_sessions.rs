//! Fuzz target: both halves of an FTP session, connected by queues, between a client and a server
//! that send arbitrary bytes.
//!
//! Invariants: the client receives the success of a transfer only after its data. A text that is
//! written as one line contains no newline. The near half never sends more commands in advance than
//! the far half accepts. `ftp_answers` runs with the same bytes, and checks the invariants for a
//! server that follows the protocol.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use ftp::session::{
    MessageToFar, MessageToNear, ReplyStage, ReplyTag, ServerRequest, SessionMode, TransferId,
    data::{
        far::FarDataEvent,
        near::{NearDataEvent, NearDataOrder},
    },
    far::{self, DataOpener, FarSession, FarSetup, ServerTlsMode, ServerTraits, SessionOpening},
    near::{self, ClientTlsMode, NearSession, NearSetup, ServerSource},
};

use crate::{Tape, ftp_answers};

const CLIENT_LINES: [&str; 30] = [
    "USER joe",
    "PASS x",
    "PASV",
    "EPSV",
    "EPSV ALL",
    "EPSV 2",
    "RETR a",
    "STOR a",
    "APPE a",
    "LIST",
    "ABOR",
    "QUIT",
    "NOOP",
    "STAT",
    "REIN",
    "PORT 1,2,3,4,5,6",
    "PORT 127,0,0,1,4,1",
    "EPRT |2|::1|1025|",
    "PBSZ 0",
    "PROT P",
    "TYPE I",
    "SYST",
    "PWD",
    "CWD a",
    "AUTH TLS",
    "XYZZY",
    "FEAT",
    "USER joe@host",
    "USER joe@[::1]:2121",
    "",
];

const SERVER_LINES: [&str; 29] = [
    "220 ready",
    "220-ready",
    "120 wait",
    "331 password",
    "230 in",
    "230-in",
    "227 (10,0,0,1,4,1)",
    "227-(10,0,0,1,4,1)",
    "227 what",
    "229 (|||6446|)",
    "229 ok",
    "150 go",
    "125 go",
    "150-go",
    "226 done",
    "226-done",
    "250 done",
    "426 broken",
    "550 no",
    "500 what",
    "502 no",
    "530 no",
    "421 bye",
    "loose",
    "257 name",
    "200 ok",
    "234 go",
    "211 none",
    "215 UNIX",
];

struct World {
    near: NearSession,
    far: Option<FarSession>,
    setup: FarSetup,
    to_far: VecDeque<near::NearOutput>,
    to_near: VecDeque<far::FarOutput>,
    /// Number of lines that the server has sent. Each line contains its number, so that the test
    /// can identify it.
    lines: u32,
    tags: HashMap<u32, ReplyTag>,
    logons: u32,
    listening: VecDeque<TransferId>,
    begun: Vec<TransferId>,
    delivered: HashSet<TransferId>,
    given_up: HashSet<TransferId>,
    successes: usize,
    is_over: bool,
}

/// Runs one input, which contains the settings of a listener and events.
pub fn run(data: &[u8]) {
    play(data);
    ftp_answers::play(data);
}

/// Runs `data`. Returns the number of transfers that succeeded for the client.
pub(crate) fn play(data: &[u8]) -> usize {
    let mut tape = Tape::new(data);
    let options = tape.byte();
    let server_source = if options & 1 == 0 {
        ServerSource::Fixed
    } else {
        ServerSource::Logon
    };
    let local: IpAddr = if options & 2 == 0 {
        Ipv4Addr::LOCALHOST.into()
    } else {
        Ipv6Addr::LOCALHOST.into()
    };
    let mode = if options & 8 == 0 {
        SessionMode::Strict
    } else {
        SessionMode::Fast
    };
    let far_setup = FarSetup {
        server_is_v6: options & 4 != 0,
        data: if options & 16 == 0 {
            DataOpener::Passive
        } else {
            DataOpener::Active
        },
        mode,
        tls: match options >> 5 & 3 {
            1 => ServerTlsMode::Explicit,
            2 => ServerTlsMode::Implicit,
            _ => ServerTlsMode::Off,
        },
        known: ServerTraits::default(),
    };
    let mut world = World {
        near: NearSession::new(NearSetup {
            server_source,
            mode,
            tls: if options & 128 == 0 {
                ClientTlsMode::Off
            } else {
                ClientTlsMode::Explicit { is_required: false }
            },
            local,
            client: local,
        }),
        far: (server_source == ServerSource::Fixed)
            .then(|| FarSession::new(SessionOpening::RelayGreeting, far_setup)),
        setup: far_setup,
        to_far: VecDeque::new(),
        to_near: VecDeque::new(),
        lines: 0,
        tags: HashMap::new(),
        logons: 0,
        listening: VecDeque::new(),
        begun: Vec::new(),
        delivered: HashSet::new(),
        given_up: HashSet::new(),
        successes: 0,
        is_over: false,
    };
    world.drain_near();
    for _ in 0..400 {
        if tape.is_over() || world.is_over {
            break;
        }
        world.step(&mut tape, local);
    }
    world.successes
}

impl World {
    fn step(&mut self, tape: &mut Tape<'_>, local: IpAddr) {
        match tape.byte() % 16 {
            0 | 1 if self.near.wants_client() => {
                let line = CLIENT_LINES[tape.below(CLIENT_LINES.len())];
                self.near(near::NearInput::ClientLine(line.as_bytes()));
            }
            2 if self.near.wants_client() => {
                let line = without_newline(tape.slice());
                self.near(near::NearInput::ClientLine(&line));
            }
            3 | 4 => {
                self.lines += 1;
                let line = SERVER_LINES[tape.below(SERVER_LINES.len())];
                let line = format!("{line} #{}", self.lines);
                self.far(far::FarInput::ServerLine(line.as_bytes()));
            }
            5 => {
                let line = without_newline(tape.slice());
                self.far(far::FarInput::ServerLine(&line));
            }
            6 | 7 => self.carry_to_far(),
            8 | 9 => self.carry_to_near(),
            10 => {
                for _ in 0..8 {
                    self.carry_to_far();
                    self.carry_to_near();
                }
            }
            11 => {
                if let Some(transfer) = self.listening.pop_front() {
                    let at = SocketAddr::new(local, 5000);
                    let input = if tape.byte().is_multiple_of(8) {
                        near::NearInput::NoData(transfer)
                    } else {
                        near::NearInput::Listening { transfer, at }
                    };
                    self.near(input);
                }
            }
            12 if !self.begun.is_empty() => {
                let at = tape.below(self.begun.len());
                let transfer = self.begun[at];
                let event = match tape.byte() % 5 {
                    0 | 1 => {
                        self.begun.remove(at);
                        self.delivered.insert(transfer);
                        self.far(far::FarInput::Data(transfer, FarDataEvent::Delivered));
                        NearDataEvent::Delivered
                    }
                    2 => NearDataEvent::ClientEnded,
                    3 => {
                        self.begun.remove(at);
                        NearDataEvent::Failed("broken".to_owned())
                    }
                    _ => {
                        self.begun.remove(at);
                        self.given_up.insert(transfer);
                        NearDataEvent::Expired
                    }
                };
                self.near(near::NearInput::Data(transfer, event));
            }
            13 => match tape.byte() % 16 {
                0 => self.far(far::FarInput::ServerClosed),
                1 => self.near(near::NearInput::Received(MessageToNear::ServerClosed)),
                2 => self.near(near::NearInput::LinkLost("lost")),
                3 => self.near(near::NearInput::ClientLineTooLong),
                4 => self.near(near::NearInput::NotReached {
                    code: 425,
                    text: "not reached",
                }),
                5 => self.near(near::NearInput::ClientClosed),
                6 => self.near(near::NearInput::LimitReached("too long")),
                7 | 8 => self.far(far::FarInput::WaitTimedOut),
                _ => {}
            },
            14 => {
                let transfer = TransferId(u32::from(tape.byte() % 4));
                let event = match tape.byte() % 4 {
                    0 => FarDataEvent::Refused,
                    1 => FarDataEvent::Delivered,
                    2 => FarDataEvent::Lost,
                    _ => FarDataEvent::Closed,
                };
                self.far(far::FarInput::Data(transfer, event));
            }
            15 => {
                let transfer = TransferId(u32::from(tape.byte() % 4));
                self.far(far::FarInput::Received(MessageToFar::Abandon(transfer)));
            }
            _ => {}
        }
    }

    fn near(&mut self, input: near::NearInput<'_>) {
        self.near.handle(input);
        self.drain_near();
    }

    fn drain_near(&mut self) {
        while let Some(output) = self.near.poll() {
            assert!(!self.is_over, "nothing follows a close: {output:?}");
            match output {
                near::NearOutput::ToClient(line) => self.client_reads(&line),
                near::NearOutput::Listen { transfer, .. } => self.listening.push_back(transfer),
                near::NearOutput::BeginTls => self.near.handle(near::NearInput::TlsBegun),
                near::NearOutput::Dial { at, .. } => {
                    assert!(at.port() >= 1024 && at.ip().is_loopback());
                }
                near::NearOutput::Order(transfer, NearDataOrder::Kill) => {
                    self.given_up.insert(transfer);
                }
                near::NearOutput::Order(transfer, NearDataOrder::Start(_)) => {
                    self.begun.push(transfer)
                }
                near::NearOutput::LoginFailed
                | near::NearOutput::Transferred(_)
                | near::NearOutput::Order(
                    _,
                    NearDataOrder::Announced
                    | NearDataOrder::Release
                    | NearDataOrder::Finish { .. }
                    | NearDataOrder::ClientGone,
                ) => {}
                near::NearOutput::Close => self.is_over = true,
                output => self.to_far.push_back(output),
            }
        }
    }

    /// Checks that the client receives only complete lines: one line, or the lines of a prefetched
    /// reply.
    fn client_reads(&mut self, lines: &[u8]) {
        let text = lines
            .strip_suffix(b"\r\n")
            .expect("whole lines are written");
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r\n").unwrap_or(line);
            assert!(!line.contains(&b'\n'), "each line ends with CR and LF");
            self.client_reads_line(line);
        }
    }

    /// Checks that the success of a transfer does not arrive before its data.
    fn client_reads_line(&mut self, text: &[u8]) {
        let number = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.rsplit_once('#'));
        let number = number.and_then(|(_, number)| number.parse().ok());
        let Some(tag) = number.and_then(|number: u32| self.tags.get(&number)) else {
            return;
        };
        if let (Some(transfer), ReplyStage::Final, 200..=299) = (tag.transfer, tag.stage, tag.code)
        {
            assert!(
                self.delivered.contains(&transfer) || self.given_up.contains(&transfer),
                "{tag:?} before the data was delivered"
            );
            self.successes += 1;
        }
    }

    fn far(&mut self, input: far::FarInput<'_>) {
        let Some(far) = &mut self.far else { return };
        let result = far.handle(input);
        assert!(
            result.is_ok() || self.logons > 1,
            "the near half keeps to the limit"
        );
        let (mut listening, mut tls, mut spools) = (false, false, false);
        let mut reconnects = false;
        while let Some(output) = far.poll() {
            match &output {
                far::FarOutput::ToServer { line, .. } => assert!(!line.contains(&b'\n')),
                far::FarOutput::Connect { port, .. } => assert_ne!(*port, 0),
                far::FarOutput::Listen(_) => listening = true,
                far::FarOutput::BeginTls => tls = true,
                far::FarOutput::Reconnect => reconnects = true,
                far::FarOutput::Spool(_) => spools = true,
                _ => {}
            }
            self.to_near.push_back(output);
        }
        if reconnects {
            // The reconnection may also fail.
            let is_there = self.lines.is_multiple_of(2);
            self.far(match is_there {
                true => far::FarInput::Reconnected,
                false => far::FarInput::ServerClosed,
            });
        }
        if tls {
            self.far(far::FarInput::TlsBegun);
        }
        if spools {
            self.far(far::FarInput::Spooled("502 gateway: there is no spool"));
        }
        if listening {
            self.lines += 1;
            let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 6000));
            self.far(far::FarInput::Listening(
                (!self.lines.is_multiple_of(7)).then_some(at),
            ));
        }
    }

    fn carry_to_far(&mut self) {
        match self.to_far.pop_front() {
            Some(near::NearOutput::Connect { id, logon }) => {
                self.logons += 1;
                let line = [b"USER ".as_slice(), &logon.user].concat();
                let opening = SessionOpening::ConsumeGreeting { id, line };
                self.far = Some(FarSession::new(opening, self.setup));
                self.to_near.clear();
            }
            Some(
                near::NearOutput::Send(message)
                | near::NearOutput::OpenData {
                    request: message, ..
                },
            ) => {
                if let MessageToFar::Request(ServerRequest::Command { line, .. }) = &message {
                    assert!(!line.contains(&b'\n'), "one line only");
                }
                self.far(far::FarInput::Received(message));
            }
            Some(near::NearOutput::LeaveServer) => self.far(far::FarInput::ClientGone),
            _ => {}
        }
    }

    fn carry_to_near(&mut self) {
        if let Some(far::FarOutput::Send(message)) = self.to_near.pop_front() {
            if let MessageToNear::Reply { tag, line } = &message {
                let text = String::from_utf8_lossy(line);
                let number = text
                    .rsplit_once('#')
                    .and_then(|(_, number)| number.parse().ok());
                if let Some(number) = number {
                    self.tags.insert(number, *tag);
                }
            }
            self.near(near::NearInput::Received(message));
        }
    }
}

fn without_newline(line: &[u8]) -> Vec<u8> {
    line.iter().copied().filter(|&byte| byte != b'\n').collect()
}

/// Returns first inputs for the fuzzer. They contain a download, an upload, an abort, a logon, fast
/// mode, TLS, and an active data connection.
pub fn seeds() -> Vec<Vec<u8>> {
    let client = |line: &str| {
        let at = CLIENT_LINES
            .iter()
            .position(|l| *l == line)
            .expect("a known line");
        vec![0, at as u8, 10]
    };
    let server = |line: &str| {
        let at = SERVER_LINES
            .iter()
            .position(|l| *l == line)
            .expect("a known line");
        vec![3, at as u8, 10]
    };
    let listen = vec![11, 1];
    let data = |event: u8| vec![12, 0, event];
    let passive = [
        server("220 ready"),
        client("PASV"),
        server("227 (10,0,0,1,4,1)"),
        listen,
    ]
    .concat();
    let download = [
        client("RETR a"),
        server("150 go"),
        server("226 done"),
        data(0),
        client("QUIT"),
    ]
    .concat();
    let upload = [
        client("STOR a"),
        server("150 go"),
        data(2),
        data(0),
        server("226 done"),
    ]
    .concat();
    let abort = [
        client("RETR a"),
        server("150 go"),
        client("ABOR"),
        server("426 broken"),
    ]
    .concat();
    let over = [vec![13, 5], server("226 done")].concat();
    vec![
        [&[0], &passive[..], &download].concat(),
        [&[0], &passive[..], &upload, &over].concat(),
        [&[4], &passive[..], &abort, &over].concat(),
        [&[1], &client("USER joe@host")[..], &passive, &download].concat(),
        [
            &[8],
            &server("220 ready")[..],
            &client("PASS x"),
            &server("230 in"),
            &client("PWD"),
            &server("502 no"),
            &server("500 what"),
            &server("257 name"),
            &client("TYPE I"),
            &client("PASV"),
            &server("200 ok"),
            &server("227 (10,0,0,1,4,1)"),
            &[11, 1],
            &download,
        ]
        .concat(),
        [
            &[128 + 32],
            &server("220 ready")[..],
            &server("234 go"),
            &server("200 ok"),
            &server("200 ok"),
            &client("AUTH TLS"),
            &client("PBSZ 0"),
            &client("PROT P"),
            &passive,
            &download,
        ]
        .concat(),
        [
            &[16],
            &client("PORT 127,0,0,1,4,1")[..],
            &server("200 ok"),
            &upload,
        ]
        .concat(),
        [
            &[3],
            &client("USER joe")[..],
            &client("USER joe@[::1]:2121"),
            &server("331 password"),
        ]
        .concat(),
    ]
}
