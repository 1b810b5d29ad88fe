//! Setting up data connections through two gateways: who gets in, which ports are announced, and what
//! is said when there is no data connection.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

mod common;

use std::{io::Write, net::TcpListener, thread, time::Duration};

use common::{World, accept, connect, connect_from, expect_reset, passive_port, read_all};

#[test]
fn strangers_at_the_data_port_are_reset_and_the_client_still_gets_in() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    client.send("PASV");
    let listener = server.open_data_port();
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
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port")
        .port();
    server.announce_data_port(port);
    let _data = connect(passive_port(&client.line()));
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
    let _listener = server.open_data_port();
    let reply = client.line();
    assert!(reply.contains("(198,51,100,7,"), "{reply}");
    assert!((41000..=41100).contains(&passive_port(&reply)), "{reply}");
}
