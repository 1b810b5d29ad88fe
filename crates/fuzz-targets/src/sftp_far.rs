//! Fuzz target: the far half of an SFTP session. The near half sends valid and arbitrary messages.
//! The server sends valid answers in any order, and arbitrary bytes.
//!
//! Invariants: the half does not panic. Its memory has a limit. Its bytes for the server are valid
//! requests.

use std::collections::VecDeque;

use bytes::Bytes;
use sftp::{
    FarSettings, Rope, SftpFar, ToFar, ToNear,
    packet::{
        Greeting, GreetingSource, PacketSplitter, Request, Response, Status, StatusCode, kind,
    },
};

use crate::{
    Tape,
    sftp_near::{limits, names, request},
};

/// Runs one input, which is a list of instructions.
pub fn run(data: &[u8]) {
    play(data);
}

/// Runs `data`. Returns the number of bytes that the half has read ahead.
pub(crate) fn play(data: &[u8]) -> usize {
    let mut tape = Tape::new(data);
    let options = tape.byte();
    let settings = FarSettings {
        reads_max: READS_MAX,
    };
    let mut world = World {
        far: SftpFar::new(settings),
        is_early: options.is_multiple_of(2),
        asked: VecDeque::new(),
        to_server: PacketSplitter::default(),
        requests: 0,
        handles: Vec::new(),
        is_greeted: false,
        is_valid: true,
        ahead_bytes: 0,
    };
    for _ in 0..400 {
        if tape.is_over() || world.step(&mut tape).is_none() {
            break;
        }
        world.drain();
        let bytes = world.far.queued_bytes();
        assert!(bytes <= MEMORY_MAX, "the half holds {bytes} bytes");
    }
    world.ahead_bytes
}

struct World {
    far: SftpFar,
    is_early: bool,
    /// Requests that the server has not answered yet.
    asked: VecDeque<(u32, Request)>,
    to_server: PacketSplitter,
    requests: u64,
    /// Numbers of handles that the near half may use.
    handles: Vec<u64>,
    is_greeted: bool,
    /// Whether the near half has sent only valid packets.
    is_valid: bool,
    ahead_bytes: usize,
}

impl World {
    /// Executes an instruction. Returns `None` at the end of the session.
    fn step(&mut self, tape: &mut Tape<'_>) -> Option<()> {
        match tape.byte() % 16 {
            0 => {
                let bytes = Bytes::copy_from_slice(tape.slice());
                self.far.receive_from_server(bytes).ok()
            }
            1 => {
                self.is_valid = false;
                let kind = 64 + tape.byte() % 9;
                let body = tape.slice().to_vec();
                match ToFar::decode(kind, body.into()) {
                    Ok(message) => self.far.receive_from_near(message).ok(),
                    Err(_) => Some(()),
                }
            }
            2 => {
                let greeting = Greeting {
                    version: 3,
                    extensions: Vec::new(),
                };
                let mut packet = greeting.encode(GreetingSource::Client);
                packet.split_to(4);
                let is_early = self.is_early;
                let init = ToFar::Init { is_early, packet };
                self.far.receive_from_near(init).ok()
            }
            3..=8 if self.far.wants_near_messages() => self.send(tape),
            9.. if self.far.wants_server_bytes() => self.answer(tape),
            _ => Some(()),
        }
    }

    fn send(&mut self, tape: &mut Tape<'_>) -> Option<()> {
        let request_number = self.requests;
        self.requests += 1;
        let handle = match self.handles.len() {
            0 => 0,
            count => self.handles[tape.below(count)],
        };
        let run = u32::from(tape.byte() % 4);
        let message = match tape.byte() % 9 {
            0 | 1 => {
                let packet = without_id(request(tape));
                let kind = packet.pieces().next().map_or(0, |piece| piece[0]);
                let request = request_number;
                if matches!(kind, kind::OPEN | kind::OPENDIR) {
                    let credit_bytes = u64::from(tape.short()) << (tape.byte() % 48);
                    let is_early = kind == kind::OPEN && run == 3;
                    if is_early {
                        self.handles.push(request);
                    }
                    ToFar::Open {
                        request,
                        credit_bytes,
                        is_early,
                        packet,
                    }
                } else {
                    ToFar::Request { request, packet }
                }
            }
            // Without an open handle, these messages would end the session.
            2..=5 | 8 if self.handles.is_empty() => return Some(()),
            8 => ToFar::HandleRequest {
                request: request_number,
                handle,
                at: 1,
                packet: vec![kind::FSTAT].into(),
            },
            2 | 3 => ToFar::Write {
                request: request_number,
                handle,
                offset: u64::from(tape.short()),
                data: vec![5; usize::from(tape.short())].into(),
            },
            4 => {
                self.handles.retain(|other| *other != handle);
                let request = request_number;
                ToFar::Close { request, handle }
            }
            5 => ToFar::ReadAhead {
                handle,
                run,
                offset: u64::from(tape.short()) << (tape.byte() % 64),
                credit_bytes: u64::from(tape.short()) << (tape.byte() % 64),
            },
            6 => ToFar::Credit {
                handle,
                run,
                credit_bytes: u64::from(tape.short()) << (tape.byte() % 64),
            },
            _ => ToFar::StopReadAhead { handle, run },
        };
        self.far.receive_from_near(message).ok()
    }

    /// Answers the oldest request, or another request.
    fn answer(&mut self, tape: &mut Tape<'_>) -> Option<()> {
        if !self.is_greeted {
            self.is_greeted = true;
            let name = Bytes::from_static(b"limits@openssh.com");
            let greeting = Greeting {
                version: 3,
                extensions: vec![(name, Bytes::from_static(b"1"))],
            };
            return self.write(greeting.encode(GreetingSource::Server));
        }
        if self.asked.is_empty() {
            return Some(());
        }
        let at = if tape.byte().is_multiple_of(4) {
            tape.below(self.asked.len())
        } else {
            0
        };
        let (id, request) = self.asked.remove(at)?;
        let status = |code, text| Response::Status(Status::new(code, text));
        let response = match (tape.byte() % 16, request) {
            (0, _) => status(StatusCode::FAILURE, "refused"),
            (1, _) => status(StatusCode::EOF, "end"),
            (2, _) => Response::Handle(Bytes::from_static(b"9")),
            (_, Request::Open { .. } | Request::OpenDir { .. }) => {
                Response::Handle(Bytes::from_static(b"1"))
            }
            (3, Request::Read { .. }) => Response::Data(Rope::new()),
            (4, Request::Read { length, .. }) => {
                Response::Data(vec![1; length.min(300_000) as usize + 1].into())
            }
            (5, Request::Read { length, .. }) => {
                Response::Data(vec![1; length.div_ceil(2).min(261_120) as usize].into())
            }
            (_, Request::Read { length, .. }) => {
                Response::Data(vec![1; length.min(261_120) as usize].into())
            }
            (_, Request::ReadDir { .. }) => Response::Names(names(50)),
            (_, Request::Extended(_)) => Response::Extended(limits()),
            _ => Response::Status(Status::ok()),
        };
        self.write(response.encode(id))
    }

    fn write(&mut self, packet: Rope) -> Option<()> {
        for piece in packet {
            self.far.receive_from_server(piece).ok()?;
        }
        Some(())
    }

    fn drain(&mut self) {
        while let Some(message) = self.far.next_near_message() {
            let encoded = message.encode();
            let decoded = ToNear::decode(encoded.kind, encoded.into_body());
            match decoded.expect("the message reads back") {
                ToNear::Reply { request, packet } => {
                    let kind = packet.pieces().next().map_or(0, |piece| piece[0]);
                    // A correct server sends such an answer only to OPEN and OPENDIR.
                    if kind == kind::HANDLE && packet.len() == 6 {
                        self.handles.push(request);
                    }
                }
                ToNear::ReadAhead { data, .. } => self.ahead_bytes += data.len(),
                _ => {}
            }
        }
        while let Some(bytes) = self.far.next_server_bytes() {
            self.to_server.push(bytes);
            while self.is_valid
                && let Some(mut packet) = self.to_server.next_packet().expect("packets are short")
            {
                if packet
                    .pieces()
                    .next()
                    .is_some_and(|piece| piece[0] == kind::INIT)
                {
                    packet.split_to(packet.len());
                    continue;
                }
                let request = Request::decode(packet).expect("requests are well formed");
                self.asked.push_back(request);
            }
        }
    }
}

/// Returns a request without its length and its request id.
fn without_id(request: Request) -> Rope {
    let mut packet = request.encode(0);
    packet.split_to(4);
    let mut whole = packet.split_to(1);
    packet.split_to(4);
    whole.append(packet);
    whole
}

/// Returns first inputs for the fuzzer: an upload, a download, a listing, and arbitrary bytes.
pub fn seeds() -> Vec<Vec<u8>> {
    // INIT, VERSION, and the answer to `limits@openssh.com`.
    const START: [u8; 6] = [2, 9, 9, 1, 15, 9];
    let download = [
        &[0][..],
        &START[..5],
        // OPEN for reading with a credit of 1 MiB.
        &[3, 0, 0, 0, 1, 1, 0, 12],
        &[9, 1, 15].repeat(6),
        &[9, 1, 5, 9, 1, 15, 9, 1, 1, 3, 0, 4],
    ]
    .concat();
    let upload = [
        &[0][..],
        &START[..5],
        &[3, 0, 0, 0, 0, 26, 0, 0, 0, 9, 1, 15],
        &[3, 0, 0, 2, 0, 0, 9, 9, 3, 0, 0, 3, 9, 9, 9, 9, 3, 0, 0, 4],
        &[9, 1, 15].repeat(3),
    ]
    .concat();
    // The near half has answered the OPEN, and sends a WRITE, a FSTAT and CLOSE at once.
    let early_upload = [
        &[0][..],
        &START[..5],
        &[3, 3, 0, 0, 0, 26, 0, 0, 0, 3, 0, 0, 2, 0, 0, 9, 9],
        &[3, 0, 0, 8, 3, 0, 0, 4, 9, 1, 15],
        &[9, 1, 15].repeat(3),
    ]
    .concat();
    let listing = [
        &[1][..],
        &START[..5],
        &[
            3, 0, 0, 0, 2, 1, 0, 9, 9, 1, 15, 9, 1, 15, 9, 1, 15, 9, 1, 1, 3, 0, 0, 4,
        ],
    ]
    .concat();
    let raw = [
        &[1][..],
        &START[..5],
        &[0, 9, 0, 0, 0, 5, 101, 0, 0, 0, 1, 1, 2, 8],
    ]
    .concat();
    vec![download, upload, early_upload, listing, raw]
}

const READS_MAX: u64 = 1 << 20;

/// Memory limit of the half in bytes. The limit covers the queues.
const MEMORY_MAX: usize = 16 << 20;
