//! Tests of a listener with few data ports. A port can be used again immediately, and no two
//! connections share a port.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    collections::HashSet,
    io::Write,
    net::TcpListener,
    sync::atomic::{AtomicU16, Ordering},
};

use crate::common::{World, passive, passive_port, read_all};

/// Returns a range of free ports below the ports that the system assigns.
fn free_ports(count: u16) -> (u16, u16) {
    static WORLDS: AtomicU16 = AtomicU16::new(0);
    let start = 10_000 + (std::process::id() % 1_000) as u16 * 20;
    let start = start + 500 * WORLDS.fetch_add(1, Ordering::Relaxed);
    (start..start + 500)
        .step_by(usize::from(count))
        .map(|low| (low, low + count - 1))
        .find(|(low, high)| {
            (*low..=*high).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        })
        .expect("free ports in a row")
}

fn world(count: u16) -> World {
    let (low, high) = free_ports(count);
    World::start_with("", &format!("passive_ports = \"{low}-{high}\""))
}

#[test]
fn more_downloads_in_a_row_than_there_are_ports_all_get_one() {
    let world = world(3);
    let (mut client, mut server) = world.session();
    let mut ports = HashSet::new();
    for _ in 0..30 {
        let (client_data, mut server_data) = passive(&mut client, &mut server);
        ports.insert(client_data.peer_addr().expect("a connection").port());
        client.send("RETR a");
        server.expect("RETR a");
        server.send("150 go");
        client.expect("150 go");
        server_data.write_all(b"all").expect("the gateway reads");
        drop(server_data);
        server.send("226 done");
        // The gateway ends the connection first, so the kernel keeps the gateway's port for a
        // minute.
        assert_eq!(read_all(&client_data), b"all");
        drop(client_data);
        client.expect("226 done");
    }
    assert!(ports.len() <= 3, "{ports:?}");
}

#[test]
fn sessions_that_wait_for_their_clients_at_once_have_ports_of_their_own() {
    let world = world(4);
    let mut ports = HashSet::new();
    let mut open = Vec::new();
    for _ in 0..4 {
        let (mut client, mut server) = world.session();
        client.send("PASV");
        let listener = server.open_data_port();
        assert!(
            ports.insert(passive_port(&client.line())),
            "twice: {ports:?}"
        );
        open.push((client, server, listener));
    }
    let (mut client, mut server) = world.session();
    client.send("PASV");
    let _listener = server.open_data_port();
    client.expect_code("425 gateway");
}
