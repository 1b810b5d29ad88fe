use bytes::Bytes;

use super::*;
use crate::packet::{Attrs, OpenFlags, Request, Response, Status};

/// A far half with the server's view of its requests.
struct Fixture {
    far: SftpFar,
    requests: PacketSplitter,
}

impl Fixture {
    /// Creates a session after its greeting.
    fn new(is_early: bool) -> Self {
        let greeting = Greeting {
            version: 3,
            extensions: Vec::new(),
        };
        let mut packet = greeting.encode(GreetingSource::Client);
        let sent = packet.clone();
        packet.advance(4);
        let mut fixture = Self {
            far: SftpFar::new(FarSettings::default()),
            requests: PacketSplitter::default(),
        };
        fixture.send(ToFar::Init { is_early, packet });
        let init: Rope = std::iter::from_fn(|| fixture.far.next_server_bytes()).collect();
        assert_eq!(init, sent);
        fixture.write(greeting.encode(GreetingSource::Server));
        let version = fixture.far.next_near_message();
        assert!(matches!(version, Some(ToNear::Version { .. })));
        fixture
    }

    fn send(&mut self, message: ToFar) {
        let received = self.far.receive_from_near(message);
        received.expect("the near half follows the protocol");
    }

    fn write(&mut self, packet: Rope) {
        for piece in packet {
            let received = self.far.receive_from_server(piece);
            received.expect("the server follows the protocol");
        }
    }

    fn requests(&mut self) -> Vec<(u32, Request)> {
        let mut requests = Vec::new();
        while let Some(bytes) = self.far.next_server_bytes() {
            self.requests.push(bytes);
            while let Some(packet) = self.requests.next_packet().expect("short packets") {
                requests.push(Request::decode(packet).expect("well formed"));
            }
        }
        requests
    }

    fn messages(&mut self) -> Vec<ToNear> {
        std::iter::from_fn(|| self.far.next_near_message()).collect()
    }

    /// Opens a file as request number `request`.
    fn open(&mut self, request: u64, flags: OpenFlags, credit_bytes: u64) {
        let path = Bytes::from("/file");
        let attrs = Attrs::default();
        let packet = without_id(&Request::Open { path, flags, attrs });
        self.send(ToFar::Open {
            request,
            credit_bytes,
            is_early: false,
            packet,
        });
        let (id, _) = self.requests()[0];
        self.write(Response::Handle("h".into()).encode(id));
    }
}

fn without_id(request: &Request) -> Rope {
    let mut packet = request.encode(0);
    packet.advance(4);
    let mut whole = packet.split_to(1);
    packet.advance(4);
    whole.append(packet);
    whole
}

fn ok() -> Response {
    Response::Status(Status::ok())
}

#[test]
fn requests_wait_for_the_confirmation_of_earlier_writes() {
    let mut fixture = Fixture::new(true);
    fixture.open(0, OpenFlags::WRITE, 0);
    let write = |request| ToFar::Write {
        request,
        handle: 0,
        offset: request,
        data: Bytes::from("bytes").into(),
    };
    fixture.send(write(1));
    fixture.send(write(2));
    let writes = fixture.requests();
    assert_eq!(writes.len(), 2, "WRITEs do not wait");
    let path = Bytes::from("/file");
    let stat = Request::Stat { path };
    fixture.send(ToFar::Request {
        request: 3,
        packet: without_id(&stat),
    });
    fixture.send(write(4));
    fixture.send(ToFar::Close {
        request: 5,
        handle: 0,
    });
    assert_eq!(
        fixture.requests(),
        [],
        "STAT waits, and the others behind it"
    );
    // The server answers in another order.
    fixture.write(ok().encode(writes[1].0));
    assert_eq!(fixture.requests(), []);
    fixture.write(ok().encode(writes[0].0));
    let next = fixture.requests();
    assert_eq!(next[0].1, stat);
    assert!(matches!(next[1].1, Request::Write { offset: 4, .. }));
    assert_eq!(next.len(), 2, "CLOSE waits for the third WRITE");
    assert!(!fixture.far.is_flushed());
    fixture.write(ok().encode(next[1].0));
    assert!(matches!(
        fixture.requests()[..],
        [(_, Request::Close { .. })]
    ));
    assert!(fixture.far.is_flushed());
}

#[test]
fn data_is_read_ahead_in_order_and_within_credit() {
    let mut fixture = Fixture::new(true);
    fixture.open(0, OpenFlags::READ, 100_000);
    let reads = fixture.requests();
    let range = |(_, request): &(u32, Request)| match request {
        Request::Read { offset, length, .. } => (*offset, *length),
        other => panic!("{other:?} in place of READ"),
    };
    let ranges: Vec<_> = reads.iter().map(range).collect();
    let expected = [
        (0, 32_768),
        (32_768, 32_768),
        (65_536, 32_768),
        (98_304, 1696),
    ];
    assert_eq!(ranges, expected);
    assert_eq!(fixture.messages().len(), 1, "the answer to OPEN");
    let data = |length: usize| Response::Data(vec![1; length].into());
    fixture.write(data(32_768).encode(reads[1].0));
    assert_eq!(fixture.messages(), [], "the first bytes are missing");
    fixture.write(data(100).encode(reads[0].0));
    let again = fixture.requests();
    assert_eq!(range(&again[0]), (100, 32_668), "the answer was short");
    fixture.write(data(32_668).encode(again[0].0));
    let lengths: Vec<_> = fixture
        .messages()
        .into_iter()
        .map(|message| match message {
            ToNear::ReadAhead { data, .. } => data.len(),
            other => panic!("{other:?} in place of data"),
        })
        .collect();
    assert_eq!(lengths, [100, 32_668, 32_768]);
    assert_eq!(fixture.requests(), [], "the credit has ended");
    fixture.send(ToFar::Credit {
        handle: 0,
        run: 0,
        credit_bytes: 10,
    });
    assert_eq!(range(&fixture.requests()[0]), (100_000, 10));
}

#[test]
fn stopped_read_ahead_leaves_no_data_in_the_queue() {
    let mut fixture = Fixture::new(true);
    fixture.open(0, OpenFlags::READ, 1 << 20);
    let reads = fixture.requests();
    fixture.messages();
    let data = Response::Data(vec![1; 32_768].into());
    fixture.write(data.encode(reads[0].0));
    assert!(fixture.far.queued_bytes() > 30_000);
    fixture.send(ToFar::StopReadAhead { handle: 0, run: 0 });
    assert_eq!(fixture.messages(), []);
    // The answers to READs that are still outstanding have no effect.
    fixture.write(data.encode(reads[1].0));
    assert_eq!(fixture.messages(), []);
    fixture.send(ToFar::ReadAhead {
        handle: 0,
        run: 0,
        offset: 0,
        credit_bytes: 9,
    });
    assert!(
        !fixture
            .requests()
            .iter()
            .any(|(_, request)| matches!(request, Request::Read { length: 9, .. })),
        "this read-ahead has been stopped"
    );
}

#[test]
fn answer_to_no_request_ends_the_session() {
    let mut fixture = Fixture::new(true);
    let answer = ok().encode(99).into_bytes();
    let error = SftpError::UnknownRequest(99);
    assert_eq!(fixture.far.receive_from_server(answer), Err(error));
}

#[test]
fn server_of_another_version_is_refused() {
    let greeting = Greeting {
        version: 2,
        extensions: Vec::new(),
    };
    let mut far = SftpFar::new(FarSettings::default());
    let mut packet = greeting.encode(GreetingSource::Client);
    packet.advance(4);
    let is_early = true;
    let init = far.receive_from_near(ToFar::Init { is_early, packet });
    assert_eq!(init, Ok(()));
    let version = greeting.encode(GreetingSource::Server).into_bytes();
    assert_eq!(far.receive_from_server(version), Err(SftpError::NoVersion));
}

#[test]
fn near_half_that_takes_no_messages_stops_read_ahead() {
    let mut fixture = Fixture::new(true);
    fixture.far.settings.reads_max = 1 << 20;
    fixture.open(0, OpenFlags::READ, 1 << 30);
    let mut read_bytes = 0;
    loop {
        let reads = fixture.requests();
        if reads.is_empty() {
            break;
        }
        for (id, request) in reads {
            let Request::Read { length, .. } = request else {
                panic!("{request:?} in place of READ");
            };
            read_bytes += length;
            fixture.write(Response::Data(vec![1; length as usize].into()).encode(id));
        }
    }
    let range = (1 << 20) - 2 * READ_DEFAULT..=1 << 20;
    assert!(range.contains(&read_bytes), "{read_bytes} bytes");
    fixture.messages();
    assert!(!fixture.requests().is_empty(), "the read-ahead continues");
}

#[test]
fn near_half_that_takes_no_messages_stops_the_server() {
    let mut fixture = Fixture::new(true);
    fixture.far.settings.reads_max = 1 << 20;
    let mut answers = 0;
    while fixture.far.wants_server_bytes() {
        let path = Bytes::from("/file");
        fixture.send(ToFar::Request {
            request: answers,
            packet: without_id(&Request::Stat { path }),
        });
        let (id, _) = fixture.requests()[0];
        fixture.write(Response::Extended(vec![1; 100_000].into()).encode(id));
        answers += 1;
        assert!(answers < 100, "the queue has a limit");
    }
    assert!(fixture.far.queued_bytes() < (2 << 20) + 200_000);
    fixture.messages();
    assert!(fixture.far.wants_server_bytes());
}

/// Returns the request number of each reply, and 0 for the read-ahead of a file.
fn order(messages: &[ToNear]) -> Vec<u64> {
    let number = |message: &ToNear| match message {
        ToNear::Reply { request, .. } => *request,
        _ => 0,
    };
    messages.iter().map(number).collect()
}

impl Fixture {
    /// Answers the oldest READ of the read-ahead.
    fn answer_read_ahead(&mut self, requests: &[(u32, Request)], bytes: usize) {
        let (id, _) = requests[0];
        let data = Bytes::from(vec![0; bytes]).into();
        self.write(Response::Data(data).encode(id));
    }

    /// Passes on a request of the client, and answers it.
    fn exchange(&mut self, number: u64, request: &Request, answer: Response) {
        let packet = without_id(request);
        self.send(ToFar::Request {
            request: number,
            packet,
        });
        let requests = self.requests();
        let sent = requests.iter().find(|(_, sent)| sent == request);
        let (id, _) = sent.expect("the request is passed on");
        self.write(answer.encode(*id));
    }

    /// Passes on a READ, and answers it with as many bytes as may overtake read-ahead.
    fn exchange_many_bytes(&mut self, number: u64) {
        let request = Request::Read {
            handle: "other".into(),
            offset: number,
            length: OVERTAKEN_MAX as u32,
        };
        let data = Bytes::from(vec![0; OVERTAKEN_MAX]).into();
        self.exchange(number, &request, Response::Data(data));
    }
}

#[test]
fn answers_overtake_read_ahead_but_not_each_other() {
    let mut fixture = Fixture::new(true);
    fixture.open(1, OpenFlags::READ, 1 << 20);
    let requests = fixture.requests();
    fixture.answer_read_ahead(&requests, 4);
    let handle = Bytes::from("h");
    let answer = Response::Attrs(Attrs::default());
    fixture.exchange(2, &Request::Fstat { handle }, answer);
    assert_eq!(order(&fixture.messages()), [1, 2, 0]);
}

#[test]
fn answers_with_many_bytes_let_read_ahead_pass() {
    let mut fixture = Fixture::new(false);
    fixture.open(1, OpenFlags::READ, 1 << 20);
    let requests = fixture.requests();
    fixture.answer_read_ahead(&requests, 4);
    for number in 2..=4 {
        fixture.exchange_many_bytes(number);
    }
    let messages = order(&fixture.messages());
    assert_eq!(messages, [1, 2, 0, 3, 4]);
    assert_eq!(fixture.far.queued_bytes(), 0);
}

#[test]
fn reply_to_an_open_precedes_its_read_ahead_behind_many_bytes() {
    let mut fixture = Fixture::new(false);
    for number in 1..=2 {
        fixture.exchange_many_bytes(number);
    }
    fixture.open(3, OpenFlags::READ, 1 << 20);
    let requests = fixture.requests();
    fixture.answer_read_ahead(&requests, 4);
    assert_eq!(order(&fixture.messages()), [1, 2, 3, 0]);
}

#[test]
fn entries_of_a_folder_overtake_read_ahead_of_a_file() {
    let mut fixture = Fixture::new(false);
    fixture.open(1, OpenFlags::READ, 1 << 20);
    let requests = fixture.requests();
    fixture.answer_read_ahead(&requests, 4);
    let path = Bytes::from("/folder");
    fixture.send(ToFar::Open {
        request: 2,
        credit_bytes: 1 << 20,
        is_early: false,
        packet: without_id(&Request::OpenDir { path }),
    });
    let id_of = |requests: Vec<(u32, Request)>| {
        let folder = requests.into_iter().find(|(_, request)| {
            matches!(request, Request::OpenDir { .. } | Request::ReadDir { .. })
        });
        folder.expect("the request is passed on").0
    };
    let id = id_of(fixture.requests());
    fixture.write(Response::Handle("f".into()).encode(id));
    let id = id_of(fixture.requests());
    fixture.write(Response::Names(Vec::new()).encode(id));
    let handles: Vec<_> = fixture
        .messages()
        .iter()
        .map(|message| match message {
            ToNear::ReadAhead { handle, .. } => *handle,
            _ => 0,
        })
        .collect();
    assert_eq!(handles, [0, 0, 2, 1]);
}

#[test]
fn credit_waits_for_the_start_of_its_read_ahead() {
    let mut fixture = Fixture::new(true);
    fixture.open(1, OpenFlags::READ, 0);
    fixture.open(2, OpenFlags::WRITE, 0);
    fixture.messages();
    fixture.send(ToFar::Write {
        request: 3,
        handle: 2,
        offset: 0,
        data: Bytes::from("bytes").into(),
    });
    fixture.send(ToFar::ReadAhead {
        handle: 1,
        run: 1,
        offset: 0,
        credit_bytes: 10,
    });
    fixture.send(ToFar::Credit {
        handle: 1,
        run: 1,
        credit_bytes: 20,
    });
    let requests = fixture.requests();
    assert_eq!(requests.len(), 1, "the WRITE is unconfirmed");
    fixture.write(Response::Status(Status::ok()).encode(requests[0].0));
    let lengths: Vec<_> = fixture
        .requests()
        .iter()
        .map(|(_, request)| match request {
            Request::Read { length, .. } => *length,
            other => panic!("{other:?} in place of READ"),
        })
        .collect();
    assert_eq!(lengths.iter().sum::<u32>(), 30);
}
