//! Tests of processes that replace one another at the same UDP socket. All their drivers run in one
//! test process.
#![allow(
    clippy::disallowed_methods,
    reason = "these tests use the real clock and real sockets"
)]

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use bytes::Bytes;
use link::{IncomingStream, Link, LinkConfig, PeerId, RecvStream, SendStream, StreamClass};
use tokio::time::timeout;

use crate::common::{config, socket};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A near gateway, and a far gateway whose processes replace one another.
struct Sites {
    near: Link,
    far_socket: UdpSocket,
    far_config: LinkConfig,
    far: Link,
}

impl Sites {
    fn new() -> Self {
        let far_socket = socket();
        let at_far = far_socket.local_addr().expect("it is bound").to_string();
        let far_config = config(2, 1, None);
        let started = Link::start(clone(&far_socket), far_config.clone());
        let far = started.expect("the link starts");
        let near = Link::start(socket(), config(1, 2, Some(at_far))).expect("the link starts");
        Self {
            near,
            far_socket,
            far_config,
            far,
        }
    }

    /// Upgrades the far gateway to a new process, and returns the old process.
    async fn upgrade(&mut self) -> Link {
        let handover = self.far.hand_over().await.expect("nothing prevents it");
        let socket = clone(&self.far_socket);
        let fresh = Link::start_behind(socket, self.far_config.clone(), Some(handover));
        let old = std::mem::replace(&mut self.far, fresh.expect("the link starts"));
        old.retire();
        old
    }

    /// Opens a stream from the near gateway. Returns the handles at the near gateway, and the
    /// incoming stream at `far`.
    async fn open_to(&self, far: &Link) -> ((SendStream, RecvStream), IncomingStream) {
        let opened = self.near.open(PeerId(0), StreamClass::Bulk).await;
        let mut ours = opened.expect("the peer is up");
        let sent = ours.0.write(Bytes::from_static(b"hello")).await;
        sent.expect("the stream is open");
        let came = timeout(TIMEOUT, far.accept()).await;
        (ours, came.expect("in time").expect("the link is up"))
    }

    /// Waits until the newest process accepts new streams. Returns the time that this takes.
    async fn moved(&self) -> Duration {
        let began = Instant::now();
        loop {
            let opened = self.near.open(PeerId(0), StreamClass::Bulk).await;
            let mut stream = opened.expect("the peer is up");
            let sent = stream.0.write(Bytes::from_static(b"whose?")).await;
            sent.expect("the stream is open");
            if timeout(Duration::from_millis(100), self.far.accept())
                .await
                .is_ok()
            {
                return began.elapsed();
            }
            assert!(
                began.elapsed() < TIMEOUT,
                "new streams go to the old process"
            );
        }
    }
}

fn clone(socket: &UdpSocket) -> UdpSocket {
    socket.try_clone().expect("a socket can be cloned")
}

/// Writes `bytes` bytes to a stream, and reads them at the same time from the receiving handle.
async fn transfer(send: &mut SendStream, recv: &mut RecvStream, bytes: usize) {
    let write = async {
        for _ in 0..bytes / 50_000 {
            let sent = send.write(Bytes::from(vec![7; 50_000])).await;
            sent.expect("the stream is open");
        }
    };
    let read = async {
        let mut left = bytes;
        while left > 0 {
            let data = recv.read().await.expect("the stream is intact");
            let data = data.expect("it has not ended");
            assert!(data.iter().all(|byte| *byte == 7));
            left -= data.len();
        }
    };
    let both = async { tokio::join!(write, read) };
    timeout(TIMEOUT, both).await.expect("in time");
}

#[tokio::test]
async fn streams_stay_with_their_process_through_upgrade_after_upgrade() {
    let mut sites = Sites::new();
    let mut held = Vec::new();
    let mut processes = Vec::new();
    for _ in 0..5 {
        let (ours, mut theirs) = sites.open_to(&sites.far).await;
        assert_eq!(
            theirs.recv.read().await,
            Ok(Some(Bytes::from_static(b"hello")))
        );
        held.push((ours, theirs));
        processes.push(sites.upgrade().await);
        sites.moved().await;
        for ((send, recv), theirs) in &mut held {
            transfer(send, &mut theirs.recv, 1_000_000).await;
            transfer(&mut theirs.send, recv, 1_000_000).await;
        }
    }
    // A stream of the second process selects that process.
    let beside = held[1].0.0.key();
    let opened = sites
        .near
        .open_beside(PeerId(0), beside, StreamClass::Bulk)
        .await;
    let mut opened = opened.expect("the process is there");
    let sent = opened.0.write(Bytes::from_static(b"beside")).await;
    sent.expect("the stream is open");
    let came = timeout(TIMEOUT, processes[1].accept()).await;
    came.expect("in time").expect("the link is up");
    // Each process ends on its own, and the other processes continue.
    for _ in 0..5 {
        held.remove(0);
        processes.remove(0).shutdown(Duration::ZERO).await;
        for ((send, recv), theirs) in &mut held {
            transfer(send, &mut theirs.recv, 100_000).await;
            transfer(&mut theirs.send, recv, 100_000).await;
        }
    }
}

#[tokio::test]
async fn a_process_whose_successor_dies_goes_on_reading_the_socket() {
    let mut sites = Sites::new();
    let ((mut send, _recv), mut theirs) = sites.open_to(&sites.far).await;
    assert!(theirs.recv.read().await.is_ok());
    let old = sites.upgrade().await;
    drop(std::mem::replace(&mut sites.far, old));
    transfer(&mut send, &mut theirs.recv, 1_000_000).await;
    sites.moved().await;
}

#[tokio::test]
async fn a_link_is_handed_over_once() {
    let mut sites = Sites::new();
    let old = sites.upgrade().await;
    assert!(old.hand_over().await.is_err());
    old.shutdown(Duration::ZERO).await;
    assert!(old.hand_over().await.is_err(), "it has ended");
}
