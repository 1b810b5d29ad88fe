//! What one client may take of a gateway, and what it hears when it takes more.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

mod common;

use std::io::Write;

use common::{Control, World, expect_reset};

#[test]
fn one_client_too_many_is_told_and_a_place_that_is_left_can_be_had() {
    let world = World::start_with("", "[limits]\nsessions_per_client_max = 2");
    let first = world.session();
    let (_client, _server) = world.session();
    let mut third = Control::connect(world.near.ftp[0]);
    third.expect("421 gateway: too many sessions from your address, try again later");
    third.expect_end();
    let (mut client, mut server) = first;
    client.send("QUIT");
    server.expect("QUIT");
    server.send("221 bye");
    drop(server);
    client.expect("221 bye");
    client.expect_end();
    world
        .near
        .wait_for("a free place", |s| s.sessions_open == 1);
    world.session();
}

#[test]
fn who_guesses_passwords_is_kept_out() {
    let world = World::start_with("", "[limits]\nfailed_logins_per_minute_max = 2");
    let (mut client, mut server) = world.session();
    for _ in 0..2 {
        client.send("PASS guess");
        server.expect("PASS guess");
        server.send("530 no");
        client.expect("530 no");
    }
    client.expect_code("421 gateway: too many failed logins");
    client.expect_end();
    let mut again = Control::connect(world.near.ftp[0]);
    again.expect_code("421 gateway: too many failed logins");
}

#[test]
fn a_client_that_asks_nothing_is_let_go_and_one_that_waits_is_not() {
    let world = World::start_with("", "[limits]\nidle_timeout = \"1 s\"");
    let (mut client, mut server) = world.session();
    client.send("USER joe");
    server.expect("USER joe");
    server.send("230 in");
    client.expect("230 in");
    for (question, answer) in [("SYST", "215 x"), ("FEAT", "502 x"), ("PWD", "257 x")] {
        server.expect(question);
        server.send(answer);
    }
    client.send("SITE SLEEP");
    server.expect("SITE SLEEP");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    server.send("200 slept well");
    client.expect("200 slept well");
    client.expect_code("421 gateway: nothing was asked for too long");
    client.expect_end();
    server.expect_end();
}

#[test]
fn a_transfer_on_which_nothing_moves_is_broken_off() {
    let world = World::start_with("", "[limits]\nstall_timeout = \"1 s\"");
    let (mut client, mut server, client_data, mut server_data) = world.downloading();
    server_data.write_all(b"half").expect("the gateway reads");
    expect_reset(&client_data);
    expect_reset(&server_data);
    server.send("426 broken off");
    client.expect("426 broken off");
}

#[test]
fn beyond_the_limit_on_transfers_there_is_no_data_connection() {
    let world = World::start_with("", "[limits]\ntransfers_max = 1");
    let _open = world.prepared();
    let (mut client, mut server) = world.session();
    client.send("PASV");
    client.expect_code("425 gateway");
    client.send("NOOP");
    server.expect("NOOP");
}
