//! Tests of fast mode: replies that the near gateway sends itself, the order of replies, and later
//! refusals by the server.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{io::Write, net::TcpListener, thread, time::Duration};

use relay::status::GatewaySnapshot;

use crate::common::{
    Control, World, accept, connect, expect_reset, passive_port, pattern, read_all,
};

/// Returns the control connections of client and server. The client has logged in, and the server
/// has answered the first commands of the gateway.
fn logged_in(world: &World) -> (Control, Control) {
    let (client, mut server) = world.logged_in();
    for (question, answer) in [
        ("SYST", "215 UNIX Type: L8"),
        ("FEAT", "211-Features\r\n AUTH TLS\r\n MDTM\r\n211 End"),
        ("PWD", "257 \"/\""),
    ] {
        server.expect(question);
        server.send(answer);
    }
    (client, server)
}

#[test]
fn questions_that_clients_ask_are_answered_without_the_server() {
    let world = World::start();
    let (mut client, mut server) = logged_in(&world);
    client.send("SYST");
    client.expect("215 UNIX Type: L8");
    client.send("FEAT");
    client.expect("211-Features");
    client.expect(" MDTM");
    client.expect("211 End");
    client.send("PWD");
    client.expect("257 \"/\"");
    client.send("CWD a");
    server.expect("CWD a");
    server.send("250 ok");
    client.expect("250 ok");
    client.send("PWD");
    server.expect("PWD");
    server.send("257 \"/a\"");
    client.expect("257 \"/a\"");
}

#[test]
fn a_download_takes_one_round_trip_of_commands() {
    let world = World::start();
    let (mut client, mut server) = logged_in(&world);
    client.send("TYPE I");
    client.expect_code("200 gateway");
    client.send("PASV");
    let client_data = connect(passive_port(&client.line()));
    client.send("RETR a");
    // The server receives all three commands only now.
    server.expect("TYPE I");
    server.send("200 ok");
    let listener = server.open_data_port();
    server.expect("RETR a");
    server.send("150 go");
    let mut server_data = accept(&listener);
    server_data.write_all(b"bytes").expect("the gateway reads");
    drop(server_data);
    server.send("226 done");
    client.expect("150 go");
    assert_eq!(read_all(&client_data), b"bytes");
    client.expect("226 done");
}

#[test]
fn an_upload_is_on_its_way_before_the_server_has_agreed() {
    let world = World::start();
    let (mut client, mut server) = logged_in(&world);
    client.send("PASV");
    let mut client_data = connect(passive_port(&client.line()));
    client.send("STOR a");
    client_data.write_all(b"bytes").expect("the gateway reads");
    drop(client_data);
    let listener = server.open_data_port();
    let server_data = accept(&listener);
    assert_eq!(read_all(&server_data), b"bytes");
    drop(server_data);
    server.expect("STOR a");
    server.send("150 go");
    server.send("226 done");
    client.expect("150 go");
    client.expect("226 done");
}

#[test]
fn before_the_far_side_reads_little_of_an_upload_is_on_its_way() {
    let world = World::start();
    let (mut client, mut server) = logged_in(&world);
    client.send("PASV");
    let client_data = connect(passive_port(&client.line()));
    client.send("STOR a");
    let sent = pattern(3_000_000);
    let writer = {
        let (mut client_data, sent) = (client_data, sent.clone());
        thread::spawn(move || client_data.write_all(&sent).expect("the gateway reads"))
    };
    let read = |s: &GatewaySnapshot| s.transfers.iter().map(|t| t.up_bytes).sum::<u64>();
    world.near.wait_for("first bytes", |s| read(s) > 0);
    // This time suffices for all bytes that the gateway would still read.
    thread::sleep(Duration::from_millis(500));
    let held = read(&world.near.snapshot());
    // The budget for an unknown server: the bytes that a server of 300 kB/s reads in 3.3 s.
    assert!((1..=1_000_000).contains(&held), "{held} bytes");
    let listener = server.open_data_port();
    let server_data = accept(&listener);
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    assert_eq!(read_all(&server_data), sent);
    drop(server_data);
    server.send("226 done");
    client.expect("226 done");
    writer.join().expect("the client has sent everything");
}

#[test]
fn a_refused_data_port_is_reported_at_the_transfer() {
    let world = World::start();
    let (mut client, mut server) = logged_in(&world);
    client.send("PASV");
    let client_data = connect(passive_port(&client.line()));
    server.expect("PASV");
    server.send("425 no port left");
    client.send("LIST");
    let reply = client.expect_code("425 gateway");
    assert!(reply.contains("425 no port left"), "{reply}");
    expect_reset(&client_data);
    client.send("NOOP");
    server.expect("NOOP");
}

#[test]
fn a_refused_type_transfers_nothing() {
    let world = World::start();
    let (mut client, mut server) = logged_in(&world);
    client.send("TYPE I");
    client.expect_code("200 ");
    server.expect("TYPE I");
    server.send("504 not today");
    client.send("PASV");
    let client_data = connect(passive_port(&client.line()));
    let _listener = server.open_data_port();
    client.send("RETR a");
    let reply = client.expect_code("451 gateway");
    assert!(reply.contains("504 not today"), "{reply}");
    expect_reset(&client_data);
}

#[test]
fn a_client_in_active_mode_is_answered_at_once_too() {
    let world = World::start();
    let (mut client, mut server) = logged_in(&world);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a bound socket").port();
    client.send(&format!("EPRT |1|127.0.0.1|{port}|"));
    client.expect_code("200 gateway");
    client.send("LIST");
    let server_listener = server.open_data_port();
    server.expect("LIST");
    server.send("150 go");
    let mut server_data = accept(&server_listener);
    server_data
        .write_all(b"listing")
        .expect("the gateway reads");
    drop(server_data);
    server.send("226 done");
    client.expect("150 go");
    assert_eq!(read_all(&accept(&listener)), b"listing");
    client.expect("226 done");
}

#[test]
fn in_strict_mode_each_command_is_the_servers() {
    let world = World::start_with("", "mode = \"strict\"");
    let (mut client, mut server) = world.session();
    for (command, reply) in [
        ("USER joe", "331 password"),
        ("PASS x", "230 in"),
        ("SYST", "215 UNIX"),
        ("PWD", "257 \"/\""),
        ("TYPE I", "200 ok"),
        ("TYPE A", "200 ok"),
        ("PWD", "257 \"/\""),
    ] {
        client.send(command);
        server.expect(command);
        server.send(reply);
        client.expect(reply);
    }
}

#[test]
fn as_many_transfers_as_a_client_may_ask_for_ahead_find_their_data() {
    let world = World::start();
    let (mut client, mut server) = logged_in(&world);
    let listeners: Vec<_> = (0..20)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"))
        .collect();
    for listener in &listeners {
        let port = listener.local_addr().expect("a bound socket").port();
        client.send(&format!("EPRT |1|127.0.0.1|{port}|"));
        client.send("LIST");
    }
    for listener in &listeners {
        let server_listener = server.open_data_port();
        let mut server_data = accept(&server_listener);
        server.expect("LIST");
        server.send("150 go");
        server_data
            .write_all(b"listing")
            .expect("the gateway reads");
        drop(server_data);
        server.send("226 done");
        client.expect_code("200 gateway");
        client.expect("150 go");
        assert_eq!(read_all(&accept(listener)), b"listing");
        client.expect("226 done");
    }
}
