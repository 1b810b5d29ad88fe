//! Tests of data connections through two gateways. The tests cover the clients that may open a data
//! connection, the ports that the gateways announce, and transfers without a data connection.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::common::{
    Control, World, accept, connect, connect_from, expect_reset, passive_port, pattern, read_all,
};

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
fn a_transfer_without_pasv_is_for_the_server_to_refuse() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    client.send("LIST");
    server.expect("LIST");
    server.send("425 PASV first");
    client.expect("425 PASV first");
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

/// Returns a listener, and its address in the form of a `PORT` argument.
fn active_port() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a bound socket").port();
    let argument = format!("127,0,0,1,{},{}", port >> 8, port & 255);
    (listener, argument)
}

/// Acts as a server: connects to the port that the gateway has announced.
fn connect_active(server: &mut Control) -> TcpStream {
    let line = server.expect_code("PORT 127,0,0,1,");
    let numbers: Vec<u16> = line[5..]
        .split(',')
        .filter_map(|n| n.parse().ok())
        .collect();
    server.send("200 ok");
    connect(numbers[4] * 256 + numbers[5])
}

#[test]
fn the_gateway_connects_to_a_client_that_listens_and_not_before_the_150() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    let (listener, argument) = active_port();
    client.send(&format!("PORT {argument}"));
    let server_listener = server.open_data_port();
    client.expect_code("200 ");
    client.send("RETR a");
    server.expect("RETR a");
    listener.set_nonblocking(true).expect("a socket option");
    // The server has the command, so the gateways have finished handling the command.
    thread::sleep(Duration::from_millis(300));
    assert!(listener.accept().is_err(), "nothing announces it");
    server.send("150 go");
    client.expect("150 go");
    let mut server_data = accept(&server_listener);
    server_data
        .write_all(&pattern(70_000))
        .expect("the gateway reads");
    drop(server_data);
    server.send("226 done");
    // The gateway connects to the same listener as soon as a reply permits it.
    assert_eq!(read_all(&accept(&listener)), pattern(70_000));
    client.expect("226 done");
}

#[test]
fn a_client_that_names_a_port_and_does_not_listen_gets_no_success() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    let (listener, argument) = active_port();
    drop(listener);
    client.send(&format!("PORT {argument}"));
    let server_listener = server.open_data_port();
    client.expect_code("200 ");
    client.send("RETR a");
    server.expect("RETR a");
    let server_data = accept(&server_listener);
    server.send("150 go");
    client.expect("150 go");
    expect_reset(&server_data);
    server.send("226 done, I thought");
    client.expect_code("425 gateway");
}

#[test]
fn data_connections_go_to_the_client_alone() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    client.send("PORT 127,0,0,2,200,1");
    client.expect_code("501 gateway");
    client.send("EPRT |1|127.0.0.1|21|");
    client.expect_code("501 gateway");
    client.send("NOOP");
    server.expect("NOOP");
}

#[test]
fn a_server_in_active_mode_connects_to_the_gateway() {
    let world = World::start_with("", "server_data = \"active\"");
    let (mut client, mut server) = world.session();
    client.send("PASV");
    let server_data = connect_active(&mut server);
    let mut client_data = connect(passive_port(&client.line()));
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    client_data
        .write_all(&pattern(70_000))
        .expect("the gateway reads");
    drop(client_data);
    assert_eq!(read_all(&server_data), pattern(70_000));
    drop(server_data);
    server.send("226 done");
    client.expect("226 done");
}

#[test]
fn both_legs_in_active_mode() {
    let world = World::start_with("", "server_data = \"active\"");
    let (mut client, mut server) = world.session();
    let (listener, argument) = active_port();
    client.send(&format!("PORT {argument}"));
    let line = server.expect_code("PORT 127,0,0,1,");
    let numbers: Vec<u16> = line[5..]
        .split(',')
        .filter_map(|n| n.parse().ok())
        .collect();
    let gateway = SocketAddr::from(([127, 0, 0, 1], numbers[4] * 256 + numbers[5]));
    server.send("200 ok");
    client.expect_code("200 ");
    client.send("LIST");
    server.expect("LIST");
    server.send("150 go");
    let mut server_data = TcpStream::connect(gateway).expect("the gateway listens");
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
fn a_transfer_that_an_active_server_refuses_leaves_the_session_usable() {
    let world = World::start_with("", "server_data = \"active\"");
    let (mut client, mut server) = world.session();
    for _ in 0..3 {
        client.send("PASV");
        server.expect_code("PORT ");
        server.send("200 ok");
        let client_data = connect(passive_port(&client.line()));
        client.send("RETR none");
        server.expect("RETR none");
        server.send("550 none");
        client.expect("550 none");
        expect_reset(&client_data);
    }
}
