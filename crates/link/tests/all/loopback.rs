//! Tests with two drivers and real sockets on the loopback interface.
#![allow(
    clippy::disallowed_methods,
    reason = "these tests use the real clock and real sockets"
)]

use std::{fs, net::UdpSocket, path::Path, time::Duration};

use bytes::Bytes;
use link::{Link, PeerConfig, PeerId, PeerState, StreamClass, StreamError, StreamOpenError};
use tokio::time::timeout;

use crate::common::{config, socket};

const TIMEOUT: Duration = Duration::from_secs(20);

fn pair() -> (Link, Link) {
    let socket_b = socket();
    let endpoint = socket_b
        .local_addr()
        .expect("a bound socket has an address")
        .to_string();
    let b = Link::start(socket_b, config(2, 1, None)).expect("the link starts");
    let a = Link::start(socket(), config(1, 2, Some(endpoint))).expect("the link starts");
    (a, b)
}

#[tokio::test]
async fn the_last_bytes_go_although_the_queue_is_full() {
    let (a, b) = pair();
    let (mut send, _recv) = a
        .open(PeerId(0), StreamClass::Bulk)
        .await
        .expect("it is up");
    let block = Bytes::from(vec![7; 100_000]);
    let mut written = 0;
    // The application does not read, so a write must wait at some time.
    while let Ok(done) = timeout(Duration::from_millis(300), send.write(block.clone())).await {
        done.expect("the stream is open");
        written += block.len();
    }
    send.finish_with(Bytes::from_static(b"last"));
    let mut incoming = b.accept().await.expect("a stream comes");
    let mut read = Vec::new();
    while let Some(data) = incoming.recv.read().await.expect("it is intact") {
        read.extend_from_slice(&data);
    }
    assert_eq!(read.len(), written + 4);
    assert!(read.ends_with(b"last"));
}

#[tokio::test]
async fn bytes_written_at_one_end_are_read_at_the_other_and_answered() {
    let (a, b) = pair();
    let echo = tokio::spawn(async move {
        let mut incoming = b.accept().await.expect("a stream comes");
        let mut count = 0;
        while let Some(data) = incoming.recv.read().await.expect("the stream is intact") {
            count += data.len();
            incoming
                .send
                .write(data)
                .await
                .expect("the other side reads");
        }
        incoming.send.finish();
        incoming
            .send
            .closed()
            .await
            .expect("the other side reads to the end");
        (count, b)
    });
    let (mut send, mut recv) = a
        .open(PeerId(0), StreamClass::Bulk)
        .await
        .expect("the peer is up");
    let data = Bytes::from(
        (0..1_000_000u32)
            .flat_map(u32::to_le_bytes)
            .collect::<Vec<u8>>(),
    );
    let expected = data.clone();
    let writer = tokio::spawn(async move {
        for start in (0..data.len()).step_by(100_000) {
            let end = (start + 100_000).min(data.len());
            send.write(data.slice(start..end))
                .await
                .expect("the other side reads");
        }
        send.finish();
        send.closed().await
    });
    let mut back = Vec::new();
    while let Some(data) = timeout(TIMEOUT, recv.read())
        .await
        .expect("in time")
        .expect("intact")
    {
        back.extend_from_slice(&data);
    }
    assert!(
        back == expected,
        "{} of {} bytes",
        back.len(),
        expected.len()
    );
    writer
        .await
        .expect("no panic")
        .expect("everything was read");
    let (count, _b) = echo.await.expect("no panic");
    assert_eq!(count, expected.len());
    // The snapshot lags by a tenth of a second.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(matches!(a.snapshot().peers[0].state, PeerState::Up { .. }));
}

/// A program may exit as soon as the shutdown of its link has completed.
///
/// Regression test: the exit lost the state for the next start, so each run treated the path as
/// unknown.
#[tokio::test]
async fn what_is_remembered_is_on_the_disk_when_a_link_has_shut_down() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for round in 0..20 {
        let path = folder.join(format!("memory-{}-{round}", std::process::id()));
        let mut config = config(1, 2, None);
        config.memory_file = Some(path.clone());
        let link = Link::start(socket(), config).expect("a link");
        assert_eq!(link.shutdown(Duration::ZERO).await, 0);
        let text = fs::read_to_string(&path).expect("it is there");
        assert!(text.ends_with("end\n"), "{text}");
        fs::remove_file(&path).expect("it is ours");
    }
}

/// The wake-up of a reader is delayed while traffic is dense, but the last bytes must not wait
/// forever.
#[tokio::test]
async fn little_at_the_end_of_dense_traffic_is_read_though_nothing_follows() {
    const DENSE: usize = 1_000_000;
    const LITTLE: usize = 1000;
    let (a, b) = pair();
    let (mut send, _recv) = a
        .open(PeerId(0), StreamClass::Bulk)
        .await
        .expect("the peer is up");
    let (tell, mut counts) = tokio::sync::watch::channel(0);
    let reader = tokio::spawn(async move {
        let mut incoming = b.accept().await.expect("a stream comes");
        while let Ok(Some(data)) = incoming.recv.read().await {
            tell.send_modify(|count| *count += data.len());
        }
    });
    let mut written = 0;
    for _ in 0..20 {
        for bytes in [DENSE, LITTLE] {
            send.write(Bytes::from(vec![1; bytes]))
                .await
                .expect("the other side reads");
            written += bytes;
        }
        let read = timeout(TIMEOUT, counts.wait_for(|count| *count == written)).await;
        read.expect("in time").expect("the reader goes on");
    }
    reader.abort();
}

#[tokio::test]
async fn a_reset_and_a_stop_reach_the_other_side_with_their_code() {
    let (a, b) = pair();
    let (mut send, mut recv) = a
        .open(PeerId(0), StreamClass::Control)
        .await
        .expect("the peer is up");
    send.write(Bytes::from_static(b"hello"))
        .await
        .expect("the stream is open");
    let mut incoming = timeout(TIMEOUT, b.accept())
        .await
        .expect("in time")
        .expect("a stream");
    assert_eq!(incoming.class, StreamClass::Control);
    assert_eq!(
        incoming.recv.read().await,
        Ok(Some(Bytes::from_static(b"hello")))
    );
    send.reset(7);
    let read = timeout(TIMEOUT, incoming.recv.read())
        .await
        .expect("in time");
    assert_eq!(read, Err(StreamError::Reset { code: 7 }));
    recv.stop(9);
    let closed = timeout(TIMEOUT, incoming.send.closed())
        .await
        .expect("in time");
    assert_eq!(closed, Err(StreamError::Stopped { code: 9 }));
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_the_writer_back() {
    let (a, b) = pair();
    let (mut send, _recv) = a
        .open(PeerId(0), StreamClass::Bulk)
        .await
        .expect("the peer is up");
    let chunk = Bytes::from(vec![1; 1 << 20]);
    let mut written = 0;
    while timeout(Duration::from_secs(1), send.write(chunk.clone()))
        .await
        .is_ok()
    {
        written += chunk.len();
        assert!(
            written < 64 << 20,
            "nothing is read, so little may be written"
        );
    }
    let mut incoming = timeout(TIMEOUT, b.accept())
        .await
        .expect("in time")
        .expect("a stream");
    tokio::spawn(async move { while let Ok(Some(_)) = incoming.recv.read().await {} });
    timeout(TIMEOUT, send.write(chunk))
        .await
        .expect("it goes on")
        .expect("the stream is open");
}

#[tokio::test]
async fn a_peer_that_never_answered_is_reported_down() {
    let dead = socket();
    let endpoint = dead
        .local_addr()
        .expect("a bound socket has an address")
        .to_string();
    let a = Link::start(socket(), config(1, 2, Some(endpoint))).expect("the link starts");
    let error = a
        .open(PeerId(0), StreamClass::Bulk)
        .await
        .expect_err("nobody is there");
    assert_eq!(
        error,
        StreamOpenError::PeerDown {
            name: "site-2".into(),
            last_answer: None
        }
    );
    let mut bytes = [0; 2000];
    dead.set_read_timeout(Some(TIMEOUT))
        .expect("a time-out can be set");
    let len = dead.recv(&mut bytes).expect("a first flight was sent");
    assert!(len > 200);
}

#[tokio::test]
async fn peers_come_and_go_and_what_was_under_way_to_one_ends_with_it() {
    let socket_c = socket();
    let at_c = socket_c.local_addr().expect("a bound socket").to_string();
    let (a, b) = pair();
    let c = Link::start(socket_c, config(3, 1, None)).expect("the link starts");
    let (mut to_b, _) = a.open(PeerId(0), StreamClass::Bulk).await.expect("b is up");
    to_b.write(Bytes::from_static(b"before"))
        .await
        .expect("open");
    let mut at_b = b.accept().await.expect("a stream comes");
    assert!(
        a.open(PeerId(1), StreamClass::Bulk).await.is_err(),
        "unknown"
    );

    // b is removed, c is added.
    let of_b = config(1, 2, None).peers.remove(0);
    let gone = PeerConfig {
        public_keys: Vec::new(),
        ..of_b.clone()
    };
    let of_c = config(1, 3, Some(at_c)).peers.remove(0);
    a.set_peers(vec![gone, of_c.clone()], None);
    let opened = a.open(PeerId(1), StreamClass::Bulk).await;
    let (mut to_c, _) = opened.expect("c is up");
    to_c.write(Bytes::from_static(b"c")).await.expect("open");
    let from_a = c.accept().await.expect("a stream comes");
    assert_eq!(from_a.peer, PeerId(0));

    // Streams to b end at once.
    let told = async {
        while !a.snapshot().peers[0].is_removed {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, told).await.expect("the snapshot tells");
    let ended = timeout(TIMEOUT, to_b.closed()).await;
    assert!(ended.expect("in time").is_err(), "nothing more is sent");
    let at_b_ends = async { while let Ok(Some(_)) = at_b.recv.read().await {} };
    timeout(TIMEOUT, at_b_ends).await.expect("b hears of it");
    drop((to_b, at_b));
    let ends = async {
        // A connection that is silent for a moment, since the machine is busy, has not ended.
        while matches!(
            b.snapshot().peers[0].state,
            PeerState::Up { .. } | PeerState::Silent { .. }
        ) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, ends).await.expect("the connection ends");
    let refused = b.open(PeerId(0), StreamClass::Bulk).await;
    assert!(refused.is_err(), "it is not admitted again");

    // After its return to the configuration, b may connect again.
    let of_b = PeerConfig {
        endpoint: Some(b.local_addr().to_string()),
        ..of_b
    };
    a.set_peers(vec![of_b, of_c], None);
    a.open(PeerId(0), StreamClass::Bulk)
        .await
        .expect("b is up again");
}

#[tokio::test]
async fn a_closed_port_differs_from_one_where_packets_vanish() {
    let dead = socket();
    let endpoint = dead
        .local_addr()
        .expect("a bound socket has an address")
        .to_string();
    drop(dead);
    let a = Link::start(socket(), config(1, 2, Some(endpoint))).expect("the link starts");
    let refused = async {
        while a.snapshot().peers[0].state != PeerState::Refused {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, refused)
        .await
        .expect("the kernel says that the port is closed");
}

/// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
mod real_time {
    use super::*;

    #[tokio::test]
    async fn a_peer_that_shuts_down_is_noticed_and_found_again() {
        let (a, b) = pair();
        let address = b.local_addr();
        let (mut send, mut recv) = a
            .open(PeerId(0), StreamClass::Bulk)
            .await
            .expect("the peer is up");
        send.write(Bytes::from_static(b"half a file"))
            .await
            .expect("the stream is open");
        timeout(TIMEOUT, b.accept())
            .await
            .expect("in time")
            .expect("a stream");
        b.shutdown(Duration::ZERO).await;
        let read = timeout(Duration::from_secs(2), recv.read())
            .await
            .expect("within 2 s");
        assert!(read.is_err(), "{read:?}");
        let bound = async {
            loop {
                match UdpSocket::bind(address) {
                    Ok(socket) => break socket,
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        let socket = timeout(TIMEOUT, bound).await.expect("the port is free");
        let _b = Link::start(socket, config(2, 1, None)).expect("the link starts");
        timeout(TIMEOUT, a.open(PeerId(0), StreamClass::Bulk))
            .await
            .expect("in time")
            .expect("up again");
    }
}
