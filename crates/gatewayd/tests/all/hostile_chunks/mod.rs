//! Tests with a peer that violates the protocol of chunks. The gateway must deliver no wrong bytes,
//! reveal no data of other peers, and stay within its memory limits.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs and the peer around the gateway"
)]

mod near;
mod peer;
mod reference_sender;
mod versions;

use std::{env, io::Read, process::Command, thread, time::Duration};

use optimiser::{chunk::ChunkName, frame::ChunkReference, zstd_block};
use peer::{
    MOMENT, Messages, PeerWorld, Session, body, compressed, end, lists, literal, memory, reference,
    references, stored, until,
};
use relay::wire::{ChunkRequest, reset};

use crate::common::{expect_reset, expect_silence, noise};

/// Returns the frames of an upload that consists of references to these contents.
fn referring(contents: &[&[u8]]) -> Vec<u8> {
    let named: Vec<_> = contents.iter().map(|it| reference(it)).collect();
    [references(&named), end(&contents.concat())].concat()
}

fn no_transfers(world: &PeerWorld) {
    world
        .far
        .wait_for("no transfer", |s| s.transfers.is_empty());
}

#[test]
fn a_name_that_nobody_has_is_waited_for_and_others_go_on() {
    let world = PeerWorld::start();
    let (peer, other) = (world.peer("a"), world.peer("c"));
    let mut session = Session::begin(&world, &peer, 7, "");
    let contents = [noise(1, 9_000), noise(2, 70), noise(3, 65_536)];
    let frames = referring(&[&contents[0], &contents[1], &contents[2]]);
    let data = session.upload(frames);
    let mut asks = peer.asks();
    assert_eq!(asks.asked(), [0, 1, 2].map(ChunkRequest::Missing));
    expect_silence(&data.server);
    let content = noise(4, 50_000);
    let whole = [literal(&content), end(&content)].concat();
    let mut others = Session::begin(&world, &other, 7, "");
    assert_eq!(others.whole_upload(whole), content);
    expect_silence(&data.server);
    // The session ends.
    let before = world.stores();
    drop(session.messages);
    let server = &data.server;
    drop(data.stream);
    expect_reset(server);
    drop(asks);
    no_transfers(&world);
    assert_eq!(world.stores(), before, "nothing is kept of it");
}

#[test]
fn chunks_of_an_upload_that_are_missing_are_asked_for_together() {
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let mut session = Session::begin(&world, &peer, 1, "");
    let mut data = session.transfer("STOR a");
    // After the server has accepted some bytes, the link limits the upload.
    let first = noise(1, 1_000_000);
    data.stream.say(stored(&first[..250_000]).repeat(4));
    let mut received = vec![0; first.len()];
    data.server.read_exact(&mut received).expect("it arrives");
    let named: Vec<_> = (0..100)
        .map(|seed| reference(&noise(seed, 16_384)))
        .collect();
    data.stream.say(references(&named));
    let asked: Vec<_> = (0..100).map(ChunkRequest::Missing).collect();
    assert_eq!(peer.asks().asked(), asked);
}

/// Lets a peer send a wrong reply (`answer`) to a request for a chunk. Asserts that the transfer
/// fails and that the chunk is not stored.
fn answered(answer: impl FnOnce(&mut Messages, &[u8])) {
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let mut session = Session::begin(&world, &peer, 1, "");
    let content = noise(1, 9_000);
    let data = session.upload(referring(&[&content]));
    let mut asks = peer.asks();
    assert_eq!(asks.next::<ChunkRequest>(), ChunkRequest::Missing(0));
    answer(&mut asks, &content);
    expect_reset(&data.server);
    session.server.send("426 broken");
    no_transfers(&world);
    // The chunk is not stored under either name.
    let data = session.transfer("STOR b");
    let Messages { mut send, .. } = data.stream;
    let frames = referring(&[&noise(2, 9_000)]);
    peer.wait(send.write(frames.into())).expect("room");
    assert_eq!(peer.asks().asked(), [ChunkRequest::Missing(0)]);
}

#[test]
fn a_peer_that_gives_up_breaks_the_transfer_while_a_chunk_is_waited_for() {
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let mut session = Session::begin(&world, &peer, 1, "");
    let mut data = session.transfer("STOR a");
    data.stream.say(references(&[reference(&noise(1, 9_000))]));
    let mut asks = peer.asks();
    assert_eq!(asks.next::<ChunkRequest>(), ChunkRequest::Missing(0));
    data.stream.send.reset(0);
    expect_reset(&data.server);
}

#[test]
fn another_chunk_in_its_place_breaks_the_transfer() {
    answered(|asks, _| asks.say(stored(&noise(2, 9_000))));
}

#[test]
fn a_shorter_chunk_breaks_the_transfer() {
    answered(|asks, content| {
        asks.say(stored(&content[..8_999]));
        // The following bytes complete the chunk.
        asks.say(stored(&[0; 10]));
    });
}

#[test]
fn a_longer_chunk_breaks_the_transfer() {
    answered(|asks, content| asks.say(stored(&[content, b"1"].concat())));
}

#[test]
fn a_chunk_of_no_bytes_breaks_the_transfer() {
    answered(|asks, _| asks.say(vec![1, 0, 0, 0]));
}

#[test]
fn an_answer_that_is_a_reference_breaks_the_transfer() {
    answered(|asks, content| asks.say(references(&[reference(content)])));
}

#[test]
fn an_end_in_place_of_an_answer_breaks_the_transfer() {
    answered(|asks, _| asks.say(end(b"")));
}

#[test]
fn no_more_answers_break_the_transfer() {
    answered(|asks, _| asks.send.finish());
}

#[test]
fn an_answer_that_is_no_frame_breaks_the_transfer() {
    answered(|asks, _| asks.say(b"\xffno frame".to_vec()));
}

#[test]
fn a_bomb_in_place_of_an_answer_breaks_the_transfer() {
    answered(|asks, _| {
        let bomb = zstd_block::compress(&[0; zstd_block::BLOCK_MAX], 3).expect("it shrinks");
        asks.say(compressed(&bomb, zstd_block::BLOCK_MAX));
    });
}

#[test]
fn answers_to_nothing_break_what_is_asked_for_later() {
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let mut session = Session::begin(&world, &peer, 1, "");
    let (one, other) = (noise(1, 9_000), noise(2, 9_000));
    let mut data = session.transfer("STOR a");
    data.stream.say(references(&[reference(&one)]));
    let mut asks = peer.asks();
    assert_eq!(asks.next::<ChunkRequest>(), ChunkRequest::Missing(0));
    asks.say(stored(&one));
    // This chunk may arrive before or after the next request.
    asks.say(stored(&noise(3, 9_000)));
    let mut received = vec![0; one.len()];
    data.server.read_exact(&mut received).expect("it arrives");
    assert_eq!(received, one);
    data.stream.say(references(&[reference(&other)]));
    expect_reset(&data.server);
}

#[test]
fn a_name_stands_for_its_bytes_whatever_was_sent() {
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let mut session = Session::begin(&world, &peer, 1, "");
    let (one, other) = (noise(1, 9_000), noise(2, 9_000));
    let frames = [
        literal(&one),
        literal(&other),
        end(&[&one[..], &other].concat()),
    ]
    .concat();
    assert_eq!(session.whole_upload(frames), [&one[..], &other].concat());
    // Both chunks are known now, by the names that the gateway has computed.
    let received = session.whole_upload(referring(&[&other, &one, &other]));
    assert_eq!(received, [&other[..], &one, &other].concat());
    let mut asks = peer.asks();
    assert_eq!(
        asks.asked(),
        [ChunkRequest::Acknowledged(3)],
        "nothing was missing"
    );
    // The name is the same, and the length differs.
    let wrong = ChunkReference {
        bytes: 8_999,
        name: ChunkName::of(&one),
    };
    let frames = [references(&[wrong]), end(&one[..8_999])].concat();
    let data = session.upload(frames);
    assert_eq!(peer.asks().asked(), [ChunkRequest::Missing(0)]);
    expect_reset(&data.server);
    session.server.send("426 broken");
    assert_eq!(
        session.whole_upload(referring(&[&one])),
        one,
        "the chunk is as it was"
    );
}

/// Starts a session. Stores a list of references as a chunk, and starts an upload that refers to
/// this list.
fn listed(
    list: &[u8],
    contents: &[u8],
) -> (PeerWorld, std::sync::Arc<peer::Peer>, Session, peer::Data) {
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let mut session = Session::begin(&world, &peer, 1, "");
    session.whole_upload([literal(list), end(list)].concat());
    let data = session.upload([lists(&[reference(list)]), end(contents)].concat());
    (world, peer, session, data)
}

#[test]
fn a_list_of_chunks_that_nobody_has_is_waited_for() {
    let contents: Vec<_> = (0..32).map(|seed| noise(seed, 5_000)).collect();
    let named: Vec<_> = contents.iter().map(|it| reference(it)).collect();
    let (_world, peer, _session, data) = listed(&body(&named), &contents.concat());
    let asked: Vec<_> = (1..=32).map(ChunkRequest::Missing).collect();
    let mut asks = peer.asks();
    assert_eq!(asks.asked(), asked);
    expect_silence(&data.server);
}

#[test]
fn bytes_that_are_no_list_name_nothing() {
    let (_world, peer, _session, data) = listed(&noise(1, 34 * 32), b"");
    let asked: Vec<_> = (1..=32).map(ChunkRequest::Missing).collect();
    let mut asks = peer.asks();
    assert_eq!(asks.asked(), asked);
    expect_silence(&data.server);
}

#[test]
fn a_list_of_more_than_lists_have_breaks_the_transfer() {
    let named = vec![reference(&noise(1, 65_536)); 34];
    let (_world, peer, _session, data) = listed(&body(&named), b"");
    expect_reset(&data.server);
    assert!(peer.is_left_alone(), "nothing is asked for");
}

#[test]
fn a_list_of_lists_is_a_list_of_chunks() {
    let inner = body(&vec![reference(b"nothing"); 32]);
    let outer = body(&vec![reference(&inner); 32]);
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let mut session = Session::begin(&world, &peer, 1, "");
    session.whole_upload([literal(&inner), end(&inner)].concat());
    session.whole_upload([literal(&outer), end(&outer)].concat());
    let content = inner.repeat(32);
    let frames = [lists(&[reference(&outer)]), end(&content)].concat();
    assert_eq!(session.whole_upload(frames), content);
}

#[test]
fn a_reference_that_cannot_be_a_list_breaks_the_transfer() {
    for bytes in [33, 35, 34 * 257] {
        let world = PeerWorld::start();
        let peer = world.peer("a");
        let mut session = Session::begin(&world, &peer, 1, "");
        let data = session.upload(lists(&[ChunkReference {
            bytes,
            name: ChunkName::of(b"list"),
        }]));
        expect_reset(&data.server);
        assert!(peer.is_left_alone(), "nothing is asked for");
    }
}

/// Runs the test with this name in a separate process, so that the test can measure the memory of
/// that process.
fn in_own_process(name: &str, test: impl FnOnce()) {
    if env::var_os(IS_OWN).is_some() {
        return test();
    }
    let output = Command::new(env::current_exe().expect("a test program"))
        .args([&format!("hostile_chunks::{name}"), "--exact", "--nocapture"])
        .env(IS_OWN, "1")
        .output()
        .expect("the test program");
    let [printed, errors] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    let is_passed = output.status.success() && printed.contains(" 1 passed");
    assert!(is_passed, "{printed}{errors}");
}

/// Sends the frames `wire`, which represent many copies of `content`, to a server that does not
/// read at first. Asserts that memory stays limited, and that the server finally reads the right
/// bytes.
fn amplified(session: &mut Session, content: &[u8], wire: Vec<u8>) {
    let before = memory();
    let peer = session.messages.peer.clone();
    let mut data = session.transfer("STOR a");
    let mut send = data.stream.send;
    let sent = peer.runtime.spawn(async move {
        for piece in wire.chunks(64 * 1024) {
            if send.write(piece.to_vec().into()).await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    });
    thread::sleep(Duration::from_secs(2));
    let grown = memory().saturating_sub(before);
    assert!(grown < AMPLIFIED_MAX_BYTES, "{grown} bytes more");
    let mut received = vec![0; content.len()];
    for turn in 0..100 {
        data.server.read_exact(&mut received).expect("it arrives");
        assert!(received == content, "other bytes in turn {turn}");
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < AMPLIFIED_MAX_BYTES, "{grown} bytes more");
    sent.abort();
    expect_reset(&data.server);
}

#[test]
fn short_names_of_much_take_no_more_memory() {
    in_own_process("short_names_of_much_take_no_more_memory", || {
        let world = PeerWorld::start();
        let peer = world.peer("a");
        let mut session = Session::begin(&world, &peer, 1, "");
        let chunk = noise(1, 65_536);
        let list = body(&[reference(&chunk); 33]);
        session.whole_upload([literal(&chunk), end(&chunk)].concat());
        session.whole_upload([literal(&list), end(&list)].concat());
        // A reference of 34 bytes represents 2 MiB.
        let names = vec![reference(&list); 1_000];
        amplified(&mut session, &chunk, lists(&names).repeat(20));
    });
}

#[test]
fn short_blocks_of_much_take_no_more_memory() {
    in_own_process("short_blocks_of_much_take_no_more_memory", || {
        let world = PeerWorld::start();
        let peer = world.peer("a");
        let mut session = Session::begin(&world, &peer, 1, "");
        let zeros = vec![0; zstd_block::BLOCK_MAX];
        let coded = zstd_block::compress(&zeros, 3).expect("it shrinks");
        assert!(coded.len() < 100, "{} bytes", coded.len());
        amplified(
            &mut session,
            &zeros,
            compressed(&coded, zeros.len()).repeat(100_000),
        );
    });
}

#[test]
fn small_blocks_take_no_more_memory() {
    in_own_process("small_blocks_take_no_more_memory", || {
        let world = PeerWorld::start();
        let peer = world.peer("a");
        let mut session = Session::begin(&world, &peer, 1, "");
        amplified(&mut session, b"x", stored(b"x").repeat(2_000_000));
    });
}

#[test]
fn lists_that_are_missing_are_asked_for_in_portions() {
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let mut session = Session::begin(&world, &peer, 1, "");
    let mut data = session.transfer("STOR a");
    let names: Vec<_> = (0..1_000_u64)
        .map(|seed| reference(&noise(seed, 34 * 256)))
        .collect();
    for _ in 0..3 {
        data.stream.say(lists(&names));
    }
    let mut asks = peer.asks();
    let mut asked = 0;
    // A busy machine sends requests with pauses.
    while asked < 400 {
        let more = asks.asked();
        let more = more
            .iter()
            .filter(|it| matches!(it, ChunkRequest::Missing(_)));
        let count = more.count();
        assert!(count > 0, "only {asked} of 34 * 256 bytes");
        asked += count;
    }
    // A requested chunk that arrives early must be stored.
    assert!(asked <= 600, "{asked} of 34 * 256 bytes");
}

#[test]
fn wrong_ends_break_the_transfer() {
    let content = noise(1, 9_000);
    let mut longer = content.clone();
    longer.push(0);
    let mut other = content.clone();
    other[0] ^= 1;
    let bytes = literal(&content);
    let right = end(&content);
    let cases = [
        ("count", [&bytes[..], &end(&longer)].concat()),
        ("hash", [&bytes[..], &end(&other)].concat()),
        ("none", bytes.clone()),
        ("half", [&bytes[..], &right[..10]].concat()),
        ("two", [&bytes[..], &right, &right].concat()),
        ("more", [&bytes[..], &right, &stored(b"more")].concat()),
        ("cuts", [&[3, 0, 1, 0, 99][..], &end(b"")].concat()),
    ];
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let mut session = Session::begin(&world, &peer, 1, "");
    for (what, frames) in cases {
        let data = session.upload(frames);
        let ended = thread::spawn(move || expect_reset(&data.server)).join();
        assert!(ended.is_ok(), "{what}");
        session.server.send("426 broken");
        no_transfers(&world);
    }
}

#[test]
fn blocks_that_stand_for_another_length_break_the_transfer() {
    let zeros = vec![0; zstd_block::BLOCK_MAX];
    let coded = zstd_block::compress(&zeros, 3).expect("it shrinks");
    let cases = [
        compressed(&coded, zeros.len() - 1),
        compressed(&coded, coded.len() + 1),
        compressed(&[coded.clone(), coded.clone()].concat(), zeros.len()),
        compressed(&coded[..coded.len() - 1], zeros.len()),
        compressed(&noise(1, 100), 200),
        // These lengths are out of bounds.
        vec![2, 4, 0, 1, 0, 0, 9],
        vec![2, 0, 0, 9, 0, 0, 9],
        vec![1, 4, 0, 1],
    ];
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let mut session = Session::begin(&world, &peer, 1, "");
    for frames in cases {
        let data = session.upload([frames, end(&zeros)].concat());
        expect_reset(&data.server);
        session.server.send("426 broken");
        no_transfers(&world);
    }
}

#[test]
fn what_others_have_moved_is_as_unknown_as_what_nobody_has() {
    let world = PeerWorld::start();
    let (peer, other) = (world.peer("a"), world.peer("c"));
    let contents: Vec<_> = (0..4).map(|seed| noise(seed, 9_000)).collect();
    let whole = |at: usize| [literal(&contents[at]), end(&contents[at])].concat();
    let mut others = Session::begin(&world, &other, 1, "");
    others.whole_upload(whole(0));
    let mut sport = Session::begin(&world, &peer, 1, "sport");
    sport.whole_upload(whole(1));
    let mut news = Session::begin(&world, &peer, 2, "news");
    news.whole_upload(whole(2));
    // Each tenant has its own chunks.
    assert_eq!(others.whole_upload(referring(&[&contents[0]])), contents[0]);
    assert_eq!(sport.whole_upload(referring(&[&contents[1]])), contents[1]);
    assert_eq!(peer.asks().asked(), [ChunkRequest::Acknowledged(1)]);
    assert_eq!(news.whole_upload(referring(&[&contents[2]])), contents[2]);
    assert_eq!(peer.asks().asked(), [ChunkRequest::Acknowledged(1)]);
    // No tenant has stored the last content.
    for of_others in [0, 1, 3] {
        let data = news.upload(referring(&[&contents[of_others]]));
        let mut asks = peer.asks();
        assert_eq!(asks.asked(), [ChunkRequest::Missing(0)]);
        expect_silence(&data.server);
        drop(asks);
        expect_reset(&data.server);
        news.server.send("426 broken");
    }
    assert_eq!(world.stores().len(), 3);
}

#[test]
fn a_tenant_that_is_not_configured_has_no_store() {
    let world = PeerWorld::start();
    let peer = world.peer("a");
    for (number, tenant) in ["invented", "../a", &"x".repeat(500)].iter().enumerate() {
        let mut session = Session::begin(&world, &peer, number as u64, tenant);
        assert_eq!(session.cutting, None);
        let content = noise(1, 9_000);
        let whole = [literal(&content), end(&content)].concat();
        assert_eq!(session.whole_upload(whole), content);
        let data = session.upload(referring(&[&content]));
        expect_reset(&data.server);
        session.server.send("426 broken");
    }
    assert!(world.stores().is_empty(), "{:?}", world.stores());
    assert!(peer.is_left_alone(), "nothing is asked for");
}

#[test]
fn a_peer_that_fills_its_store_fills_no_other_one() {
    const SIZE_MAX_BYTES: u64 = 64 << 20;
    let world = PeerWorld::start_with("size_max = \"64 MiB\"");
    let (peer, other) = (world.peer("a"), world.peer("c"));
    let content = noise(1, 60_000);
    let mut others = Session::begin(&world, &other, 1, "");
    others.whole_upload([literal(&content), end(&content)].concat());
    let size = |name: &str| {
        let stores = world.stores();
        let of_it = |(folder, _): &&(String, u64)| folder.starts_with(name);
        stores
            .iter()
            .filter(of_it)
            .map(|(_, bytes)| *bytes)
            .sum::<u64>()
    };
    until("the chunk on the disk", || size("c-") > 60_000);
    let before = size("c-");
    let mut session = Session::begin(&world, &peer, 1, "");
    let mut sent_bytes = 0;
    for turn in 0..40 {
        let content = noise(100 + turn, 4 << 20);
        let pieces: Vec<_> = content.chunks(65_536).flat_map(literal).collect();
        let received = session.whole_upload([pieces, end(&content)].concat());
        assert!(received == content, "other bytes");
        sent_bytes += content.len() as u64;
        let now = size("a-");
        assert!(
            now <= SIZE_MAX_BYTES + 4096,
            "{now} bytes after {sent_bytes}"
        );
    }
    assert!(sent_bytes > 2 * SIZE_MAX_BYTES);
    until("a full store", || size("a-") > SIZE_MAX_BYTES / 2);
    assert_eq!(size("c-"), before);
    assert_eq!(others.whole_upload(referring(&[&content])), content);
    assert_eq!(other.asks().asked(), [ChunkRequest::Acknowledged(1)]);
}

#[test]
fn questions_about_what_was_never_lent_are_reset() {
    let world = PeerWorld::start();
    let peer = world.peer("a");
    for (number, transfer) in [(1, 1), (u64::MAX, u32::MAX)] {
        let (send, recv) = peer.open(relay::wire::Service::Chunks {
            session: number,
            transfer: ftp::session::TransferId(transfer),
            of_near: false,
        });
        let mut asks = Messages::new(&peer, send, recv);
        asks.say(relay::wire::encode(&ChunkRequest::Acknowledged(u64::MAX)));
        asks.say(relay::wire::encode(&ChunkRequest::Missing(u64::MAX)));
        assert_eq!(asks.reset_code(), reset::SESSION_ENDED);
    }
    thread::sleep(MOMENT);
    assert!(world.far.snapshot().transfers.is_empty());
}

/// Maximum memory of a stream while the server does not read. It covers the link's queues at both
/// gateways, decoded bytes, and free memory of the allocator.
const AMPLIFIED_MAX_BYTES: usize = 96 << 20;

/// Environment variable that marks the separate process of a test.
const IS_OWN: &str = "LONGHAUL_TEST_IS_OWN_PROCESS";
