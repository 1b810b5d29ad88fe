//! Helpers for the fuzz targets: decoding of frames, and hellos with a valid MAC.

use std::time::Duration;

use crate::{
    PublicKey,
    feedback::received::{ContentKind, ReceivedLog},
    handshake::envelope::{EnvelopeKey, Hello, HelloSender, KeyId},
    time::Time,
    wire::{
        frame::{self, Frame, Frames, Half},
        packet::ConnectionId,
    },
};

/// Decodes the frames of a payload, and iterates over the reports in it. For each other frame,
/// checks that encoding and decoding return the same frame. Returns the number of frames.
///
/// # Panics
/// Panics if a frame changes when it is encoded and decoded.
pub fn decode_frames(payload: &[u8]) -> usize {
    let mut count = 0;
    for frame in Frames::new(payload) {
        let Ok(frame) = frame else { break };
        count += 1;
        match frame {
            Frame::Feedback(report) => walk(&report),
            frame => {
                let written = write(&frame);
                let mut again = Frames::new(&written);
                assert_eq!(again.next(), Some(Ok(frame)));
                assert_eq!(again.next(), None);
            }
        }
    }
    count
}

fn walk(report: &crate::wire::report::Report<'_>) {
    let mut told = 0;
    let blocks = report.for_each_run(|low, high, _| {
        assert!(low < high && high <= report.largest + 1);
        told += 1;
    });
    let samples = report.for_each_sample(|sample| {
        assert!(sample.number <= report.largest);
    });
    let _ = (told, blocks, samples);
}

fn write(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    if let Frame::Chunk {
        stream,
        index,
        data,
    } = *frame
    {
        frame::put_chunk(&mut out, stream, index, data.len());
        out.extend_from_slice(data);
    } else if let Frame::Half {
        stream,
        index,
        len,
        half,
        data,
    } = *frame
    {
        frame::put_half(&mut out, stream, index, len, half);
        out.extend_from_slice(data);
    } else {
        frame.put(&mut out);
    }
    out
}

/// Returns valid payloads: one with each kind of frame, and reports about a path with losses.
pub fn payloads() -> Vec<Vec<u8>> {
    // The first bulk stream of the initiator of the handshake.
    let stream = 3;
    let frames = [
        Frame::Ping,
        Frame::Chunk {
            stream,
            index: 0,
            data: b"data",
        },
        Frame::Half {
            stream,
            index: 1,
            len: 7,
            half: Half::First,
            data: b"data",
        },
        Frame::End {
            stream,
            chunks: 1,
            bytes: 4,
            hash: 0x0102_0304_0506_0708,
        },
        Frame::Reset { stream, code: 1 },
        Frame::Stop { stream, code: 1 },
        Frame::Credit { stream, limit: 99 },
        Frame::PacedCredit {
            stream,
            limit: 99,
            window: 50,
        },
        Frame::Done { stream },
        Frame::InitialWindow {
            from: 3,
            free: 2048,
        },
        Frame::StreamLimit { streams: 5000 },
        Frame::PathHint { rtt_us: 200_000 },
        Frame::RateMax {
            bytes_per_s: 12_500_000,
        },
        Frame::TellFrom { number: 1 },
        Frame::Retire,
        Frame::Challenge([7; 8]),
        Frame::Response([7; 8]),
        Frame::Close { code: 0 },
    ];
    let mut payloads: Vec<_> = frames.iter().map(write).collect();
    payloads.push(payloads.concat());
    for gap in [1, 2, 7, 40] {
        let mut log = ReceivedLog::new(Duration::from_millis(20));
        let mut now = Time::default();
        for number in (0..300).filter(|number| number % gap != gap / 2) {
            now = now + Duration::from_micros(120);
            log.insert(number, 1500, ContentKind::Data, now);
        }
        let mut payload = Vec::new();
        frame::put_feedback_type(&mut payload);
        log.write_report(&mut payload, 1200, now);
        payloads.push(payload);
    }
    payloads
}

/// Fields of a hello, or of a reply to a hello.
#[derive(Debug, Clone, Copy)]
pub struct HelloFields<'a> {
    /// Key of the gateway that initiates the handshake.
    pub initiator: &'a PublicKey,
    /// Key of the gateway that responds to the handshake.
    pub responder: &'a PublicKey,
    /// Connection ID of the initiator if the datagram is a reply. `None` for a hello.
    pub answers: Option<[u8; 4]>,
    /// Timestamp of the hello, in nanoseconds since the Unix epoch.
    pub timestamp: u64,
    /// Connection ID of the sender.
    pub source: [u8; 4],
    /// Cookie that the responder requested, if any.
    pub cookie: Option<[u8; 16]>,
    /// Offset of `crypto` in the sender's crypto bytes.
    pub crypto_offset: u16,
    /// TLS bytes of the handshake.
    pub crypto: &'a [u8],
}

/// Returns a datagram with the given fields, and with a valid MAC for the two keys.
pub fn hello(fields: &HelloFields<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let hello = Hello {
        from: match fields.answers {
            None => HelloSender::Initiator(KeyId::of(fields.initiator)),
            Some(id) => HelloSender::Responder(ConnectionId(id)),
        },
        timestamp: fields.timestamp,
        source: ConnectionId(fields.source),
        cookie: fields.cookie,
        crypto_offset: fields.crypto_offset,
        crypto: fields.crypto,
    };
    hello.put(
        &mut out,
        &EnvelopeKey::new(fields.responder, fields.initiator),
    );
    out
}
