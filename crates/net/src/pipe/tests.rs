//! Tests of the semantics of pipes, one test for each rule.

use std::{io::ErrorKind, time::Duration};

use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::*;

async fn is_pending<T>(future: impl Future<Output = T>) -> bool {
    timeout(Duration::from_millis(1), future).await.is_err()
}

#[tokio::test]
async fn bytes_cross_in_both_directions() {
    let (mut one, mut other) = Pipe::pair();
    one.write_all(b"USER joe\r\n").await.expect("open");
    other.write_all(b"331 who\r\n").await.expect("open");
    let mut read = [0; 32];
    assert_eq!(other.read(&mut read).await.expect("open"), 10);
    assert_eq!(&read[..10], b"USER joe\r\n");
    assert_eq!(one.read(&mut read).await.expect("open"), 9);
    assert_eq!(&read[..9], b"331 who\r\n");
}

#[tokio::test]
async fn a_vectored_write_keeps_the_order_of_its_parts() {
    let (mut one, mut other) = Pipe::pair();
    let parts = [
        IoSlice::new(b"one "),
        IoSlice::new(b""),
        IoSlice::new(b"two"),
    ];
    assert_eq!(one.write_vectored(&parts).await.expect("open"), 7);
    drop(one);
    let mut read = Vec::new();
    other.read_to_end(&mut read).await.expect("orderly");
    assert_eq!(read, b"one two");
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_holds_the_writer_until_the_reader_reads() {
    let (mut one, mut other) = Pipe::pair();
    let bytes = vec![7; CAPACITY_BYTES + 1];
    assert_eq!(one.write(&bytes).await.expect("open"), CAPACITY_BYTES);
    assert!(is_pending(one.write(b"more")).await);
    assert!(one.outbound.capacity_bytes() <= CAPACITY_BYTES);
    let writing = tokio::spawn(async move { one.write(b"more").await });
    tokio::task::yield_now().await;
    assert!(!writing.is_finished());
    assert_eq!(other.read(&mut [0; 2]).await.expect("open"), 2);
    assert_eq!(writing.await.expect("no panic").expect("open"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_end_follows_unread_bytes_and_leaves_the_other_direction_open() {
    let (mut one, mut other) = Pipe::pair();
    one.write_all(b"rest").await.expect("open");
    assert!(is_pending(other.wait_for_end()).await);
    one.shutdown().await.expect("open");
    assert_eq!(
        one.write(b"x").await.expect_err("ended").kind(),
        ErrorKind::BrokenPipe
    );
    let mut read = Vec::new();
    other.read_to_end(&mut read).await.expect("orderly");
    assert_eq!(read, b"rest");
    other.write_all(b"reply").await.expect("open");
    assert_eq!(one.read(&mut [0; 9]).await.expect("open"), 5);
}

#[tokio::test(start_paused = true)]
async fn an_end_wakes_a_waiting_reader() {
    let (one, mut other) = Pipe::pair();
    let reading = tokio::spawn(async move { other.read(&mut [0]).await });
    tokio::task::yield_now().await;
    drop(one);
    assert_eq!(reading.await.expect("no panic").expect("orderly"), 0);
}

#[tokio::test(start_paused = true)]
async fn ended_sees_an_end_behind_unread_bytes() {
    let (mut one, other) = Pipe::pair();
    one.write_all(b"unread").await.expect("open");
    assert!(is_pending(other.wait_for_end()).await);
    one.shutdown().await.expect("open");
    other.wait_for_end().await.expect("orderly");
    assert!(other.has_unread());
}

#[tokio::test(start_paused = true)]
async fn an_abort_loses_unread_bytes_and_fails_reads_and_writes() {
    let (mut one, mut other) = Pipe::pair();
    one.write_all(b"part of a file").await.expect("open");
    assert!(is_pending(other.wait_for_error()).await);
    one.mark_abort();
    drop(one);
    assert!(!other.has_unread());
    let errors = [
        other.read(&mut [0; 9]).await.expect_err("reset"),
        other.write(b"x").await.expect_err("reset"),
        other.shutdown().await.expect_err("reset"),
        other.wait_for_end().await.expect_err("reset"),
        other.peek(&mut [0]).await.expect_err("reset"),
        other.wait_for_error().await,
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_wakes_a_waiting_reader_and_a_waiting_writer() {
    let (one, other) = Pipe::pair();
    let (mut reader, mut writer) = tokio::io::split(other);
    let reading = tokio::spawn(async move { reader.read(&mut [0]).await });
    let writing = tokio::spawn(async move { writer.write_all(&[0; CAPACITY_BYTES + 1]).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!reading.is_finished() && !writing.is_finished());
    one.mark_abort();
    drop(one);
    let read = reading.await.expect("no panic").expect_err("reset");
    let written = writing.await.expect("no panic").expect_err("reset");
    assert_eq!(read.kind(), ErrorKind::ConnectionReset);
    assert_eq!(written.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_drop_is_an_orderly_end_and_breaks_writes() {
    let (mut one, mut other) = Pipe::pair();
    one.write_all(b"all").await.expect("open");
    one.mark_abort();
    one.mark_orderly();
    drop(one);
    assert_eq!(
        other.write(b"x").await.expect_err("closed").kind(),
        ErrorKind::BrokenPipe
    );
    assert!(is_pending(other.wait_for_error()).await);
    let mut read = Vec::new();
    other.read_to_end(&mut read).await.expect("orderly");
    assert_eq!(read, b"all");
}

#[tokio::test(start_paused = true)]
async fn bytes_and_end_are_acknowledged_once_they_are_read() {
    let (mut one, mut other) = Pipe::pair();
    one.wait_for_acknowledgement()
        .await
        .expect("nothing is open");
    one.write_all(b"all").await.expect("open");
    assert!(is_pending(one.wait_for_acknowledgement()).await);
    one.shutdown().await.expect("open");
    assert_eq!(one.unacknowledged_bytes(), 3);
    assert_eq!(other.read(&mut [0; 9]).await.expect("open"), 3);
    assert!(
        is_pending(one.wait_for_acknowledgement()).await,
        "the end is unread"
    );
    assert_eq!(other.read(&mut [0; 9]).await.expect("open"), 0);
    one.wait_for_acknowledgement().await.expect("all is read");
}

#[tokio::test(start_paused = true)]
async fn acknowledgement_fails_where_unread_bytes_are_lost() {
    for (is_abort, kind) in [
        (true, ErrorKind::ConnectionReset),
        (false, ErrorKind::BrokenPipe),
    ] {
        let (mut one, other) = Pipe::pair();
        one.write_all(b"all").await.expect("open");
        one.shutdown().await.expect("open");
        if is_abort {
            other.mark_abort();
        }
        drop(other);
        let error = one
            .wait_for_acknowledgement()
            .await
            .expect_err("three bytes are lost");
        assert_eq!(error.kind(), kind);
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_after_all_bytes_acknowledges_the_end() {
    for is_abort in [true, false] {
        let (mut one, mut other) = Pipe::pair();
        one.write_all(b"all").await.expect("open");
        one.shutdown().await.expect("open");
        assert_eq!(other.read(&mut [0; 9]).await.expect("open"), 3);
        if is_abort {
            other.mark_abort();
        }
        drop(other);
        one.wait_for_acknowledgement()
            .await
            .expect("all bytes are read");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peek_waits_and_leaves_the_bytes() {
    let (mut one, mut other) = Pipe::pair();
    assert!(is_pending(other.peek(&mut [0])).await);
    one.write_all(b"hello").await.expect("open");
    let mut seen = [0; 9];
    assert_eq!(other.peek(&mut seen).await.expect("open"), 5);
    assert_eq!(other.read(&mut seen).await.expect("open"), 5);
    assert_eq!(&seen[..5], b"hello");
    drop(one);
    assert_eq!(other.peek(&mut seen).await.expect("orderly"), 0);
}

#[tokio::test]
async fn both_ends_have_the_addresses_of_their_network() {
    let network = PipeNetwork::new();
    let listener = network.listen().expect("a port");
    let client = network.connect(listener.local_addr()).expect("a listener");
    let served = listener.accept().await;
    assert_eq!(served.local_addr(), listener.local_addr());
    assert_eq!(served.local_addr(), client.peer_addr());
    assert_eq!(served.peer_addr(), client.local_addr());
    assert_ne!(client.local_addr(), client.peer_addr());
    assert_eq!(served.network(), Some(&network));
    assert_eq!(client.network(), Some(&network));
}

#[test]
fn a_connection_to_no_listener_is_refused() {
    let network = PipeNetwork::new();
    let listener = network.listen().expect("a port");
    let at = listener.local_addr();
    let kind = |network: &PipeNetwork, at: SocketAddr| {
        network.connect(at).expect_err("no listener").kind()
    };
    assert_eq!(kind(&PipeNetwork::new(), at), ErrorKind::ConnectionRefused);
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], at.port()));
    assert_eq!(kind(&network, elsewhere), ErrorKind::ConnectionRefused);
    drop(listener);
    assert_eq!(kind(&network, at), ErrorKind::ConnectionRefused);
}

#[test]
fn the_backlog_of_a_listener_is_bounded() {
    let network = PipeNetwork::new();
    let listener = network.listen().expect("a port");
    let mut open = Vec::new();
    let refused = loop {
        assert!(open.len() < 10_000);
        match network.connect(listener.local_addr()) {
            Ok(pipe) => open.push(pipe),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(!open.is_empty());
}

#[tokio::test]
async fn a_dropped_listener_resets_what_it_has_not_accepted() {
    let network = PipeNetwork::new();
    let listener = network.listen().expect("a port");
    assert!(!listener.has_waiting());
    let mut client = network.connect(listener.local_addr()).expect("a listener");
    assert!(listener.has_waiting());
    drop(listener);
    let error = client.read(&mut [0]).await.expect_err("reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn ports_are_used_again_once_all_were_given() {
    let network = PipeNetwork::new();
    let kept = network.listen().expect("a port");
    for _ in 0..2 * usize::from(u16::MAX) {
        let listener = network.listen().expect("a port");
        assert_ne!(listener.local_addr(), kept.local_addr());
        assert!(listener.local_addr().port() >= 1024);
    }
    assert_eq!(network.listening(), 1);
}

#[tokio::test]
async fn accept_wakes_for_each_connection() {
    let network = PipeNetwork::new();
    let listener = Arc::new(network.listen().expect("a port"));
    let accepting: Vec<_> = (0..3)
        .map(|_| {
            let listener = listener.clone();
            tokio::spawn(async move { listener.accept().await })
        })
        .collect();
    tokio::task::yield_now().await;
    let open: Vec<_> = (0..3)
        .map(|_| network.connect(listener.local_addr()).expect("a listener"))
        .collect();
    for accepted in accepting {
        let accepted = timeout(Duration::from_secs(10), accepted).await;
        accepted.expect("woken").expect("no panic");
    }
    drop(open);
}

/// One action at an end of a pipe.
#[derive(Debug, Clone)]
enum Step {
    Write(usize),
    Read(usize),
    Pause,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..100_000_usize).prop_map(Step::Write),
        (1..100_000_usize).prop_map(Step::Read),
        Just(Step::Pause),
    ];
    proptest::collection::vec(step, 0..40)
}

/// Returns the byte that each end writes at position `offset` of its data.
fn byte(offset: usize) -> u8 {
    (offset.wrapping_mul(2_654_435_761) >> 16) as u8
}

/// Performs the steps, ends the outbound direction, and reads until the end of the inbound data.
/// Returns the number of bytes written, and the bytes read.
async fn play(pipe: Pipe, steps: Vec<Step>) -> (usize, Vec<u8>) {
    let (mut reader, mut writer) = tokio::io::split(pipe);
    let (reads, writes): (Vec<_>, Vec<_>) = steps
        .into_iter()
        .partition(|step| matches!(step, Step::Read(_)));
    let writing = async move {
        let mut written = 0;
        for step in writes {
            match step {
                Step::Write(count) => {
                    let bytes: Vec<_> = (written..written + count).map(byte).collect();
                    let (first, second) = bytes.split_at(count / 3);
                    let parts = [IoSlice::new(first), IoSlice::new(second)];
                    let taken = writer.write_vectored(&parts).await.expect("open");
                    writer.write_all(&bytes[taken..]).await.expect("open");
                    written += count;
                }
                _ => tokio::task::yield_now().await,
            }
        }
        writer.shutdown().await.expect("open");
        (written, writer)
    };
    let reading = async move {
        let mut read = Vec::new();
        for step in reads {
            if let Step::Read(count) = step {
                let mut bytes = vec![0; count];
                let count = reader.read(&mut bytes).await.expect("orderly");
                read.extend_from_slice(&bytes[..count]);
            }
            tokio::task::yield_now().await;
        }
        reader.read_to_end(&mut read).await.expect("orderly");
        (read, reader)
    };
    let ((written, _writer), (read, _reader)) = tokio::join!(writing, reading);
    (written, read)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_arrive_whole_and_in_order(one in steps(), other in steps(), threads in any::<bool>()) {
        let mut runtime = match threads {
            true => tokio::runtime::Builder::new_multi_thread(),
            false => tokio::runtime::Builder::new_current_thread(),
        };
        let runtime = runtime.worker_threads(2).enable_time().build().expect("a runtime");
        let played = runtime.block_on(async {
            let (here, there) = Pipe::pair();
            let (one, other) = (tokio::spawn(play(here, one)), tokio::spawn(play(there, other)));
            let both = async { (one.await.expect("no panic"), other.await.expect("no panic")) };
            timeout(Duration::from_secs(60), both).await.expect("no wake-up is lost")
        });
        let ((written_one, read_one), (written_other, read_other)) = played;
        prop_assert_eq!(read_one.len(), written_other);
        prop_assert_eq!(read_other.len(), written_one);
        for read in [read_one, read_other] {
            prop_assert!(read.iter().enumerate().all(|(at, it)| *it == byte(at)));
        }
    }
}
