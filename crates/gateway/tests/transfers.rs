//! Transfers through two gateways: the happy ways, and each abnormal end that a client, a server or
//! a gateway can bring about.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

mod common;

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use common::{
    Control, World, accept, connect, connect_from, expect_reset, expect_silence, passive,
    passive_port, read_all, reset,
};

/// Bytes that differ from place to place.
fn pattern(count: usize) -> Vec<u8> {
    (0..count as u32)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
        .take(count)
        .collect()
}

fn is_upload_begun(world: &World) {
    world
        .near
        .wait_for("the upload", |s| s.transfers.iter().any(|t| t.up_bytes > 0));
}

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
    // The server says so before the client has read a byte.
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
    let (mut client, mut server, mut client_data, server_data) = world.prepared();
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
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
        server.expect("PASV");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a bound socket").port();
        server.send(&format!("227 ok (127,0,0,1,{},{})", port >> 8, port & 255));
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
fn a_client_that_resets_its_upload_resets_the_servers() {
    let world = World::start();
    let (mut client, mut server, mut client_data, server_data) = world.prepared();
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    client_data
        .write_all(&pattern(100_000))
        .expect("the gateway reads");
    is_upload_begun(&world);
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
    let (mut client, mut server, mut client_data, server_data) = world.prepared();
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    client_data
        .write_all(&pattern(100_000))
        .expect("the gateway reads");
    is_upload_begun(&world);
    reset(client_data);
    expect_reset(&server_data);
    server.send("226 fine by me");
    client.expect_code("426 gateway");
}

#[test]
fn a_client_that_leaves_mid_upload_resets_the_servers_data() {
    let world = World::start();
    let (mut client, mut server, mut client_data, server_data) = world.prepared();
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    client_data
        .write_all(&pattern(100_000))
        .expect("the gateway reads");
    is_upload_begun(&world);
    drop(client);
    expect_reset(&server_data);
    server.send("426 broken");
    server.expect("QUIT");
    server.expect_end();
}

#[test]
fn an_upload_that_was_sent_whole_is_delivered_though_the_client_left() {
    let world = World::start();
    let (mut client, mut server, mut client_data, server_data) = world.prepared();
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    client_data
        .write_all(b"everything")
        .expect("the gateway reads");
    drop(client_data);
    assert_eq!(read_all(&server_data), b"everything");
    drop(client);
    drop(server_data);
    server.send("226 done");
    server.expect("QUIT");
    server.expect_end();
}

#[test]
fn an_upload_under_way_survives_the_end_of_its_session() {
    let world = World::start();
    let (mut client, mut server, mut client_data, server_data) = world.prepared();
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    let bytes = pattern(4_000_000);
    client_data.write_all(&bytes).expect("the gateway reads");
    drop(client_data);
    world.near.wait_for("the last byte", |s| {
        s.transfers.iter().any(|t| t.up_bytes == 4_000_000)
    });
    thread::sleep(Duration::from_millis(100));
    drop(client);
    // Longer than the client's control connection takes to be closed.
    thread::sleep(Duration::from_secs(3));
    assert!(read_all(&server_data) == bytes, "the file arrived changed");
    drop(server_data);
    server.send("226 done");
    server.expect("QUIT");
    server.expect_end();
}

#[test]
fn an_upload_is_delivered_though_the_client_closes_everything_at_once() {
    let world = World::start();
    let (mut client, mut server, mut client_data, server_data) = world.prepared();
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    let bytes = pattern(4_000_000);
    client_data.write_all(&bytes).expect("the gateway reads");
    drop(client_data);
    drop(client);
    thread::sleep(Duration::from_secs(1));
    assert!(read_all(&server_data) == bytes, "the file arrived changed");
    drop(server_data);
    server.send("226 done");
    server.expect("QUIT");
    server.expect_end();
}

#[test]
fn a_server_that_leaves_behind_its_226_does_not_cut_a_download() {
    let world = World::start();
    let (mut client, mut server, client_data, mut server_data) = world.prepared();
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    client.expect("150 go");
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
fn a_server_that_resets_a_download_resets_the_clients() {
    let world = World::start();
    let (mut client, mut server, mut client_data, mut server_data) = world.prepared();
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    client.expect("150 go");
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
fn a_server_that_dies_mid_download_is_told_with_421_and_a_reset() {
    let world = World::start();
    let (mut client, mut server, client_data, mut server_data) = world.prepared();
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    client.expect("150 go");
    server_data.write_all(b"half").expect("the gateway reads");
    drop(server);
    expect_reset(&client_data);
    client.expect_code("421 gateway");
    client.expect_end();
}

#[test]
fn a_full_disk_is_told_at_once_and_the_client_can_read_it() {
    let world = World::start();
    let (mut client, mut server, mut client_data, server_data) = world.prepared();
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    let writer = thread::spawn(move || {
        let bytes = pattern(200_000);
        // More than all buffers on the way hold.
        for _ in 0..500 {
            if client_data.write_all(&bytes).is_err() {
                return false;
            }
        }
        true
    });
    is_upload_begun(&world);
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
    let (mut client, mut server, client_data, mut server_data) = world.prepared();
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    client.expect("150 go");
    server_data
        .write_all(&pattern(100_000))
        .expect("the gateway reads");
    (&client_data)
        .read_exact(&mut [0; 1000])
        .expect("the first bytes");
    reset(client_data);
    server_data
        .set_write_timeout(Some(common::PATIENCE))
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
    let (mut client, mut server, client_data, mut server_data) = world.prepared();
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    client.expect("150 go");
    let writer = thread::spawn(move || {
        let bytes = pattern(1_000_000);
        while server_data.write_all(&bytes).is_ok() {}
    });
    world.near.wait_for("the download", |s| {
        s.transfers.iter().any(|t| t.down_bytes > 0)
    });
    // As tnftp does it: IAC IP, then IAC DM with the last byte urgent, then the command.
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
    let (mut client, mut server, mut client_data, server_data) = world.prepared();
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    client_data
        .write_all(&pattern(100_000))
        .expect("the gateway reads");
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
    let (mut client, mut server, client_data, mut server_data) = world.prepared();
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    client.expect("150 go");
    server_data.write_all(b"half").expect("the gateway reads");
    (&client_data).read_exact(&mut [0; 4]).expect("it arrives");
    world.kill_far();
    expect_reset(&client_data);
    client.expect_code("426 gateway");
    client.expect_code("421 gateway");
    client.expect_end();
}

#[test]
fn a_near_gateway_that_is_killed_never_makes_a_transfer_complete() {
    let mut world = World::start_with("idle_timeout = \"2 s\"", "");
    let (mut client, mut server, client_data, mut server_data) = world.prepared();
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    client.expect("150 go");
    server_data.write_all(b"half").expect("the gateway reads");
    (&client_data).read_exact(&mut [0; 4]).expect("it arrives");
    world.near.kill();
    expect_reset(&client_data);
    client.expect_end();
    expect_reset(&server_data);
}

#[test]
fn a_shutdown_drains_and_names_what_it_cut_short() {
    let mut world = World::start();
    let (mut client, mut server, mut client_data, server_data) = world.prepared();
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    client_data
        .write_all(&pattern(100_000))
        .expect("the gateway reads");
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

#[test]
fn strangers_at_the_data_port_are_reset_and_the_client_still_gets_in() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    client.send("PASV");
    server.expect("PASV");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a bound socket").port();
    server.send(&format!("227 ok (127,0,0,1,{},{})", port >> 8, port & 255));
    let port = passive_port(&client.line());
    let stranger = connect_from([127, 0, 0, 2].into(), port).expect("the port is open");
    expect_reset(&stranger);
    let client_data = connect(port);
    client.send("LIST");
    server.expect("LIST");
    server.send("150 go");
    accept(&listener)
        .write_all(b"listing")
        .expect("the gateway reads");
    client.expect("150 go");
    assert_eq!(read_all(&client_data), b"listing");
}

#[test]
fn a_transfer_without_pasv_is_answered_425() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    client.send("LIST");
    client.expect_code("425 ");
    client.send("NOOP");
    server.expect("NOOP");
}

#[test]
fn a_data_port_of_the_server_that_refuses_is_answered_425() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    client.send("PASV");
    server.expect("PASV");
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port")
        .port();
    server.send(&format!("227 ok (127,0,0,1,{},{})", port >> 8, port & 255));
    let _data: TcpStream = connect(passive_port(&client.line()));
    thread::sleep(Duration::from_millis(100));
    client.send("RETR a");
    client.expect_code("425 ");
}

#[test]
fn passive_ports_come_from_the_configured_range() {
    let world = World::start_with(
        "",
        "passive_ports = \"41000-41100\"\nexternal_address = \"198.51.100.7\"",
    );
    let (mut client, mut server) = world.session();
    client.send("PASV");
    server.expect("PASV");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a bound socket").port();
    server.send(&format!("227 ok (127,0,0,1,{},{})", port >> 8, port & 255));
    let reply = client.line();
    assert!(reply.contains("(198,51,100,7,"), "{reply}");
    assert!((41000..=41100).contains(&passive_port(&reply)), "{reply}");
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
