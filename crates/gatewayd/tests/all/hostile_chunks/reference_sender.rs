//! Tests of attacks on a gateway that sends references to chunks. The hostile peer misuses the
//! references.

use std::{io::Write as _, sync::Arc, thread};

use ftp::session::TransferId;
use optimiser::{
    decoder::{Decoder, DecoderEvent},
    frame::{self, ChunkReference},
};
use relay::wire::{ChunkRequest, Service, encode, reset};

use crate::{
    common::noise,
    hostile_chunks::peer::{Data, Messages, Peer, PeerWorld, Session},
};

/// Frames and bytes that a download has delivered.
#[derive(Default)]
struct Got {
    literal_bytes: usize,
    /// References that have arrived, each with its number.
    references: Vec<(u64, ChunkReference)>,
    lists: Vec<(u64, ChunkReference)>,
    is_ended: bool,
}

/// Downloads a file with `times` copies of `content`. The hostile peer sends no reports or
/// requests.
fn download(session: &mut Session, content: &[u8], times: usize) -> (Data, Got) {
    let mut data = session.transfer("RETR a");
    let mut server = data.server.try_clone().expect("a socket");
    let mut got = Got::default();
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..times {
                server.write_all(content).expect("the gateway reads");
            }
            server.shutdown(std::net::Shutdown::Write).expect("an end");
        });
        let mut decoder = Decoder::new(false);
        let peer = data.stream.peer.clone();
        while let Some(bytes) = peer.wait(data.stream.recv.read()).expect("a stream") {
            decoder.push(bytes);
            while let Some(event) = decoder.poll().expect("frames") {
                match event {
                    DecoderEvent::Bytes(bytes) => got.literal_bytes += bytes.len(),
                    DecoderEvent::Reference { number, reference } => {
                        got.references.push((number, reference));
                    }
                    DecoderEvent::List { number, reference } => got.lists.push((number, reference)),
                    DecoderEvent::Chunk { .. } => {}
                    DecoderEvent::End(_) => got.is_ended = true,
                }
            }
        }
    });
    assert!(got.is_ended);
    session.server.send("226 done");
    (data, got)
}

/// Opens a stream on which the peer requests the chunks of a download.
fn asking(peer: &Arc<Peer>, session: u64, transfer: TransferId) -> Messages {
    let (send, recv) = peer.open(Service::Chunks {
        session,
        transfer,
        of_near: false,
    });
    Messages::new(peer, send, recv)
}

/// Reads the reply to a request: a chunk of `bytes` bytes.
fn answer(asks: &mut Messages, decoder: &mut Decoder, bytes: usize) -> Vec<u8> {
    let mut answer = Vec::new();
    while answer.len() < bytes {
        while let Some(event) = decoder.poll().expect("frames") {
            let DecoderEvent::Bytes(bytes) = event else {
                panic!("no bytes: {event:?}");
            };
            answer.extend_from_slice(&bytes);
        }
        if answer.len() < bytes {
            let read = asks.peer.wait(asks.recv.read());
            decoder.push(read.expect("a stream").expect("no end"));
        }
    }
    answer
}

/// Downloads `content` twice. Returns the session and the second download, which consists of
/// references.
fn known(world: &PeerWorld, peer: &Arc<Peer>, content: &[u8]) -> (Session, Data, Got) {
    let mut session = Session::begin(world, peer, 1, "");
    let (_, first) = download(&mut session, content, 1);
    assert_eq!(first.literal_bytes, content.len());
    session.skip_replies();
    let (data, again) = download(&mut session, content, 1);
    session.skip_replies();
    assert!(
        again.literal_bytes < content.len() / 10,
        "it is referred to"
    );
    assert!(!again.references.is_empty() || !again.lists.is_empty());
    (session, data, again)
}

#[test]
fn referenced_chunks_are_sent_once_and_only_to_the_peer_of_the_reference() {
    let world = PeerWorld::start();
    let (peer, other) = (world.peer("a"), world.peer("c"));
    let content = noise(1, 1_000_000);
    let (session, data, got) = known(&world, &peer, &content);
    let &(number, reference) = got
        .lists
        .iter()
        .chain(&got.references)
        .min_by_key(|it| it.0)
        .expect("one");
    assert_eq!(number, 0);
    // The requests come from another peer, or concern another stream, another session, or the other
    // direction.
    let wrong = [
        asking(&other, session.number, data.transfer),
        asking(&peer, session.number, TransferId(data.transfer.0 + 1)),
        asking(&peer, session.number + 1, data.transfer),
        {
            let (send, recv) = peer.open(Service::Chunks {
                session: session.number,
                transfer: data.transfer,
                of_near: true,
            });
            Messages::new(&peer, send, recv)
        },
    ];
    for mut asks in wrong {
        asks.say(encode(&ChunkRequest::Missing(0)));
        assert_eq!(asks.reset_code(), reset::SESSION_ENDED);
    }
    let mut asks = asking(&peer, session.number, data.transfer);
    let mut decoder = Decoder::new(false);
    asks.say(encode(&ChunkRequest::Missing(0)));
    let told = answer(&mut asks, &mut decoder, reference.bytes);
    assert_eq!(optimiser::chunk::ChunkName::of(&told), reference.name);
    // The peer repeats its requests. The number of requests must not exceed the number of chunks.
    let chunks =
        2 + got.references.len() + got.lists.len() + content.len() / frame::REFERENCE_BYTES;
    asks.say(encode(&ChunkRequest::Missing(0)).repeat(chunks.min(20_000)));
    assert_eq!(asks.reset_code(), reset::SESSION_ENDED);
}

#[test]
fn a_number_that_was_never_given_out_is_answered_by_a_reset() {
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let (session, data, _) = known(&world, &peer, &noise(1, 1_000_000));
    for number in [1 << 20, u64::MAX] {
        let mut asks = asking(&peer, session.number, data.transfer);
        asks.say(encode(&ChunkRequest::Missing(number)));
        assert_eq!(asks.reset_code(), reset::SESSION_ENDED);
    }
    // The peer acknowledges the highest possible number.
    let mut asks = asking(&peer, session.number, data.transfer);
    asks.say(encode(&ChunkRequest::Acknowledged(u64::MAX)));
    asks.say(encode(&ChunkRequest::Missing(0)));
    assert_eq!(asks.reset_code(), reset::SESSION_ENDED);
    let mut asks = asking(&peer, session.number, data.transfer);
    asks.say(b"\xffno question".to_vec());
    assert_eq!(asks.reset_code(), reset::PROTOCOL);
}

#[test]
fn a_peer_that_acknowledges_nothing_gets_few_references_then_bytes_and_others_go_on() {
    let world = PeerWorld::start();
    let (peer, other) = (world.peer("a"), world.peer("c"));
    let content = noise(1, 2 << 20);
    let (mut session, _data, _) = known(&world, &peer, &content);
    for _ in 0..2 {
        let (_data, got) = download(&mut session, &content, 24);
        session.skip_replies();
        let referred = 24 * content.len() - got.literal_bytes;
        assert!((2 << 20..=8 << 20).contains(&referred), "{referred}");
    }
    known(&world, &other, &content);
}
