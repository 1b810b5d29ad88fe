//! Tests of the limits of a single client, and of the replies when a limit is reached.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{Read, Write},
    time::Duration,
};

use crate::common::{Control, World, connect_from, expect_reset, passive, read_all};

/// Connects a client from another source address.
fn from_elsewhere(world: &World) -> Control {
    let port = world.near.ftp[0].port();
    let elsewhere = "127.0.0.2".parse().expect("an address");
    Control::new(connect_from(elsewhere, port).expect("the gateway listens"))
}

#[test]
fn one_client_too_many_is_refused_and_a_freed_permit_can_be_used() {
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
fn one_client_that_has_all_its_places_leaves_those_of_others() {
    let world = World::start_with(
        "",
        "[limits]\nsessions_max = 2\nsessions_per_client_max = 1",
    );
    let _first = world.session();
    Control::connect(world.near.ftp[0]).expect_code("421 gateway: too many sessions from your");
    let mut other = from_elsewhere(&world);
    world.accept().send("220 ready");
    other.expect("220 ready");
    let mut third = from_elsewhere(&world);
    third.expect("421 gateway: too many sessions, try again later");
    third.expect_end();
}

#[test]
fn others_than_a_forwards_clients_are_reset_and_counted() {
    let forward = "[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"127.0.0.9:1\"\n\
                   clients = [\"127.0.0.2/32\"]";
    let world = World::start_with("", forward);
    for _ in 0..3 {
        expect_reset(&world.forward(0));
    }
    world.near.wait_for("a count", |s| s.refused_total == 3);
    assert_eq!(world.far.snapshot().refused_total, 0, "nobody asked it");
}

#[test]
fn a_client_of_another_network_learns_its_address_and_the_key() {
    let world = World::start_with("", "clients = [\"127.0.0.2/32\"]");
    let mut client = Control::connect(world.near.ftp[0]);
    client.expect(
        "421 gateway: clients from 127.0.0.1 are not served (see \"clients\" of the listener)",
    );
    client.expect_end();
}

#[test]
fn forwards_have_a_limit_of_their_own() {
    let world = World::start_with("", "[limits]\nforwards_max = 1\nsessions_max = 1");
    let mut first = world.forward(0);
    let _server = world.accept();
    first.write_all(b"x").expect("the gateway reads");
    expect_reset(&world.forward(0));
    // The gateway still accepts a session.
    let (_client, _server) = world.session();
}

#[test]
fn a_client_that_guesses_passwords_is_refused() {
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
    let mut other = from_elsewhere(&world);
    world.accept().send("220 ready");
    other.expect("220 ready");
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

#[test]
fn a_transfer_that_is_over_leaves_its_place() {
    let world = World::start_with("", "[limits]\ntransfers_max = 1");
    let (mut client, mut server, client_data, server_data) = world.downloading();
    drop(server_data);
    server.send("226 done");
    assert!(read_all(&client_data).is_empty());
    drop(client_data);
    client.expect("226 done");
    world
        .near
        .wait_for("a free place", |s| s.transfers.is_empty());
    passive(&mut client, &mut server);
}

/// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
mod real_time {
    use super::*;

    #[test]
    fn a_client_that_does_not_log_in_is_let_go() {
        let world = World::start_with("", "[limits]\nlogin_timeout = \"3 s\"");
        let (mut client, mut server) = world.session();
        client.send("USER joe");
        server.expect("USER joe");
        server.send("331 password");
        client.expect("331 password");
        client.expect_code("421 gateway: no login in time");
        client.expect_end();
        server.expect_end();
    }

    #[test]
    fn a_transfer_that_takes_long_is_not_idle() {
        let limits = "[limits]\nidle_timeout = \"1 s\"\nlogin_timeout = \"3 s\"";
        let world = World::start_with("", limits);
        let (mut client, mut server, mut client_data, mut server_data) = world.downloading();
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(500));
            server_data.write_all(b"more").expect("the gateway reads");
            client_data.read_exact(&mut [0; 4]).expect("it arrives");
        }
        drop(server_data);
        server.send("226 done");
        client.expect("226 done");
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
        std::thread::sleep(Duration::from_millis(1500));
        server.send("200 slept well");
        client.expect("200 slept well");
        client.expect_code("421 gateway: no command for too long");
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
    fn a_stalled_upload_is_answered_as_broken_whatever_the_server_says() {
        let world = World::start_with("", "[limits]\nstall_timeout = \"1 s\"");
        let (mut client, mut server, client_data, server_data) = world.mid_upload();
        expect_reset(&server_data);
        expect_reset(&client_data);
        server.send("226 fine by me");
        client.expect("426 gateway: data connection failed: nothing has moved for 1 s");
    }
}
