//! Tests of read-ahead in a session that changes files, and of the maximum age of read-ahead.

use std::time::Duration;

use super::*;
use crate::near::{AHEAD_AGE_MAX, END_AGE_MAX};

/// Handle of the reader.
const READER: &str = "h";

/// Handle of the writer.
const WRITER: &str = "w";

/// Creates a session with a reader whose file has been read ahead to its end.
fn with_read_ahead() -> (Fixture, u64) {
    let mut fixture = Fixture::held();
    let handle = fixture.open(OpenFlags::READ, READER);
    read_ahead_to_end(&mut fixture, handle);
    (fixture, handle)
}

fn read_ahead_to_end(fixture: &mut Fixture, handle: u64) {
    let data = Bytes::from("old").into();
    fixture.receive(ToNear::ReadAhead {
        handle,
        run: 0,
        data,
    });
    fixture.receive(ToNear::ReadAheadEnd {
        handle,
        run: 0,
        packet: without_id(Response::Status(Status::eof())),
    });
}

fn far_messages(fixture: &mut Fixture) -> Vec<ToFar> {
    std::iter::from_fn(|| fixture.near.next_far_message()).collect()
}

fn is_read(message: &ToFar) -> bool {
    matches!(message, ToFar::Request { packet, .. } if kind_of(packet) == kind::READ)
}

/// Asserts that the next READ reaches the server.
fn assert_reads_at_server(fixture: &mut Fixture, offset: u64, why: &str) {
    far_messages(fixture);
    fixture.answers();
    fixture.send_read(offset, 3);
    let messages = far_messages(fixture);
    assert!(messages.iter().any(is_read), "{why}: {messages:?}");
    assert_eq!(fixture.answers(), [], "{why}");
}

#[test]
fn read_behind_a_change_of_the_session_is_passed_on() {
    let path = || Bytes::from("/file");
    let handle = || Bytes::from(WRITER);
    let attrs = || Attrs {
        size: Some(0),
        ..Attrs::default()
    };
    let other = || Bytes::from("/other");
    let changes = [
        Request::Write {
            handle: handle(),
            offset: 0,
            data: Bytes::from("new").into(),
        },
        Request::Write {
            handle: "unknown".into(),
            offset: 0,
            data: Bytes::from("new").into(),
        },
        Request::SetStat {
            path: path(),
            attrs: attrs(),
        },
        Request::FsetStat {
            handle: handle(),
            attrs: attrs(),
        },
        Request::Rename {
            from: other(),
            to: path(),
        },
        Request::Open {
            path: path(),
            flags: OpenFlags::WRITE.union(OpenFlags::TRUNCATE),
            attrs: Attrs::default(),
        },
        Request::Close { handle: handle() },
        Request::Extended(ExtendedRequest::PosixRename {
            from: other(),
            to: path(),
        }),
        Request::Extended(ExtendedRequest::CopyData {
            from: READER.into(),
            from_offset: 0,
            length: 0,
            to: handle(),
            to_offset: 0,
        }),
        Request::Extended(ExtendedRequest::Unknown {
            name: "change@example.com".into(),
            body: Rope::new(),
        }),
    ];
    for change in changes {
        for offset in [0, 3] {
            let (mut fixture, _) = with_read_ahead();
            fixture.open(OpenFlags::WRITE, WRITER);
            fixture.request(&change);
            assert_reads_at_server(&mut fixture, offset, &format!("{change:?}"));
        }
    }
}

#[test]
fn requests_that_change_no_file_keep_read_ahead() {
    let path = || Bytes::from("/other");
    let requests = [
        Request::Stat { path: path() },
        Request::Fstat {
            handle: READER.into(),
        },
        Request::RealPath { path: path() },
        Request::Remove { path: path() },
        Request::Extended(ExtendedRequest::StatVfs { path: path() }),
        Request::Open {
            path: path(),
            flags: OpenFlags::WRITE.union(OpenFlags::CREATE),
            attrs: Attrs::default(),
        },
    ];
    for request in requests {
        let (mut fixture, _) = with_read_ahead();
        fixture.request(&request);
        fixture.answers();
        let id = fixture.send_read(0, 3);
        let data = Response::Data(Bytes::from("old").into());
        assert_eq!(fixture.answers(), [(id, data)], "{request:?}");
    }
}

#[test]
fn waiting_read_precedes_the_change_at_the_server() {
    let mut fixture = Fixture::held();
    fixture.open(OpenFlags::READ, READER);
    fixture.open(OpenFlags::WRITE, WRITER);
    fixture.send_read(0, 3);
    fixture.request(&Request::Write {
        handle: WRITER.into(),
        offset: 0,
        data: Bytes::from("new").into(),
    });
    let messages = far_messages(&mut fixture);
    let [
        ToFar::StopReadAhead { run: 0, .. },
        read,
        ToFar::Write { .. },
    ] = &messages[..]
    else {
        panic!("{messages:?}");
    };
    assert!(is_read(read));
}

#[test]
fn read_ahead_of_an_open_before_the_change_is_dropped() {
    let mut fixture = Fixture::held();
    fixture.open(OpenFlags::WRITE, WRITER);
    let id = fixture.request(&Request::Open {
        path: "/file".into(),
        flags: OpenFlags::READ,
        attrs: Attrs::default(),
    });
    let Some(ToFar::Open { request, .. }) = fixture.near.next_far_message() else {
        panic!("OPEN is passed on");
    };
    fixture.request(&Request::Write {
        handle: WRITER.into(),
        offset: 0,
        data: Bytes::from("new").into(),
    });
    let handle = Response::Handle(READER.into());
    fixture.reply(request, handle.clone());
    assert_eq!(fixture.answers(), [(id, handle)]);
    read_ahead_to_end(&mut fixture, request);
    assert_reads_at_server(&mut fixture, 0, "the WRITE was passed on first");
}

#[test]
fn read_ahead_starts_after_the_answers_to_all_changes() {
    let (mut fixture, _) = with_read_ahead();
    fixture.open(OpenFlags::WRITE, WRITER);
    let (_, number) = fixture.send_write(WRITER);
    let starts = |messages: &[ToFar]| {
        let is_start = |message: &ToFar| matches!(message, ToFar::ReadAhead { .. });
        messages.iter().any(is_start)
    };
    for read in 0..100 {
        fixture.send_read(read * 3, 3);
    }
    assert!(!starts(&far_messages(&mut fixture)), "WRITE has no answer");
    fixture.request(&Request::Open {
        path: "/other".into(),
        flags: OpenFlags::READ,
        attrs: Attrs::default(),
    });
    let messages = far_messages(&mut fixture);
    let [ToFar::Open { credit_bytes, .. }] = messages[..] else {
        panic!("{messages:?}");
    };
    assert_eq!(credit_bytes, 0, "WRITE has no answer");
    let request = number.expect("the WRITE is passed on");
    fixture.receive(ToNear::Written { request });
    fixture.send_read(300, 3);
    assert!(starts(&far_messages(&mut fixture)));
}

#[test]
fn unread_bytes_of_an_idle_file_are_read_again() {
    let (mut fixture, handle) = with_read_ahead();
    fixture.near.set_time(AHEAD_AGE_MAX);
    let id = fixture.send_read(0, 3);
    let data = |text: &'static str| Response::Data(Bytes::from(text).into());
    assert_eq!(fixture.answers(), [(id, data("old"))], "within the age");

    let (mut fixture, later) = with_read_ahead();
    assert_eq!(handle, later);
    fixture
        .near
        .set_time(AHEAD_AGE_MAX + Duration::from_millis(1));
    let id = fixture.send_read(0, 3);
    assert_eq!(fixture.answers(), [], "the bytes are too old");
    let messages = far_messages(&mut fixture);
    let [ToFar::ReadAhead { run, offset: 0, .. }] = messages[..] else {
        panic!("{messages:?}");
    };
    let data_message = Bytes::from("new").into();
    fixture.receive(ToNear::ReadAhead {
        handle,
        run,
        data: data_message,
    });
    assert_eq!(fixture.answers(), [(id, data("new"))]);
}

#[test]
fn read_at_an_end_that_was_reached_long_ago_is_passed_on() {
    let (mut fixture, _) = with_read_ahead();
    let first = fixture.send_read(0, 3);
    let data = Response::Data(Bytes::from("old").into());
    assert_eq!(fixture.answers(), [(first, data)]);
    fixture
        .near
        .set_time(END_AGE_MAX + Duration::from_millis(1));
    assert_reads_at_server(&mut fixture, 3, "the file may have grown");
}
