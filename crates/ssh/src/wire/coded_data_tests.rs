use std::net::UdpSocket;

use link::{Identity, Link, PeerConfig, PeerId, PublicKey, StreamClass};
use proptest::prelude::*;
use relay::{settings::RelaySettings, status::Registry, transfer_log::TransferLog};
use sftp::ToFar;
use tokio::runtime::Runtime;

use super::*;
use crate::wire::{
    FrameReader, FrameWriter,
    channel::{ChannelMessage, DATA, EXTENDED},
};

/// Two links on the loopback interface.
struct Links {
    near: Link,
    far: Link,
}

impl Links {
    fn start() -> Self {
        let [near, far] = [(); 2].map(|()| Identity::generate());
        let (near_key, far_key) = (near.public_key(), far.public_key());
        let far = link(far, near_key, None);
        let near = link(near, far_key, Some(far.local_addr().to_string()));
        Self { near, far }
    }

    /// Opens a stream, and sends `first` on it.
    async fn stream(&self, first: Bytes) -> (SendStream, RecvStream) {
        let opened = self.near.open(PeerId(0), StreamClass::Bulk).await;
        let (mut send, _) = opened.expect("a stream");
        send.write(first).await.expect("an open stream");
        let incoming = self.far.accept().await.expect("a stream");
        (send, incoming.recv)
    }
}

#[allow(clippy::disallowed_methods, reason = "opens the socket of a link")]
fn link(identity: Identity, peer: PublicKey, endpoint: Option<String>) -> Link {
    let peer = PeerConfig {
        name: "other".to_owned(),
        public_keys: vec![peer],
        endpoint,
        rate_max: None,
        is_guest: false,
    };
    let settings = RelaySettings::new(identity, vec![peer]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    Link::start(socket, settings.link).expect("a link")
}

fn counters() -> Arc<CodingCounters> {
    Registry::new(TransferLog::disabled()).stream_coding_counters()
}

fn writer(send: SendStream) -> FrameWriter {
    let mut writer = FrameWriter::new(send);
    writer.set_coding(&StreamCoding::without_chunks(true), &counters());
    writer
}

fn reader(recv: RecvStream) -> FrameReader {
    let mut reader = FrameReader::new(recv, Bytes::new());
    reader.set_coding(&StreamCoding::without_chunks(true), &counters());
    reader
}

/// Reads frames until the end of the stream. Joins the data of consecutive frames of one type.
async fn read_all(mut reader: FrameReader) -> Result<Vec<(u8, Vec<u8>)>, WireError> {
    let mut read: Vec<(u8, Vec<u8>)> = Vec::new();
    while let Some(frame) = reader.next().await? {
        match frame {
            Frame::Whole { kind, body } => read.push((kind, body.into_bytes().to_vec())),
            Frame::Piece { kind, data } => match read.last_mut() {
                Some((last, bytes)) if *last == kind => bytes.extend_from_slice(&data),
                _ => read.push((kind, data.to_vec())),
            },
        }
    }
    Ok(read)
}

fn noise(length: usize, seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let bytes = (0..length).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    });
    bytes.collect()
}

/// Sends the bytes of frames without a `FrameWriter`, as a hostile peer could. Returns the frames
/// that a reader accepts.
async fn read_raw(links: &Links, frames: Vec<u8>) -> Result<Vec<(u8, Vec<u8>)>, WireError> {
    let (mut send, recv) = links.stream(frames.into()).await;
    send.finish();
    read_all(reader(recv)).await
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&header(kind, body.len()), body].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn all_frames_come_back_in_order(
        frames in prop::collection::vec(
            (0_u8..6, 0_usize..70_000, any::<u8>(), any::<bool>()),
            1..40,
        )
    ) {
        let runtime = Runtime::new().expect("a runtime");
        let (read, expected) = runtime.block_on(async {
            let links = Links::start();
            let (send, recv) = links.stream(Bytes::new()).await;
            let mut writer = writer(send);
            let mut expected: Vec<(u8, Vec<u8>)> = Vec::new();
            let reading = tokio::spawn(read_all(reader(recv)));
            for (which, length, seed, flushes) in frames {
                let bytes = match seed % 2 {
                    0 => noise(length, seed),
                    _ => vec![seed; length],
                };
                match which {
                    0 => {
                        let frame = ChannelMessage::ExitStatus(u32::from(seed)).encode();
                        expected.push((frame[4], frame[5..].to_vec()));
                        writer.queue(frame);
                    }
                    1 | 2 => {
                        let kind = [DATA, EXTENDED][usize::from(which) - 1];
                        match expected.last_mut() {
                            Some((last, all)) if *last == kind => all.extend_from_slice(&bytes),
                            _ if bytes.is_empty() => {}
                            _ => expected.push((kind, bytes.clone())),
                        }
                        writer.write_data(kind, bytes.into()).await.expect("an open stream");
                    }
                    _ => {
                        let data = Bytes::from(bytes).into();
                        let write = ToFar::Write { request: 1, handle: 2, offset: 3, data };
                        let message = write.encode();
                        let body = message.clone().into_body().into_bytes();
                        expected.push((message.kind, body.to_vec()));
                        writer.queue_sftp(message);
                    }
                }
                match flushes {
                    true => writer.flush().await.expect("an open stream"),
                    false => writer.advance().await.expect("an open stream"),
                }
                assert!(!flushes || writer.flush_delay().is_none());
            }
            writer.flush().await.expect("an open stream");
            writer.finish();
            (reading.await.expect("no panic"), expected)
        });
        prop_assert!(read.expect("valid frames") == expected, "other frames");
    }

    #[test]
    fn any_bytes_are_frames_or_an_error(
        frames in prop::collection::vec(
            (prop_oneof![Just(CODED), Just(DETACHED), Just(DATA), 0_u8..16],
             prop::collection::vec(any::<u8>(), 0..60)),
            1..12,
        )
    ) {
        let runtime = Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let links = Links::start();
            let frames = frames.iter().map(|(kind, body)| frame(*kind, body));
            let _ = read_raw(&links, frames.flatten().collect()).await;
        });
    }
}

#[tokio::test]
async fn a_changed_byte_is_found_before_the_end_of_the_channel() {
    let links = Links::start();
    // A writer, and a stored block whose hash follows.
    let (send, mut recv) = links.stream(Bytes::new()).await;
    let mut writer = writer(send);
    let data = Bytes::from(noise(50_000, 1));
    writer.write_data(DATA, data.clone()).await.expect("open");
    writer
        .write(ChannelMessage::Close.encode())
        .await
        .expect("open");
    writer.finish();
    let mut frames = Vec::new();
    while let Some(bytes) = recv.read().await.expect("intact") {
        frames.extend_from_slice(&bytes);
    }
    let read = read_raw(&links, frames.clone())
        .await
        .expect("valid frames");
    let close = ChannelMessage::Close.encode()[4];
    assert!(read == [(DATA, data.to_vec()), (close, Vec::new())]);
    frames[1_000] ^= 1;
    let error = read_raw(&links, frames).await.expect_err("another hash");
    assert!(matches!(&error, WireError::Coding(_)), "{error}");
}

#[tokio::test]
async fn decoded_bytes_without_frames_are_bounded() {
    let links = Links::start();
    let mut frames = Vec::new();
    let (mut encoder, mut out) = (
        optimiser::encoder::Encoder::new(true, None),
        VecDeque::new(),
    );
    let mut zeros = BytesMut::zeroed(64 * 1024 * 1024);
    let (scope, chunks) = (EncodeScope::All, &mut optimiser::encoder::NoChunks);
    encoder.encode(&mut zeros, scope, chunks, &mut out);
    for coded in out {
        frames.extend_from_slice(&frame(CODED, &coded));
    }
    assert!(frames.len() < 64 * 1024, "{} bytes", frames.len());
    let error = read_raw(&links, frames).await.expect_err("a bomb");
    assert_eq!(error, WireError::TooLong(CODED));
}

#[tokio::test]
async fn frames_whose_data_are_missing_are_malformed() {
    let links = Links::start();
    let detached = frame(DETACHED, &[DATA, 0, 0, 2, 0]);
    let error = read_raw(&links, detached).await.expect_err("no data");
    assert_eq!(error, WireError::Malformed(DETACHED));
    let (mut send, recv) = links.stream(frame(CODED, &[1, 0, 0, 1, 7]).into()).await;
    send.finish();
    let uncoded = FrameReader::new(recv, Bytes::new());
    let error = read_all(uncoded).await.expect_err("no coding");
    assert_eq!(error, WireError::UnknownType(CODED));
}

#[tokio::test]
async fn short_frames_behind_waiting_data_are_bounded() {
    let links = Links::start();
    let (mut send, _recv) = links.stream(Bytes::new()).await;
    let mut encoder = DataEncoder::new(&StreamCoding::without_chunks(true), &counters());
    let mut queue = VecDeque::new();
    encoder.push_stream(DATA, &noise(BULK_MIN_BYTES, 1));
    let short_frame = Bytes::from(frame(DATA, &[7]));
    for _ in 0..3 * WAITING_MAX {
        encoder.push_frame(short_frame.clone(), true);
        let coded = encoder.code(false, &mut send, &mut queue).await;
        coded.expect("an open stream");
        assert!(encoder.waiting.len() < WAITING_MAX);
    }
    let sent = queue.iter().filter(|part| **part == short_frame).count();
    assert!(sent > 2 * WAITING_MAX, "{sent} short frames sent");
}
