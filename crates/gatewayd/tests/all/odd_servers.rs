//! Tests with unusual servers behind two gateways. The servers do not answer, answer in an unusual
//! form, or end the session.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use crate::common::{Control, World, accept, connect, passive_port, read_all};

/// Returns the control connections of client and server. The client has logged in, and the server
/// has received `SYST`.
fn asked(world: &World) -> (Control, Control) {
    let (client, mut server) = world.logged_in();
    server.expect("SYST");
    (client, server)
}

#[test]
fn a_server_that_leaves_at_a_question_is_logged_in_to_again_and_asked_no_more() {
    let world = World::start();
    let (mut client, mut server) = asked(&world);
    client.send("CWD a");
    server.send("221 goodbye");
    drop(server);
    let mut server = world.accept();
    server.send("220 ready");
    server.expect("USER joe");
    server.send("331 password");
    server.expect("PASS x");
    server.send("230 in");
    server.expect("CWD a");
    server.send("250 there");
    client.expect("250 there");

    // This is the next session with the same server.
    let (mut client, mut server) = world.session();
    client.send("USER joe");
    server.expect("USER joe");
    server.send("230 in");
    client.expect("230 in");
    client.send("NOOP");
    server.expect("NOOP");
}

#[test]
fn a_late_answer_to_a_question_is_not_the_reply_to_the_clients_command() {
    let world = World::start();
    let (mut client, mut server) = asked(&world);
    client.send("NOOP");
    client.send("CWD a");
    std::thread::sleep(Duration::from_secs(4));
    server.send("215 late");
    server.expect("FEAT");
    server.send("211 none");
    server.expect("PWD");
    server.send("257 \"/\"");
    for (command, reply) in [("NOOP", "200 ok"), ("CWD a", "250 there")] {
        server.expect(command);
        server.send(reply);
        client.expect(reply);
    }
}

#[test]
fn a_server_that_takes_one_connection_is_left_before_it_is_connected_again() {
    let world = World::start();
    let (mut client, mut server) = asked(&world);
    client.send("CWD a");
    server.expect_end();
    let mut again = world.accept();
    again.send("220 ready");
    again.expect("USER joe");
    again.send("530 too many connections");
    again.expect_end();
    let mut again = world.accept();
    again.send("421 too many connections");
    again.expect_end();
    let mut again = world.accept();
    again.send("220 ready");
    again.expect("USER joe");
    again.send("331 password");
    again.expect("PASS x");
    again.send("230 in");
    again.expect("CWD a");
    again.send("250 there");
    client.expect("250 there");
}

#[test]
fn a_client_that_leaves_during_the_second_log_in_ends_it() {
    let world = World::start();
    let (client, mut server) = asked(&world);
    server.send("421 goodbye");
    drop(server);
    let mut again = world.accept();
    again.send("220 ready");
    again.expect("USER joe");
    drop(client);
    again.expect_end();
}

#[test]
fn a_server_without_pasv_connects() {
    let world = World::start_with("", "mode = \"strict\"");
    let (mut client, mut server) = world.session();
    client.send("PASV");
    server.expect("PASV");
    server.send("502 no");
    server.expect("EPSV");
    server.send("502 no");
    let line = server.line();
    let numbers: Vec<u16> = line
        .strip_prefix("PORT 127,0,0,1,")
        .expect("the gateway's address")
        .split(',')
        .map(|number| number.parse().expect("a number"))
        .collect();
    server.send("200 ok");
    let mut client_data = connect(passive_port(&client.line()));
    client.send("LIST");
    server.expect("LIST");
    server.send("150 go");
    client.expect("150 go");
    let port = numbers[0] * 256 + numbers[1];
    let mut server_data = TcpStream::connect(("127.0.0.1", port)).expect("the gateway listens");
    server_data.write_all(b"list").expect("the gateway reads");
    drop(server_data);
    let mut listing = Vec::new();
    client_data.read_to_end(&mut listing).expect("it arrives");
    drop(client_data);
    server.send("226 done");
    client.expect("226 done");
    assert_eq!(listing, b"list");
}

#[test]
fn one_users_refused_pasv_changes_nothing_for_other_sessions() {
    let world = World::start_with("", "mode = \"strict\"");
    for _ in 0..2 {
        let (mut client, mut server) = world.session();
        client.send("PASV");
        server.expect("PASV");
        server.send("550 not you");
        server.expect("EPSV");
        server.send("550 not you");
        assert!(server.line().starts_with("PORT "));
        server.send("200 ok");
        client.expect_code("227 ");
        client.send("QUIT");
        server.expect("QUIT");
        server.send("221 bye");
        client.expect("221 bye");
    }
}

#[test]
fn what_was_sent_before_a_half_close_is_answered() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    client.send("SYST");
    client.send("NOOP");
    client
        .stream
        .shutdown(Shutdown::Write)
        .expect("a control connection");
    server.expect("SYST");
    server.send("215 UNIX");
    server.expect("NOOP");
    server.send("200 ok");
    client.expect("215 UNIX");
    client.expect("200 ok");
    client.expect_end();
    server.expect_end();
}

#[test]
fn an_urgent_byte_of_a_forward_is_kept() {
    let world = World::start();
    let mut client = world.forward(0);
    let server = accept(&world.server);
    client.write_all(b"before").expect("the gateway reads");
    let socket = socket2::SockRef::from(&client);
    socket.send_out_of_band(b"!").expect("the gateway reads");
    client.write_all(b"behind").expect("the gateway reads");
    client.shutdown(Shutdown::Write).expect("the gateway reads");
    assert_eq!(read_all(&server), b"before!behind");
}
