//! Test vectors of `docs/protocol.md`. This code generates each line of the vectors in that
//! document.

use std::{fs, path::Path, time::Duration};

use crate::{
    Identity, StreamClass,
    feedback::received::{ContentKind, ReceivedLog},
    handshake::{
        envelope::{CookieReply, EnvelopeKey, Hello, HelloSender, KeyId},
        tls::TransportParameters,
    },
    stream::StreamNumber,
    time::Time,
    version::FrameVersion,
    wire::{
        frame::{self, Frame, Half},
        packet::{self, ConnectionId},
    },
};

/// Returns initiator and responder. Their private seeds are 32 bytes of 01 and 32 bytes of 02.
fn identities() -> [Identity; 2] {
    [[1; 32], [2; 32]].map(Identity::from_seed)
}

fn vectors() -> Vec<(String, Vec<u8>)> {
    let [initiator, responder] = identities().map(|identity| identity.public_key());
    let key = EnvelopeKey::new(&responder, &initiator);
    let hello = |from, cookie| {
        let hello = Hello {
            from,
            timestamp: 0x1122_3344_5566_7788,
            source: ConnectionId([0xa1, 0xa2, 0xa3, 0xa4]),
            cookie,
            crypto_offset: 1150,
            crypto: b"crypto",
        };
        let mut out = Vec::new();
        hello.put(&mut out, &key);
        out
    };
    let cookie = *b"cookie, 16 bytes";
    let mut asked = Vec::new();
    let reply = CookieReply {
        to: ConnectionId([0xa1, 0xa2, 0xa3, 0xa4]),
        timestamp: 0x1122_3344_5566_7788,
        cookie,
    };
    reply.put(&mut asked, &key);
    let answered = ConnectionId([0xb1, 0xb2, 0xb3, 0xb4]);
    let mut vectors = vec![
        ("initiator public key".into(), initiator.0.to_vec()),
        ("responder public key".into(), responder.0.to_vec()),
        ("initiator key ID".into(), KeyId::of(&initiator).0.to_vec()),
        (
            "hello".into(),
            hello(HelloSender::Initiator(KeyId::of(&initiator)), None),
        ),
        (
            "hello answer".into(),
            hello(HelloSender::Responder(answered), None),
        ),
        ("cookie".into(), asked),
        (
            "hello with cookie".into(),
            hello(HelloSender::Initiator(KeyId::of(&initiator)), Some(cookie)),
        ),
        ("parameters".into(), parameters()),
    ];
    let mut header = Vec::new();
    packet::put_handshake_header(&mut header, answered, 5);
    vectors.push(("handshake header".into(), std::mem::take(&mut header)));
    packet::put_data_header(&mut header, answered, 0x1_0000_0005, true);
    vectors.push(("data header, unmasked".into(), header));
    vectors.extend(frames());
    vectors.push(("FEEDBACK, runs".into(), report(20, 9)));
    vectors.push(("FEEDBACK, bits".into(), report(40, 2)));
    vectors
}

fn parameters() -> Vec<u8> {
    let parameters = TransportParameters {
        version: FrameVersion::LATEST,
        instance: 0x0102_0304_0506_0708,
        initial_window: 4096,
        stream_limit: 4096,
        began_unix_ns: 1_700_000_000_000_000_000,
    };
    parameters.encode()
}

fn frames() -> Vec<(String, Vec<u8>)> {
    let stream = 6;
    let frames = [
        ("PING", Frame::Ping),
        (
            "END",
            Frame::End {
                stream,
                chunks: 2,
                bytes: 2000,
                hash: 0x0102_0304_0506_0708,
            },
        ),
        ("RESET", Frame::Reset { stream, code: 1 }),
        (
            "STOP",
            Frame::Stop {
                stream,
                code: 70_000,
            },
        ),
        (
            "CREDIT",
            Frame::Credit {
                stream,
                limit: 5000,
            },
        ),
        (
            "PACED_CREDIT",
            Frame::PacedCredit {
                stream,
                limit: 5000,
                window: 181,
            },
        ),
        ("DONE", Frame::Done { stream }),
        (
            "INITIAL_WINDOW",
            Frame::InitialWindow {
                from: 3,
                free: 8192,
            },
        ),
        ("STREAM_LIMIT", Frame::StreamLimit { streams: 5120 }),
        ("PATH_HINT", Frame::PathHint { rtt_us: 200_000 }),
        (
            "RATE_MAX",
            Frame::RateMax {
                bytes_per_s: 12_500_000,
            },
        ),
        ("TELL_FROM", Frame::TellFrom { number: 100_000 }),
        ("RETIRE", Frame::Retire),
        ("CHALLENGE", Frame::Challenge(*b"8 bytes!")),
        ("RESPONSE", Frame::Response(*b"8 bytes!")),
        ("CLOSE", Frame::Close { code: 0 }),
    ];
    let mut vectors: Vec<_> = frames
        .iter()
        .map(|(name, frame)| {
            let mut out = Vec::new();
            frame.put(&mut out);
            ((*name).to_owned(), out)
        })
        .collect();
    for (name, to_end) in [("CHUNK_TO_END", true), ("CHUNK", false)] {
        let mut out = Vec::new();
        if to_end {
            frame::put_chunk_to_end(&mut out, stream, 300);
        } else {
            frame::put_chunk(&mut out, stream, 300, 4);
        }
        out.extend_from_slice(b"data");
        vectors.push((name.into(), out));
    }
    let mut half = Vec::new();
    frame::put_half(&mut half, stream, 300, 7, Half::First);
    half.extend_from_slice(b"data");
    vectors.push(("HALF".into(), half));
    vectors
}

/// Returns the first report about `count` packets of 1500 bytes, sent every millisecond. One packet
/// in `lost` is missing.
fn report(count: u64, lost: u64) -> Vec<u8> {
    let mut log = ReceivedLog::new(Duration::from_millis(80));
    let mut now = Time(1_000_000_000);
    for number in 0..count {
        now = now + Duration::from_millis(1);
        if number % lost != lost - 1 {
            log.insert(number, 1500, ContentKind::Data, now);
        }
    }
    let mut out = Vec::new();
    frame::put_feedback_type(&mut out);
    log.write_report(&mut out, 1200, now + Duration::from_micros(250));
    out
}

#[test]
fn the_protocol_document_prints_what_this_code_makes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let text = fs::read_to_string(path).expect("the document exists");
    let mut missing = Vec::new();
    for (name, bytes) in vectors() {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("{name}: {hex}");
        // Long lines are folded in the document.
        let folded = text.replace("\n        ", "");
        if !folded.lines().any(|found| found.trim() == line) {
            missing.push(line);
        }
    }
    assert!(
        missing.is_empty(),
        "not in the document:\n{}",
        missing.join("\n")
    );
}

#[test]
fn stream_numbers_carry_count_class_and_opener() {
    for (count, class, by_initiator, number) in [
        (0, StreamClass::Control, true, 1),
        (0, StreamClass::Bulk, true, 3),
        (0, StreamClass::Control, false, 0),
        (0, StreamClass::Bulk, false, 2),
        (7, StreamClass::Bulk, true, 31),
    ] {
        let parts = StreamNumber {
            count,
            class,
            by_initiator,
        };
        assert_eq!(parts.encode(), number);
    }
}
