//! Tests of transfers that end in order. Each transfer passes through two gateways. All bytes must
//! arrive in time, even if the client or the server has already disconnected.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::Write,
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

use crate::common::{Control, World, accept, connect, expect_silence, pattern, read_all};

#[test]
fn a_download_arrives_whole_and_before_its_226() {
    let world = World::start();
    let (mut client, mut server, client_data, mut server_data) = world.prepared();
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    let bytes = pattern(3_000_000);
    let copy = bytes.clone();
    let sender = thread::spawn(move || {
        server_data.write_all(&copy).expect("the gateway reads");
    });
    // The server reports success before the client has read a byte.
    server.send("226 done");
    client.expect("150 go");
    client.expect_silence();
    assert!(read_all(&client_data) == bytes, "the file arrived changed");
    client.expect("226 done");
    sender.join().expect("sent");
}

#[test]
fn an_upload_arrives_whole() {
    let world = World::start();
    let (mut client, mut server, mut client_data, server_data) = world.uploading();
    let bytes = pattern(3_000_000);
    let copy = bytes.clone();
    let sender = thread::spawn(move || {
        client_data.write_all(&copy).expect("the gateway reads");
    });
    assert!(read_all(&server_data) == bytes, "the file arrived changed");
    drop(server_data);
    server.send("226 done");
    client.expect("226 done");
    sender.join().expect("sent");
    world
        .near
        .wait_for("a completed transfer", |s| s.transfers_completed_total == 1);
}

#[test]
fn empty_files_and_epsv_work_both_ways() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    for verb in ["RETR", "STOR"] {
        client.send("EPSV");
        let listener = server.open_data_port();
        let reply = client.expect_code("229 ");
        let port = reply
            .split('|')
            .nth(3)
            .expect("a port")
            .parse()
            .expect("a number");
        let server_data = accept(&listener);
        let client_data = connect(port);
        client.send(&format!("{verb} empty"));
        server.expect(&format!("{verb} empty"));
        server.send("150 go");
        client.expect("150 go");
        let (ends, reads) = if verb == "RETR" {
            (server_data, client_data)
        } else {
            (client_data, server_data)
        };
        drop(ends);
        assert!(read_all(&reads).is_empty());
        drop(reads);
        server.send("226 done");
        client.expect("226 done");
    }
}

#[test]
fn no_byte_reaches_the_client_before_the_150() {
    let world = World::start();
    let (mut client, mut server, client_data, mut server_data) = world.prepared();
    client.send("LIST");
    server.expect("LIST");
    server_data
        .write_all(b"listing")
        .expect("the gateway reads");
    drop(server_data);
    expect_silence(&client_data);
    server.send("150 go");
    client.expect("150 go");
    assert_eq!(read_all(&client_data), b"listing");
    server.send("226 done");
    client.expect("226 done");
}

#[test]
fn an_upload_that_was_sent_whole_is_delivered_though_the_client_left() {
    let world = World::start();
    let (client, mut server, mut client_data, server_data) = world.uploading();
    client_data
        .write_all(b"everything")
        .expect("the gateway reads");
    drop(client_data);
    assert_eq!(read_all(&server_data), b"everything");
    drop(client);
    drop(server_data);
    server.send("226 done");
    server.expect_end();
}

#[test]
fn an_upload_under_way_survives_the_end_of_its_session() {
    let world = World::start();
    let (client, mut server, mut client_data, server_data) = world.uploading();
    let bytes = pattern(300_000);
    client_data.write_all(&bytes).expect("the gateway reads");
    drop(client_data);
    world.near.wait_for("the last byte", |s| {
        s.transfers.iter().any(|t| t.up_bytes == 300_000)
    });
    thread::sleep(Duration::from_millis(100));
    drop(client);
    // This pause is longer than the time in which the client's control connection closes.
    thread::sleep(Duration::from_secs(3));
    assert!(read_all(&server_data) == bytes, "the file arrived changed");
    drop(server_data);
    server.send("226 done");
    server.expect_end();
}

#[test]
fn an_upload_is_delivered_though_the_client_closes_everything_at_once() {
    let world = World::start();
    let (client, mut server, mut client_data, server_data) = world.uploading();
    let bytes = pattern(300_000);
    client_data.write_all(&bytes).expect("the gateway reads");
    drop(client_data);
    drop(client);
    thread::sleep(Duration::from_secs(1));
    assert!(read_all(&server_data) == bytes, "the file arrived changed");
    drop(server_data);
    server.send("226 done");
    server.expect_end();
}

#[test]
fn a_server_that_leaves_behind_its_226_does_not_cut_a_download() {
    let world = World::start();
    let (mut client, mut server, client_data, mut server_data) = world.downloading();
    let bytes = pattern(20_000_000);
    let copy = bytes.clone();
    let sender = thread::spawn(move || {
        server_data.write_all(&copy).expect("the gateway reads");
    });
    server.send("226 done");
    drop(server);
    thread::sleep(Duration::from_secs(1));
    assert!(read_all(&client_data) == bytes, "the file arrived changed");
    client.expect("226 done");
    sender.join().expect("sent");
}

#[test]
fn a_half_close_of_the_receiver_does_not_end_a_download() {
    let world = World::start();
    let (mut client, mut server, client_data, mut server_data) = world.prepared();
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    client_data.shutdown(Shutdown::Write).expect("a half close");
    thread::sleep(Duration::from_millis(100));
    server_data
        .write_all(b"still coming")
        .expect("the gateway reads");
    drop(server_data);
    server.send("226 done");
    client.expect("150 go");
    assert_eq!(read_all(&client_data), b"still coming");
    client.expect("226 done");
}

#[test]
fn a_server_need_not_await_the_clients_end_of_a_download() {
    let world = World::start();
    let (mut client, mut server, client_data, mut server_data) = world.downloading();
    server_data.write_all(b"all").expect("the gateway reads");
    server_data.shutdown(Shutdown::Write).expect("a half close");
    // The server acts as ProFTPD: it sends its final reply only after the gateway's FIN.
    assert_eq!(read_all(&server_data), b"");
    server.send("226 done");
    assert_eq!(read_all(&client_data), b"all");
    client.expect("226 done");
}

#[test]
fn a_server_that_ends_its_own_side_does_not_end_an_upload() {
    let world = World::start();
    let (mut client, mut server, mut client_data, server_data) = world.uploading();
    server_data.shutdown(Shutdown::Write).expect("a half close");
    assert_eq!(read_all(&client_data), b"");
    let bytes = pattern(300_000);
    client_data.write_all(&bytes).expect("the gateway reads");
    drop(client_data);
    assert!(read_all(&server_data) == bytes, "the file arrived changed");
    server.send("226 done");
    client.expect("226 done");
}

#[test]
fn several_sessions_transfer_at_once() {
    let world = World::start();
    let mut sessions: Vec<(Control, Control, TcpStream, TcpStream)> =
        (0..8).map(|_| world.prepared()).collect();
    for (client, server, _, server_data) in &mut sessions {
        client.send("RETR a");
        server.expect("RETR a");
        server.send("150 go");
        server_data
            .write_all(&pattern(100_000))
            .expect("the gateway reads");
        server_data.shutdown(Shutdown::Both).expect("an end");
        server.send("226 done");
    }
    for (client, _, client_data, _) in &mut sessions {
        client.expect("150 go");
        assert!(read_all(client_data) == pattern(100_000));
        client.expect("226 done");
    }
}

/// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
mod real_time {
    use super::*;

    #[test]
    fn a_server_need_not_end_its_own_side_of_an_upload() {
        let world = World::start();
        let (mut client, mut server, mut client_data, server_data) = world.uploading();
        let sent = pattern(100_000);
        client_data.write_all(&sent).expect("the gateway reads");
        drop(client_data);
        assert_eq!(read_all(&server_data), sent);
        let answered = Instant::now();
        server.send("226 done");
        client.expect("226 done");
        let waited = answered.elapsed();
        assert!(waited < Duration::from_secs(2), "{waited:?}");
        client.send("NOOP");
        server.expect("NOOP");
        world.near.wait_for("the end", |s| s.transfers.is_empty());
        drop(server_data);
    }
}
