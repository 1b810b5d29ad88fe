//! Tests of transfers that end abnormally. Each transfer passes through two gateways. A client, a
//! server or a gateway causes the end. The tests check the replies and resets that the other
//! participants receive.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{Read, Write},
    thread,
    time::{Duration, Instant},
};

use crate::common::{self, World, expect_reset, expect_silence, passive, pattern, read_all, reset};

#[test]
fn a_client_that_resets_its_upload_resets_the_servers() {
    let world = World::start();
    let (mut client, mut server, client_data, server_data) = world.mid_upload();
    reset(client_data);
    expect_reset(&server_data);
    server.send("426 broken");
    client.expect("426 broken");
    client.send("NOOP");
    server.expect("NOOP");
    server.send("200 ok");
    client.expect("200 ok");
}

#[test]
fn a_226_for_a_reset_upload_is_not_passed_on() {
    let world = World::start();
    let (mut client, mut server, client_data, server_data) = world.mid_upload();
    reset(client_data);
    expect_reset(&server_data);
    server.send("226 fine by me");
    client.expect_code("426 gateway");
}

#[test]
fn a_client_that_leaves_mid_upload_resets_the_servers_data() {
    let world = World::start();
    let (client, mut server, _client_data, server_data) = world.mid_upload();
    drop(client);
    expect_reset(&server_data);
    server.send("426 broken");
    server.expect_end();
}

#[test]
fn a_server_that_resets_a_download_resets_the_clients() {
    let world = World::start();
    let (mut client, mut server, mut client_data, mut server_data) = world.downloading();
    server_data
        .write_all(&pattern(50_000))
        .expect("the gateway reads");
    client_data
        .read_exact(&mut [0; 50_000])
        .expect("what was sent");
    reset(server_data);
    expect_reset(&client_data);
    server.send("426 broken");
    client.expect("426 broken");
}

#[test]
fn a_server_that_ends_a_download_in_order_and_says_426_is_believed() {
    let world = World::start();
    let (mut client, mut server, client_data, mut server_data) = world.prepared();
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    server_data.write_all(b"half").expect("the gateway reads");
    drop(server_data);
    server.send("426 disk trouble");
    client.expect("150 go");
    client.expect("426 disk trouble");
    assert_eq!(read_all(&client_data), b"half");
}

#[test]
fn the_death_of_a_server_during_a_download_causes_421_and_a_reset() {
    let world = World::start();
    let (mut client, server, client_data, _server_data) = world.mid_download();
    drop(server);
    expect_reset(&client_data);
    client.expect_code("421 gateway");
    client.expect_end();
}

#[test]
fn a_refused_upload_reads_its_550() {
    let world = World::start();
    let (mut client, mut server, mut client_data, server_data) = world.prepared();
    client.send("STOR a");
    client_data.write_all(b"eager").expect("the gateway reads");
    server.expect("STOR a");
    server.send("550 no");
    drop(server_data);
    client.expect("550 no");
    let (again, _far) = passive(&mut client, &mut server);
    drop(again);
}

#[test]
fn a_client_that_stops_a_download_resets_the_servers_data() {
    let world = World::start();
    let (mut client, mut server, client_data, mut server_data) = world.downloading();
    server_data
        .write_all(&pattern(100_000))
        .expect("the gateway reads");
    (&client_data)
        .read_exact(&mut [0; 1000])
        .expect("the first bytes");
    reset(client_data);
    server_data
        .set_write_timeout(Some(common::TIMEOUT))
        .expect("a socket option");
    let bytes = pattern(100_000);
    let error = loop {
        if let Err(error) = server_data.write_all(&bytes) {
            break error;
        }
    };
    assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
    server.send("426 broken");
    client.expect("426 broken");
}

#[test]
fn abor_overtakes_buffered_data_and_both_replies_come() {
    let world = World::start();
    let (mut client, mut server, client_data, mut server_data) = world.downloading();
    let writer = thread::spawn(move || {
        let bytes = pattern(1_000_000);
        while server_data.write_all(&bytes).is_ok() {}
    });
    world.near.wait_for("the download", |s| {
        s.transfers.iter().any(|t| t.down_bytes > 0)
    });
    // The client acts as tnftp: IAC IP, then IAC DM with the last byte urgent, then the command.
    client
        .stream
        .write_all(&[0xff, 0xf4])
        .expect("a control connection");
    socket2::SockRef::from(&client.stream)
        .send_out_of_band(&[0xff])
        .expect("urgent data");
    client
        .stream
        .write_all(b"\xf2ABOR\r\n")
        .expect("a control connection");
    let line = server.try_line().expect("a line");
    assert!(line.ends_with(b"ABOR"), "{line:?}");
    server.send("426 broken");
    server.send("226 aborted");
    client.expect("426 broken");
    client.expect("226 aborted");
    expect_reset(&client_data);
    writer
        .join()
        .expect("the server's data connection ends too");
}

#[test]
fn a_server_sees_abor_before_the_end_of_an_unused_data_connection() {
    let world = World::start();
    let (mut client, mut server, client_data, server_data) = world.prepared();
    client.send("ABOR");
    server.expect("ABOR");
    expect_silence(&server_data);
    expect_silence(&client_data);
    server.send("225 aborted");
    expect_reset(&client_data);
    client.expect("225 aborted");
    expect_reset(&server_data);
}

#[test]
fn abor_sent_wholly_as_urgent_data_arrives() {
    let world = World::start();
    let (client, mut server) = world.session();
    socket2::SockRef::from(&client.stream)
        .send_out_of_band(b"ABOR\r\n")
        .expect("urgent data");
    server.expect("ABOR");
}

#[test]
fn a_far_gateway_that_is_killed_never_makes_an_upload_complete() {
    let mut world = World::start_with("idle_timeout = \"2 s\"", "");
    let (mut client, _server, _client_data, server_data) = world.mid_upload();
    (&server_data)
        .read_exact(&mut [0; 100_000])
        .expect("it arrives");
    world.kill_far();
    expect_reset(&server_data);
    client.expect_code("426 gateway");
    client.expect_code("421 gateway");
    client.expect_end();
}

#[test]
fn a_far_gateway_that_is_killed_never_makes_a_download_complete() {
    let mut world = World::start_with("idle_timeout = \"2 s\"", "");
    let (mut client, _server, client_data, _server_data) = world.mid_download();
    world.kill_far();
    expect_reset(&client_data);
    client.expect_code("426 gateway");
    client.expect_code("421 gateway");
    client.expect_end();
}

#[test]
fn a_near_gateway_that_is_killed_never_makes_a_transfer_complete() {
    let mut world = World::start_with("idle_timeout = \"2 s\"", "");
    let (mut client, _server, client_data, server_data) = world.mid_download();
    world.near.kill();
    expect_reset(&client_data);
    client.expect_end();
    expect_reset(&server_data);
}

#[test]
fn a_shutdown_drains_and_names_what_it_cut_short() {
    let mut world = World::start();
    let (mut client, _server, _client_data, server_data) = world.mid_upload();
    (&server_data)
        .read_exact(&mut [0; 100_000])
        .expect("it arrives");
    let cut_short = world.near.shut_down();
    assert_eq!(cut_short.transfers.len(), 1);
    assert_eq!(cut_short.transfers[0].up_bytes, 100_000);
    client.expect_code("426 gateway");
    client.expect_code("421 gateway");
    expect_reset(&server_data);
}

/// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
mod real_time {
    use super::*;

    #[test]
    fn a_client_that_is_not_read_and_leaves_mid_download_is_noticed() {
        let world = World::start();
        let (mut client, mut server, client_data, server_data) = world.mid_download();
        // The client sends more commands than the number that may wait for replies.
        for _ in 0..100 {
            client.send("NOOP");
        }
        thread::sleep(Duration::from_millis(300));
        let left = Instant::now();
        // The connection closes in order, and before any reply.
        drop(client);
        expect_reset(&client_data);
        expect_reset(&server_data);
        assert!(left.elapsed() < Duration::from_secs(2));
        server.send("426 broken");
    }

    #[test]
    fn a_full_disk_is_reported_at_once_and_the_client_can_read_the_reply() {
        let world = World::start();
        let (mut client, mut server, mut client_data, server_data) = world.uploading();
        let writer = thread::spawn(move || {
            let bytes = pattern(200_000);
            // These are more bytes than all buffers on the path hold.
            for _ in 0..500 {
                if client_data.write_all(&bytes).is_err() {
                    return false;
                }
            }
            true
        });
        world.wait_for_upload();
        let told = Instant::now();
        server.send("552 disk full");
        drop(server_data);
        client.expect("552 disk full");
        assert!(
            told.elapsed() < Duration::from_secs(2),
            "it took {:?}",
            told.elapsed()
        );
        let drained = writer.join().expect("a writer");
        assert!(
            drained,
            "the client was cut off while it could still read the reply"
        );
    }
}
