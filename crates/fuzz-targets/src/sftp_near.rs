//! Fuzz target: the near half of an SFTP session. The client sends valid requests and arbitrary
//! bytes. The far half sends valid answers and arbitrary messages.
//!
//! Invariants: the half does not panic. Its memory has a limit. It answers each request at most
//! once, and its bytes are whole packets.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use sftp::{
    EarlyReplies, NearSettings, Rope, SftpNear, ToFar, ToNear,
    packet::{
        Attrs, ExtendedRequest, Greeting, GreetingSource, Limits, Name, OpenFlags, PacketSplitter,
        Request, Response, Status, StatusCode, kind,
    },
};

use crate::Tape;

/// Runs one input, which is a list of instructions.
pub fn run(data: &[u8]) {
    play(data);
}

/// Runs `data`. Returns the number of answers that the client received.
pub(crate) fn play(data: &[u8]) -> usize {
    let mut tape = Tape::new(data);
    let options = tape.below(6);
    let early = [EarlyReplies::Held, EarlyReplies::All, EarlyReplies::Off][options % 3];
    let settings = NearSettings {
        early,
        read_ahead_max: READ_AHEAD_MAX,
        is_openssh: options >= 3,
        ..NearSettings::default()
    };
    let mut world = World {
        near: SftpNear::new(settings),
        asked: VecDeque::new(),
        sent: 0,
        ids: Vec::new(),
        to_client: PacketSplitter::default(),
        answers: 0,
        is_greeted: false,
        is_valid: true,
        now: Duration::ZERO,
    };
    for _ in 0..400 {
        if tape.is_over() || world.step(&mut tape).is_none() {
            break;
        }
        world.drain();
        let bytes = world.near.queued_bytes();
        assert!(bytes <= MEMORY_MAX, "the half holds {bytes} bytes");
    }
    world.near.end("the input has ended");
    world.answers
}

struct World {
    near: SftpNear,
    /// Messages that the far half has not answered yet.
    asked: VecDeque<ToFar>,
    sent: u32,
    /// Request ids without an answer.
    ids: Vec<u32>,
    to_client: PacketSplitter,
    answers: usize,
    is_greeted: bool,
    /// Whether client and far half have sent only valid packets.
    is_valid: bool,
    now: Duration,
}

impl World {
    /// Executes an instruction. Returns `None` at the end of the session.
    fn step(&mut self, tape: &mut Tape<'_>) -> Option<()> {
        match tape.byte() % 16 {
            0 => {
                self.is_valid = false;
                let bytes = Bytes::copy_from_slice(tape.slice());
                self.near.receive_from_client(bytes).ok()
            }
            1 => {
                self.is_valid = false;
                let kind = 80 + tape.byte() % 6;
                let body = tape.slice().to_vec();
                match ToNear::decode(kind, body.into()) {
                    Ok(message) => self.near.receive_from_far(message).ok(),
                    Err(_) => Some(()),
                }
            }
            2 => self.write(
                Greeting {
                    version: 3,
                    extensions: Vec::new(),
                }
                .encode(GreetingSource::Client),
            ),
            3..=8 => {
                if !self.near.wants_client_bytes() {
                    return Some(());
                }
                let request = request(tape);
                let id = self.sent;
                self.sent += 1;
                self.ids.push(id);
                self.write(request.encode(id))
            }
            9 => self.read_ahead(tape),
            11 => {
                self.now += Duration::from_millis(u64::from(tape.short()));
                self.near.set_time(self.now);
                Some(())
            }
            _ => self.answer(tape),
        }
    }

    fn write(&mut self, packet: Rope) -> Option<()> {
        for piece in packet {
            self.near.receive_from_client(piece).ok()?;
        }
        Some(())
    }

    /// Sends bytes of a read-ahead, even if the far half has not started this read-ahead.
    fn read_ahead(&mut self, tape: &mut Tape<'_>) -> Option<()> {
        let handle = u64::from(tape.byte() % 8);
        let run = u32::from(tape.byte() % 4);
        let message = match tape.byte() % 4 {
            0 => {
                let status = Status::new(StatusCode(u32::from(tape.byte() % 3)), "end");
                let packet = without_id(Response::Status(status));
                ToNear::ReadAheadEnd {
                    handle,
                    run,
                    packet,
                }
            }
            1 => {
                let names = names(usize::from(tape.byte()));
                let data = without_id(Response::Names(names));
                ToNear::ReadAhead { handle, run, data }
            }
            _ => {
                let data = vec![7; usize::from(tape.short())].into();
                ToNear::ReadAhead { handle, run, data }
            }
        };
        self.near.receive_from_far(message).ok()
    }

    /// Answers the oldest message for the far half, or another message.
    fn answer(&mut self, tape: &mut Tape<'_>) -> Option<()> {
        if self.asked.is_empty() {
            return Some(());
        }
        let at = if tape.byte().is_multiple_of(4) {
            tape.below(self.asked.len())
        } else {
            0
        };
        let message = self.asked.remove(at)?;
        let failure = || Response::Status(Status::new(StatusCode::FAILURE, "refused"));
        let fails = tape.byte().is_multiple_of(8);
        let (request, response) = match message {
            ToFar::Init { .. } => {
                let name = Bytes::from_static(b"limits@openssh.com");
                let greeting = Greeting {
                    version: 3,
                    extensions: vec![(name, Bytes::from_static(b"1"))],
                };
                let mut packet = greeting.encode(GreetingSource::Server);
                packet.split_to(4);
                return self.near.receive_from_far(ToNear::Version { packet }).ok();
            }
            ToFar::Write { request, .. } if !fails => {
                return self.near.receive_from_far(ToNear::Written { request }).ok();
            }
            ToFar::Open { request, .. } if !fails => {
                // The client may later use this handle or another handle.
                let handle = Bytes::copy_from_slice(&[b'0' + tape.byte() % 4]);
                (request, Response::Handle(handle))
            }
            ToFar::Request { request, packet } if !fails => {
                let kind = packet.pieces().next().map_or(0, |piece| piece[0]);
                let response = match kind {
                    kind::READ => Response::Data(vec![1; 100].into()),
                    kind::READDIR => Response::Names(names(1)),
                    kind::STAT | kind::LSTAT => Response::Attrs(Attrs::default()),
                    kind::EXTENDED => Response::Extended(limits()),
                    _ => Response::Status(Status::ok()),
                };
                (request, response)
            }
            ToFar::HandleRequest { request, .. } | ToFar::Close { request, .. } if !fails => {
                (request, Response::Status(Status::ok()))
            }
            ToFar::Request { request, .. }
            | ToFar::HandleRequest { request, .. }
            | ToFar::Open { request, .. }
            | ToFar::Write { request, .. }
            | ToFar::Close { request, .. } => (request, failure()),
            ToFar::ReadAhead { .. } | ToFar::Credit { .. } | ToFar::StopReadAhead { .. } => {
                return Some(());
            }
        };
        let packet = without_id(response);
        let message = ToNear::Reply { request, packet };
        self.near.receive_from_far(message).ok()
    }

    fn drain(&mut self) {
        while let Some(message) = self.near.next_far_message() {
            let encoded = message.encode();
            let decoded = ToFar::decode(encoded.kind, encoded.into_body());
            self.asked
                .push_back(decoded.expect("the message reads back"));
        }
        while let Some(bytes) = self.near.next_client_bytes() {
            self.to_client.push(bytes);
            while self.is_valid
                && let Some(packet) = self.to_client.next_packet().expect("packets are short")
            {
                if !std::mem::replace(&mut self.is_greeted, true) {
                    continue;
                }
                let (id, _) = Response::decode(packet).expect("answers are well formed");
                let at = self.ids.iter().position(|other| *other == id);
                self.ids
                    .swap_remove(at.expect("each request has one answer"));
                self.answers += 1;
            }
        }
        while self.near.next_event().is_some() {}
    }
}

/// Returns a request with a few handles and paths.
pub(crate) fn request(tape: &mut Tape<'_>) -> Request {
    let handle = match tape.byte() {
        // Handles that the near half makes.
        byte if byte >= 240 => format!("longhaul-{:016x}", byte - 240).into(),
        byte => Bytes::copy_from_slice(&[b'0' + byte % 5]),
    };
    let attrs = Attrs::default();
    let kind = tape.byte();
    // Files within the folder `/path`.
    let path = match kind / 14 {
        0 => Bytes::from_static(b"/path"),
        number => format!("/path/file-{number}").into(),
    };
    match kind % 14 {
        0 => Request::Open {
            path,
            flags: OpenFlags(u32::from(tape.byte() % 64)),
            attrs,
        },
        1 => Request::Open {
            path,
            flags: OpenFlags::READ,
            attrs,
        },
        2 => Request::OpenDir { path },
        3 => Request::Close { handle },
        4..=6 => Request::Read {
            handle,
            offset: u64::from(tape.short()) << (tape.byte() % 64),
            length: u32::from(tape.short()) << (tape.byte() % 32),
        },
        7..=9 => Request::Write {
            handle,
            offset: u64::from(tape.short()),
            data: vec![3; usize::from(tape.short())].into(),
        },
        10 => Request::ReadDir { handle },
        11 => Request::Extended(ExtendedRequest::Fsync { handle }),
        12 => Request::Extended(ExtendedRequest::Limits),
        _ if tape.byte().is_multiple_of(2) => Request::Lstat { path },
        _ => Request::Stat { path },
    }
}

/// Returns an answer without its length and its request id.
fn without_id(response: Response) -> Rope {
    let mut packet = response.encode(0);
    packet.split_to(4);
    let mut answer = packet.split_to(1);
    packet.split_to(4);
    answer.append(packet);
    answer
}

/// Returns the names of small files.
pub(crate) fn names(count: usize) -> Vec<Name> {
    let name = |number| Name {
        name: format!("file-{number}").into(),
        long_name: Bytes::from_static(b"-rw-r--r-- file"),
        attrs: Attrs {
            size: Some(100),
            permissions: Some(0o100_644),
            ..Attrs::default()
        },
    };
    (0..count).map(name).collect()
}

pub(crate) fn limits() -> Rope {
    let limits = Limits {
        packet_max_bytes: 262_144,
        read_max_bytes: 261_120,
        write_max_bytes: 261_120,
        handles_max: 100,
    };
    limits.encode()
}

/// Returns first inputs for the fuzzer: an upload, a download, a listing, and failures.
pub fn seeds() -> Vec<Vec<u8>> {
    const START: [u8; 3] = [2, 10, 1];
    // Each answer has a byte for its position and a byte for its outcome.
    let ok = |count: usize| [10, 1, 1].repeat(count);
    let upload = [
        &[0][..],
        &START,
        &[1, 3, 0, 0, 26, 10, 1, 1, 0],
        &[
            3, 0, 7, 0, 0, 9, 9, 3, 0, 7, 9, 9, 9, 9, 3, 0, 8, 0, 0, 1, 1,
        ],
        &ok(3),
        &[3, 0, 11, 10, 1, 1, 3, 0, 3, 10, 1, 1],
    ]
    .concat();
    let broken_upload = [
        &[0][..],
        &START,
        &[1, 3, 0, 0, 26, 10, 1, 1, 0],
        &[3, 0, 7, 0, 0, 9, 9, 3, 0, 7, 9, 9, 9, 9],
        &[10, 1, 8, 10, 1, 1, 3, 0, 3, 10, 1, 1],
    ]
    .concat();
    // Each message of a read-ahead has one byte for its handle and one byte for its number. Both
    // bytes are 0.
    let download = [
        &[0][..],
        &START,
        &[1, 3, 0, 1, 10, 1, 1, 0],
        &[3, 0, 4, 0, 0, 0, 9, 0, 0],
        &[3, 0, 4, 9, 0, 0, 9, 0, 0],
        &[9, 0, 0, 2, 255, 255, 9, 0, 0, 4, 1],
        &[3, 0, 4, 255, 255, 1, 9, 9, 0, 3, 0, 3],
    ]
    .concat();
    let listing = [
        &[1][..],
        &START,
        &[1, 3, 0, 2, 10, 1, 1, 0, 3, 0, 10],
        &[9, 0, 0, 1, 99, 9, 0, 0, 4, 1, 3, 0, 10],
    ]
    .concat();
    // OPEN, one WRITE and CLOSE, twice. The second OPEN has an early answer.
    let early_upload = [
        &[3][..],
        &START,
        &[1, 3, 0, 12, 3, 0, 0, 26, 10, 1, 1, 0],
        &[3, 0, 7, 0, 0, 9, 9, 10, 1, 1, 3, 0, 3, 10, 1, 1],
        &[3, 0, 0, 26, 3, 243, 7, 0, 0, 9, 9, 3, 243, 11, 3, 243, 3],
        &[10, 1, 1, 0],
        &ok(3),
    ]
    .concat();
    // A folder, and its files in order.
    let folder = [
        &[0][..],
        &START,
        &[1, 3, 0, 2, 10, 1, 1, 0, 3, 0, 10],
        &[9, 0, 0, 1, 99, 9, 0, 0, 4, 1, 3, 0, 10, 3, 0, 3, 10, 1, 1],
        &[3, 0, 15, 10, 1, 1, 1, 3, 0, 29, 10, 1, 1, 2, 10, 1, 1, 3],
        &[3, 0, 43, 3, 0, 27, 0, 3, 0, 41, 1, 11, 255, 255],
    ]
    .concat();
    let raw = [
        &[2][..],
        &START,
        &[1, 0, 9, 0, 0, 0, 5, 77, 0, 0, 0, 1],
        &[1, 2, 8],
    ]
    .concat();
    vec![
        upload,
        broken_upload,
        download,
        listing,
        early_upload,
        folder,
        raw,
    ]
}

const READ_AHEAD_MAX: u64 = 8 << 20;

/// Memory limit of the half in bytes. The limit covers the read-ahead, the queues, the listings of
/// folders, and the requests that the half sends before the client. The test passes slightly more
/// bytes than the half requests.
const MEMORY_MAX: u64 = READ_AHEAD_MAX + (20 << 20);
