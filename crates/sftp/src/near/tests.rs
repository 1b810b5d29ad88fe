mod changes;

use bytes::Bytes;

use super::*;
use crate::{
    FileDirection,
    packet::{
        Attrs, ExtendedRequest, Greeting, GreetingSource, Limits, OpenFlags, PACKET_MAX, Request,
        Response, Status, StatusCode,
    },
};

/// A near half with the client's view of its answers.
struct Fixture {
    near: SftpNear,
    answers: PacketSplitter,
    next_id: u32,
}

impl Fixture {
    /// Creates a session after its greeting.
    fn new(settings: NearSettings, extension: &'static str) -> Self {
        let mut fixture = Self {
            near: SftpNear::new(settings),
            answers: PacketSplitter::default(),
            next_id: 0,
        };
        let mut greeting = Greeting {
            version: 6,
            extensions: Vec::new(),
        };
        fixture.write(greeting.encode(GreetingSource::Client));
        greeting.version = 3;
        let mut init = greeting.encode(GreetingSource::Client);
        init.advance(4);
        let expected = ToFar::Init {
            is_early: settings.early != EarlyReplies::Off,
            packet: init,
        };
        assert_eq!(fixture.near.next_far_message(), Some(expected));
        greeting.extensions = vec![(Bytes::from(extension), Bytes::from("1"))];
        let mut packet = greeting.encode(GreetingSource::Server);
        packet.advance(4);
        fixture.receive(ToNear::Version { packet });
        assert!(fixture.near.next_client_bytes().is_some(), "VERSION");
        fixture
    }

    /// Creates a session whose OPENs give credit for the whole window.
    fn held() -> Self {
        let settings = NearSettings {
            read_ahead_handle_max: first_credit::FIRST_CREDIT_MAX,
            ..NearSettings::default()
        };
        Self::new(settings, "unknown")
    }

    fn write(&mut self, packet: Rope) {
        for piece in packet {
            let received = self.near.receive_from_client(piece);
            received.expect("the client follows the protocol");
        }
    }

    fn receive(&mut self, message: ToNear) {
        let received = self.near.receive_from_far(message);
        received.expect("the far half follows the protocol");
    }

    /// Sends a request. Returns its id.
    fn request(&mut self, request: &Request) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        self.write(request.encode(id));
        id
    }

    fn answers(&mut self) -> Vec<(u32, Response)> {
        let mut answers = Vec::new();
        while let Some(bytes) = self.near.next_client_bytes() {
            self.answers.push(bytes);
            while let Some(packet) = self.answers.next_packet().expect("short packets") {
                answers.push(Response::decode(packet).expect("well formed"));
            }
        }
        answers
    }

    fn reply(&mut self, request: u64, response: Response) {
        let packet = without_id(response);
        self.receive(ToNear::Reply { request, packet });
    }

    /// Opens a file. Returns the number of its handle.
    fn open(&mut self, flags: OpenFlags, handle: &'static str) -> u64 {
        let path = Bytes::from("/file");
        let attrs = Attrs::default();
        let id = self.request(&Request::Open { path, flags, attrs });
        let Some(ToFar::Open { request, .. }) = self.near.next_far_message() else {
            panic!("OPEN is passed on");
        };
        let handle = Response::Handle(handle.into());
        self.reply(request, handle.clone());
        assert_eq!(self.answers(), [(id, handle)]);
        request
    }

    /// Sends a WRITE. Returns its id, and its number if it is passed on.
    fn send_write(&mut self, handle: &'static str) -> (u32, Option<u64>) {
        let id = self.request(&Request::Write {
            handle: handle.into(),
            offset: 0,
            data: Bytes::from("bytes").into(),
        });
        match self.near.next_far_message() {
            Some(ToFar::Write { request, .. }) => (id, Some(request)),
            None => (id, None),
            other => panic!("{other:?} in place of WRITE"),
        }
    }

    fn send_read(&mut self, offset: u64, length: u32) -> u32 {
        let handle = Bytes::from("h");
        self.request(&Request::Read {
            handle,
            offset,
            length,
        })
    }

    fn events(&mut self) -> Vec<TransferEvent> {
        std::iter::from_fn(|| self.near.next_event()).collect()
    }
}

fn without_id(response: Response) -> Rope {
    let mut packet = response.encode(0);
    packet.advance(4);
    let mut answer = packet.split_to(1);
    packet.advance(4);
    answer.append(packet);
    answer
}

fn ok(id: u32) -> (u32, Response) {
    (id, Response::Status(Status::ok()))
}

fn eof(id: u32) -> (u32, Response) {
    (id, Response::Status(Status::eof()))
}

fn no_space() -> Response {
    Response::Status(Status::new(StatusCode::FAILURE, "no space left on device"))
}

#[test]
fn newest_write_is_answered_after_the_server_has_confirmed_all() {
    let mut fixture = Fixture::held();
    let handle = fixture.open(OpenFlags::WRITE, "h");
    let (first, first_number) = fixture.send_write("h");
    assert_eq!(fixture.answers(), [], "it is the newest");
    let (second, second_number) = fixture.send_write("h");
    assert_eq!(fixture.answers(), [ok(first)]);
    let (third, third_number) = fixture.send_write("h");
    assert_eq!(fixture.answers(), [ok(second)]);
    for number in [third_number, first_number] {
        let request = number.expect("the WRITE is passed on");
        fixture.receive(ToNear::Written { request });
        assert_eq!(fixture.answers(), [], "one WRITE is not confirmed");
    }
    let request = second_number.expect("the WRITE is passed on");
    fixture.receive(ToNear::Written { request });
    assert_eq!(fixture.answers(), [ok(third)]);
    let started = TransferEvent::Started {
        handle,
        path: b"/file".to_vec(),
        direction: FileDirection::Upload,
    };
    let count = 15;
    assert_eq!(
        fixture.events(),
        [started, TransferEvent::Bytes { handle, count }]
    );
}

#[test]
fn failed_write_is_the_answer_of_the_newest_of_all_later_ones_and_of_close() {
    let mut fixture = Fixture::held();
    let handle = fixture.open(OpenFlags::WRITE, "h");
    let (first, number) = fixture.send_write("h");
    let (second, second_number) = fixture.send_write("h");
    assert_eq!(fixture.answers(), [ok(first)]);
    fixture.reply(number.expect("the WRITE is passed on"), no_space());
    assert_eq!(fixture.answers(), [(second, no_space())]);
    let request = second_number.expect("the WRITE is passed on");
    fixture.receive(ToNear::Written { request });
    let (third, number) = fixture.send_write("h");
    assert_eq!(number, None, "it is not passed on");
    assert_eq!(fixture.answers(), [(third, no_space())]);
    let fsync = ExtendedRequest::Fsync { handle: "h".into() };
    let fsync = fixture.request(&Request::Extended(fsync));
    assert_eq!(fixture.answers(), [(fsync, no_space())]);
    let close = fixture.request(&Request::Close { handle: "h".into() });
    let Some(ToFar::Close { request, .. }) = fixture.near.next_far_message() else {
        panic!("CLOSE is passed on");
    };
    assert_eq!(fixture.answers(), [], "the server has not answered CLOSE");
    fixture.reply(request, Response::Status(Status::ok()));
    assert_eq!(fixture.answers(), [(close, no_space())]);
    let outcome = Err("no space left on device".to_owned());
    let finished = TransferEvent::Finished { handle, outcome };
    assert_eq!(fixture.events().last(), Some(&finished));
}

#[test]
fn bytes_behind_the_data_of_a_write_are_left_out() {
    let mut fixture = Fixture::held();
    let handle = fixture.open(OpenFlags::WRITE, "h");
    let data = Rope::from(Bytes::from("data"));
    let write = Request::Write {
        handle: "h".into(),
        offset: 8,
        data: data.clone(),
    };
    // pkg/sftp of rclone 1.60 sends the rest of its buffer.
    let mut packet = write.encode(1);
    packet.advance(4);
    packet.push("rest of a buffer".into());
    packet.push_front(Bytes::copy_from_slice(&(packet.len() as u32).to_be_bytes()));
    fixture.write(packet);
    let message = fixture.near.next_far_message();
    let Some(ToFar::Write { request, .. }) = message else {
        panic!("{message:?} in place of WRITE");
    };
    let expected = ToFar::Write {
        request,
        handle,
        offset: 8,
        data,
    };
    assert_eq!(message, Some(expected));
    assert_eq!(fixture.answers(), [], "the request is valid");
}

#[test]
fn unconfirmed_writes_beyond_the_limit_stop_the_client() {
    let settings = NearSettings {
        write_ahead_max: 10,
        ..NearSettings::default()
    };
    let mut fixture = Fixture::new(settings, "unknown");
    fixture.open(OpenFlags::WRITE, "h");
    let (_, first) = fixture.send_write("h");
    assert!(fixture.near.wants_client_bytes());
    fixture.send_write("h");
    assert!(
        !fixture.near.wants_client_bytes(),
        "10 bytes are unconfirmed"
    );
    let request = first.expect("the WRITE is passed on");
    fixture.receive(ToNear::Written { request });
    assert!(fixture.near.wants_client_bytes());
}

#[test]
fn reads_are_answered_from_read_ahead_in_any_size() {
    let mut fixture = Fixture::held();
    let handle = fixture.open(OpenFlags::READ, "h");
    let push = |fixture: &mut Fixture, text: &'static str| {
        let data = Bytes::from(text).into();
        fixture.receive(ToNear::ReadAhead {
            handle,
            run: 0,
            data,
        });
    };
    let data = |id, text: &'static str| (id, Response::Data(Bytes::from(text).into()));
    let first = fixture.send_read(0, 5);
    push(&mut fixture, "012");
    assert_eq!(fixture.answers(), [], "two bytes are missing");
    push(&mut fixture, "3456");
    assert_eq!(fixture.answers(), [data(first, "01234")]);
    let second = fixture.send_read(5, 2);
    let third = fixture.send_read(7, 9);
    assert_eq!(fixture.answers(), [data(second, "56")]);
    push(&mut fixture, "7");
    fixture.receive(ToNear::ReadAheadEnd {
        handle,
        run: 0,
        packet: without_id(Response::Status(Status::eof())),
    });
    assert_eq!(fixture.answers(), [data(third, "7")], "the file has ended");
    let last = fixture.send_read(8, 9);
    assert_eq!(fixture.answers(), [eof(last)]);
    assert_eq!(
        fixture.near.next_far_message(),
        None,
        "the server has no READ"
    );
    let close = fixture.request(&Request::Close { handle: "h".into() });
    assert_eq!(fixture.answers(), [ok(close)], "nothing can fail");
}

#[test]
fn session_is_settled_without_the_confirmation_of_an_early_close() {
    let mut fixture = Fixture::held();
    assert!(fixture.near.is_settled());
    let handle = fixture.open(OpenFlags::READ, "h");
    assert!(fixture.near.is_settled());
    let read = fixture.send_read(0, 5);
    let close = fixture.request(&Request::Close { handle: "h".into() });
    assert_eq!(fixture.answers(), [ok(close)]);
    assert!(!fixture.near.is_settled(), "the READ waits for read-ahead");
    fixture.receive(ToNear::ReadAheadEnd {
        handle,
        run: 0,
        packet: without_id(Response::Status(Status::eof())),
    });
    assert_eq!(fixture.answers(), [eof(read)]);
    assert!(fixture.near.is_settled(), "only CLOSE has no confirmation");
    assert!(matches!(
        fixture.near.next_far_message(),
        Some(ToFar::Close { .. })
    ));
    fixture.open(OpenFlags::WRITE, "w");
    assert!(!fixture.near.is_settled(), "a file is open for writing");
    fixture.request(&Request::Close { handle: "w".into() });
    let Some(ToFar::Close { request, .. }) = fixture.near.next_far_message() else {
        panic!("CLOSE is passed on");
    };
    assert!(!fixture.near.is_settled(), "CLOSE may report a failure");
    fixture.reply(request, Response::Status(Status::ok()));
    assert!(fixture.near.is_settled());
}

#[test]
fn session_is_not_settled_before_the_limits_of_the_server() {
    let mut fixture = Fixture::new(NearSettings::default(), "limits@openssh.com");
    assert!(fixture.near.is_settled());
    let id = fixture.request(&Request::Extended(ExtendedRequest::Limits));
    assert!(
        !fixture.near.is_settled(),
        "the client waits for the answer"
    );
    let packet = without_id(Response::Status(Status::eof()));
    fixture.receive(ToNear::Limits { packet });
    assert!(fixture.answers().iter().any(|(it, _)| *it == id));
    assert!(fixture.near.is_settled());
}

#[test]
fn reads_that_wait_at_close_are_answered_from_read_ahead() {
    let mut fixture = Fixture::held();
    let handle = fixture.open(OpenFlags::READ, "h");
    let reads = [fixture.send_read(0, 4), fixture.send_read(4, 4)];
    let close = fixture.request(&Request::Close { handle: "h".into() });
    assert_eq!(fixture.answers(), [ok(close)]);
    assert_eq!(fixture.near.next_far_message(), None);
    for (read, text) in reads.into_iter().zip(["0123", "4567"]) {
        let data = Bytes::from(text);
        fixture.receive(ToNear::ReadAhead {
            handle,
            run: 0,
            data: data.clone().into(),
        });
        assert_eq!(fixture.answers(), [(read, Response::Data(data.into()))]);
    }
    let message = fixture.near.next_far_message();
    assert!(matches!(message, Some(ToFar::Close { handle: it, .. }) if it == handle));
    let outcome = Ok(());
    let finished = TransferEvent::Finished { handle, outcome };
    assert_eq!(fixture.events().last(), Some(&finished));
}

#[test]
fn without_early_replies_reads_and_close_are_passed_on() {
    let settings = NearSettings {
        early: EarlyReplies::Off,
        read_ahead_handle_max: first_credit::FIRST_CREDIT_MAX,
        ..NearSettings::default()
    };
    let mut fixture = Fixture::new(settings, "unknown");
    fixture.open(OpenFlags::READ, "h");
    fixture.send_read(0, 4);
    fixture.request(&Request::Close { handle: "h".into() });
    assert_eq!(fixture.answers(), []);
    let messages: Vec<_> = std::iter::from_fn(|| fixture.near.next_far_message()).collect();
    let [stop, read, close] = &messages[..] else {
        panic!("{messages:?}");
    };
    assert!(matches!(stop, ToFar::StopReadAhead { .. }), "{stop:?}");
    assert!(matches!(read, ToFar::Request { .. }), "{read:?}");
    assert!(matches!(close, ToFar::Close { .. }), "{close:?}");
}

#[test]
fn second_close_of_a_handle_follows_the_first() {
    let mut fixture = Fixture::held();
    fixture.open(OpenFlags::READ, "h");
    fixture.send_read(0, 4);
    fixture.request(&Request::Close { handle: "h".into() });
    assert_eq!(fixture.near.next_far_message(), None);
    fixture.request(&Request::Close { handle: "h".into() });
    let messages: Vec<_> = std::iter::from_fn(|| fixture.near.next_far_message()).collect();
    let [_, _, first, second] = &messages[..] else {
        panic!("{messages:?}");
    };
    assert!(matches!(first, ToFar::Close { .. }), "{first:?}");
    assert!(matches!(second, ToFar::Request { .. }), "{second:?}");
}

#[test]
fn close_reaches_the_server_before_a_later_change_of_a_path() {
    let mut fixture = Fixture::held();
    fixture.open(OpenFlags::READ, "h");
    fixture.send_read(0, 4);
    fixture.request(&Request::Close { handle: "h".into() });
    let path = Bytes::from("/file");
    fixture.request(&Request::Remove { path });
    let messages: Vec<_> = std::iter::from_fn(|| fixture.near.next_far_message()).collect();
    let [stop, read, close, remove] = &messages[..] else {
        panic!("{messages:?}");
    };
    assert!(matches!(stop, ToFar::StopReadAhead { .. }), "{stop:?}");
    assert!(matches!(read, ToFar::Request { .. }), "{read:?}");
    assert!(matches!(close, ToFar::Close { .. }), "{close:?}");
    assert!(matches!(remove, ToFar::Request { .. }), "{remove:?}");
}

#[test]
fn repeated_read_at_the_end_of_the_file_is_passed_on() {
    let mut fixture = Fixture::held();
    let handle = fixture.open(OpenFlags::READ, "h");
    fixture.receive(ToNear::ReadAheadEnd {
        handle,
        run: 0,
        packet: without_id(Response::Status(Status::eof())),
    });
    let first = fixture.send_read(0, 5);
    assert_eq!(fixture.answers(), [eof(first)]);
    // The file may have grown.
    let second = fixture.send_read(0, 5);
    let Some(ToFar::Request { request, .. }) = fixture.near.next_far_message() else {
        panic!("READ is passed on");
    };
    let grown = Response::Data(Bytes::from("more").into());
    fixture.reply(request, grown.clone());
    assert_eq!(fixture.answers(), [(second, grown)]);
}

#[test]
fn failure_of_read_ahead_is_the_servers_answer_to_the_clients_read() {
    let mut fixture = Fixture::held();
    let handle = fixture.open(OpenFlags::READ, "h");
    let id = fixture.send_read(0, 5);
    fixture.receive(ToNear::ReadAheadEnd {
        handle,
        run: 0,
        packet: without_id(no_space()),
    });
    let Some(ToFar::Request { request, .. }) = fixture.near.next_far_message() else {
        panic!("READ is passed on");
    };
    fixture.reply(request, no_space());
    assert_eq!(fixture.answers(), [(id, no_space())]);
    fixture.request(&Request::Close { handle: "h".into() });
    let outcome = Err("no space left on device".to_owned());
    let finished = TransferEvent::Finished { handle, outcome };
    assert_eq!(fixture.events().last(), Some(&finished));
}

#[test]
fn limits_that_the_far_half_has_requested_answer_the_client() {
    let mut fixture = Fixture::new(NearSettings::default(), "limits@openssh.com");
    let limits = Request::Extended(ExtendedRequest::Limits);
    let before = fixture.request(&limits);
    assert_eq!(
        fixture.near.next_far_message(),
        None,
        "the answer is in flight"
    );
    let of_server = Limits {
        packet_max_bytes: 4 << 20,
        read_max_bytes: 0,
        write_max_bytes: 4 << 20,
        handles_max: 7,
    };
    let packet = without_id(Response::Extended(of_server.encode()));
    fixture.receive(ToNear::Limits { packet });
    // Even if the server accepts longer packets, the near half does not.
    let through_gateways = Limits {
        packet_max_bytes: PACKET_MAX as u64,
        read_max_bytes: 255 * 1024,
        write_max_bytes: 255 * 1024,
        handles_max: 7,
    };
    let answer = Response::Extended(through_gateways.encode());
    let after = fixture.request(&limits);
    let expected = [(before, answer.clone()), (after, answer)];
    assert_eq!(fixture.answers(), expected);
}

#[test]
fn handles_beyond_the_limit_are_refused() {
    let mut fixture = Fixture::held();
    let open = Request::OpenDir { path: "/".into() };
    for _ in 0..HANDLES_MAX {
        fixture.request(&open);
        assert!(fixture.near.next_far_message().is_some());
    }
    let id = fixture.request(&open);
    assert_eq!(fixture.near.next_far_message(), None);
    let refused = Response::Status(Status::new(StatusCode::FAILURE, "too many open files"));
    assert_eq!(fixture.answers(), [(id, refused)]);
}

/// Files that are open beside the first file get windows, too.
#[test]
fn the_first_of_several_files_gets_two_thirds_of_the_memory() {
    let settings = NearSettings {
        read_ahead_max: 24 << 20,
        ..NearSettings::default()
    };
    let mut fixture = Fixture::new(settings, "unknown");
    let windows = [1, 2, 3, 4, 5].map(|number| {
        let attrs = Attrs::default();
        let path = format!("/file-{number}").into();
        let flags = OpenFlags::READ;
        fixture.request(&Request::Open { path, flags, attrs });
        match fixture.near.next_far_message() {
            Some(ToFar::Open { credit_bytes, .. }) => credit_bytes * 10 / (1 << 20),
            other => panic!("{other:?} in place of OPEN"),
        }
    });
    assert_eq!(windows, [160, 40, 20, 10, 10]);
}

#[test]
fn read_ahead_beyond_its_credit_ends_the_session() {
    let settings = NearSettings {
        read_ahead_max: 1 << 20,
        ..NearSettings::default()
    };
    let mut fixture = Fixture::new(settings, "unknown");
    let handle = fixture.open(OpenFlags::READ, "h");
    let push = |near: &mut SftpNear, length: usize| {
        let data = vec![0; length].into();
        near.receive_from_far(ToNear::ReadAhead {
            handle,
            run: 0,
            data,
        })
    };
    assert_eq!(push(&mut fixture.near, 1 << 20), Ok(()));
    let error = SftpError::LimitExceeded("read-ahead");
    assert_eq!(push(&mut fixture.near, 1), Err(error));
}

#[test]
fn client_that_does_not_begin_with_init_is_refused() {
    let path = Bytes::from("/");
    for (packet, kind) in [
        (Request::Stat { path }.encode(1), kind::STAT),
        (Rope::from(vec![0, 0, 0, 5, 1, 0, 0, 0, 2]), kind::INIT),
    ] {
        let mut near = SftpNear::new(NearSettings::default());
        let refused = near.receive_from_client(packet.into_bytes());
        assert_eq!(refused, Err(SftpError::NoInit(kind)));
    }
}

#[test]
fn handle_that_is_still_open_ends_the_session() {
    let mut fixture = Fixture::held();
    fixture.open(OpenFlags::READ, "h");
    fixture.request(&Request::OpenDir { path: "/".into() });
    let Some(ToFar::Open { request, .. }) = fixture.near.next_far_message() else {
        panic!("OPENDIR is passed on");
    };
    let packet = without_id(Response::Handle("h".into()));
    let result = fixture
        .near
        .receive_from_far(ToNear::Reply { request, packet });
    assert_eq!(result, Err(SftpError::DuplicateHandle));
}

#[test]
fn client_that_takes_no_bytes_stops_both_sides() {
    let mut fixture = Fixture::held();
    let handle = fixture.open(OpenFlags::READ, "h");
    for read in 0..1000 {
        fixture.send_read(read * 32_768, 32_768);
    }
    let mut pushed_bytes = 0;
    while fixture.near.wants_far_messages() {
        let data = vec![1; 32_768].into();
        fixture.receive(ToNear::ReadAhead {
            handle,
            run: 0,
            data,
        });
        pushed_bytes += 32_768;
        assert!(pushed_bytes < 2 * CLIENT_QUEUE_MAX, "the queue has a limit");
    }
    assert!(pushed_bytes > CLIENT_QUEUE_MAX / 2);
    assert!(!fixture.near.wants_client_bytes());
    assert_eq!(fixture.answers().len(), pushed_bytes / 32_768);
    assert!(fixture.near.wants_far_messages() && fixture.near.wants_client_bytes());
}

/// Ranges of a file, each of which the client reads with its own handle.
struct Ranges(Fixture);

impl Ranges {
    const READ: u64 = 128 << 10;

    /// Opens the file. Returns the number of its handle, and its credit in bytes.
    fn open(&mut self) -> (u64, u64) {
        let (path, attrs) = (Bytes::from("/file"), Attrs::default());
        let flags = OpenFlags::READ;
        let id = self.0.request(&Request::Open { path, flags, attrs });
        let Some(ToFar::Open {
            request,
            credit_bytes,
            ..
        }) = self.0.near.next_far_message()
        else {
            panic!("OPEN is passed on");
        };
        let answer = Response::Handle("h".into());
        self.0.reply(request, answer.clone());
        assert_eq!(self.0.answers(), [(id, answer)]);
        (request, credit_bytes)
    }

    /// Reads a range. Returns the messages for the far half.
    fn read(&mut self, (handle, run): (u64, u32), start: u64, bytes: u64) -> Vec<ToFar> {
        let mut messages = Vec::new();
        for number in 0..bytes / Self::READ {
            self.0
                .send_read(start + number * Self::READ, Self::READ as u32);
            messages.extend(std::iter::from_fn(|| self.0.near.next_far_message()));
            let data = Bytes::from(vec![0; Self::READ as usize]).into();
            self.0.receive(ToNear::ReadAhead { handle, run, data });
            assert_eq!(self.0.answers().len(), 1, "READ {number}");
            messages.extend(std::iter::from_fn(|| self.0.near.next_far_message()));
        }
        messages
    }

    fn close(&mut self) {
        self.0.request(&Request::Close { handle: "h".into() });
        while self.0.near.next_far_message().is_some() {}
        self.0.answers();
    }
}

/// Returns the sum of all credit in bytes.
fn credit(messages: &[ToFar]) -> u64 {
    let credit = messages.iter().map(|message| match message {
        ToFar::ReadAhead { credit_bytes, .. } | ToFar::Credit { credit_bytes, .. } => *credit_bytes,
        other => panic!("{other:?} in place of credit"),
    });
    credit.sum()
}

#[test]
fn next_range_of_a_file_is_read_ahead_from_its_first_read_to_its_end() {
    // Ranges within the window, and beyond it.
    for range in [8 << 20, 8 << 20 | 384 << 10, 96 << 20, 96 << 20 | 384 << 10] {
        let mut ranges = Ranges(Fixture::held());
        let (handle, credit_bytes) = ranges.open();
        assert!(credit_bytes > 0);
        ranges.read((handle, 1), range, range);
        ranges.close();
        let (handle, credit_bytes) = ranges.open();
        assert_eq!(credit_bytes, 0, "the offset of the first READ is unknown");
        let messages = ranges.read((handle, 1), 3 * range, range);
        let is_start =
            matches!(messages[0], ToFar::ReadAhead { offset, .. } if offset == 3 * range);
        assert!(is_start, "{:?}", messages[0]);
        assert_eq!(credit(&messages), range, "no credit beyond the range");
        // The client reads on.
        let messages = ranges.read((handle, 1), 4 * range, range);
        assert_eq!(credit(&messages), range, "twice the range");
    }
}

#[test]
fn file_is_read_ahead_from_its_start_after_the_client_has_read_it_from_its_start() {
    let range = 8 << 20;
    let mut ranges = Ranges(Fixture::held());
    let (handle, _) = ranges.open();
    ranges.read((handle, 1), range, range);
    ranges.close();
    let (handle, credit_bytes) = ranges.open();
    assert_eq!(credit_bytes, 0);
    ranges.read((handle, 1), 0, 2 * range + Ranges::READ);
    ranges.close();
    let (_, credit_bytes) = ranges.open();
    assert!(credit_bytes > 0);
}

#[test]
fn short_range_changes_no_later_read_ahead() {
    let mut ranges = Ranges(Fixture::held());
    let (handle, _) = ranges.open();
    ranges.read((handle, 1), 8 << 20, Ranges::READ);
    ranges.close();
    let (_, credit_bytes) = ranges.open();
    assert!(credit_bytes > 0);
}

#[test]
fn credit_is_small_until_the_first_read() {
    let settings = NearSettings::default();
    let mut ranges = Ranges(Fixture::new(settings, "unknown"));
    let (handle, credit_bytes) = ranges.open();
    assert_eq!(credit_bytes, 16 << 20);
    let data = Bytes::from(vec![0; 16 << 20]).into();
    ranges.0.receive(ToNear::ReadAhead {
        handle,
        run: 0,
        data,
    });
    assert_eq!(ranges.0.near.next_far_message(), None, "no READ yet");
    ranges.0.send_read(0, 1);
    let message = ranges.0.near.next_far_message();
    let rest = settings.read_ahead_handle_max - credit_bytes + 1;
    assert!(
        matches!(message, Some(ToFar::Credit { credit_bytes, .. }) if credit_bytes == rest),
        "{message:?}"
    );
}

/// Returns two sessions of one account, and the files that they share.
fn two_sessions() -> ([Ranges; 2], SharedFiles) {
    let files = SharedFiles::default();
    let sessions = [(); 2].map(|()| {
        let mut session = Ranges(Fixture::held());
        session.0.near.set_shared_files(files.clone());
        session
    });
    (sessions, files)
}

#[test]
fn read_ahead_of_a_file_ends_where_another_session_has_started() {
    let start = 24 << 20;
    let ([mut first, mut second], files) = two_sessions();
    let (first_handle, credit_bytes) = first.open();
    assert_eq!(credit_bytes, 16 << 20);
    let (second_handle, credit_bytes) = second.open();
    assert_eq!(
        credit_bytes,
        1 << 20,
        "the second handle may start elsewhere"
    );
    let messages = second.read((second_handle, 0), 0, Ranges::READ);
    assert_eq!(messages, [], "the first session may start soon");
    let messages = first.read((first_handle, 1), start, Ranges::READ);
    assert!(credit(&messages) >= 16 << 20, "{messages:?}");
    let rest = start - Ranges::READ;
    let messages = second.read((second_handle, 0), Ranges::READ, rest);
    let behind = 255 << 10;
    assert_eq!(credit(&messages), start + behind - credit_bytes);
    // The client reads on.
    let messages = second.read((second_handle, 0), start, 3 * Ranges::READ);
    assert_eq!(credit(&messages), 2 << 20);
    first.close();
    second.0.near.end("the connection is lost");
    assert!(files.is_empty());
}

#[test]
fn session_that_never_reads_a_file_does_not_slow_down_another() {
    let ([mut idle, mut other], _) = two_sessions();
    idle.open();
    let (handle, credit_bytes) = other.open();
    let half = 32 << 20;
    let messages = other.read((handle, 0), 0, half);
    assert!(credit_bytes + credit(&messages) > half);
    // The session no longer waits for the first READ of the idle session.
    let messages = other.read((handle, 0), half, half);
    for message in messages {
        assert_eq!(credit(&[message]), 1 << 20, "a sixteenth of the window");
    }
}

#[test]
fn file_that_another_session_has_closed_is_read_ahead_to_its_end() {
    let ([mut first, mut second], _) = two_sessions();
    let (first_handle, _) = first.open();
    let (second_handle, _) = second.open();
    first.read((first_handle, 1), 24 << 20, Ranges::READ);
    first.close();
    let size = 64 << 20;
    let messages = second.read((second_handle, 0), 0, size);
    assert!(credit(&messages) >= size - (1 << 20));
}

#[test]
fn sibling_that_starts_behind_the_client_does_not_limit_its_read_ahead() {
    let ([mut first, mut second], _) = two_sessions();
    let (first_handle, _) = first.open();
    first.read((first_handle, 0), 0, 32 << 20);
    let (second_handle, _) = second.open();
    second.read((second_handle, 1), 8 << 20, Ranges::READ);
    let messages = first.read((first_handle, 0), 32 << 20, 32 << 20);
    for message in messages {
        assert_eq!(credit(&[message]), 1 << 20, "a sixteenth of the window");
    }
}
