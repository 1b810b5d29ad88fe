//! Tests of the admin interface: the clients that it permits, and its timeouts.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::common::{self, TIMEOUT, World};

/// Sends a request. Returns the first line and the body of the response.
fn ask(world: &World, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(world.near.admin).expect("the admin address");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("a socket option");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("HTTP");
    let first = head.lines().next().expect("a first line");
    (first.to_owned(), body.to_owned())
}

fn of_host(world: &World, path: &str, host: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    ask(world, &request)
}

#[test]
fn a_page_that_rebinds_its_name_reads_nothing() {
    let world = World::start();
    for (number, path) in ["/status.json", "/metrics", "/"].into_iter().enumerate() {
        let (first, body) = of_host(&world, path, "evil.example:9810");
        assert_eq!(first, "HTTP/1.1 421 Misdirected Request");
        assert!(
            body.contains("evil.example") && body.contains("[admin]"),
            "{body}"
        );
        assert_eq!(world.near.snapshot().refused_total, number as u64 + 1);
    }
    let (first, _) = ask(
        &world,
        "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(first, "HTTP/1.1 421 Misdirected Request");
    let (first, _) = ask(&world, "GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_ne!(first, "HTTP/1.1 200 OK", "HTTP/1.1 has a Host");
}

#[test]
fn its_own_names_are_answered() {
    let world = World::start();
    let own = world.near.admin.to_string();
    for host in [own.as_str(), "localhost", "127.0.0.1", "[::1]:9810"] {
        let (first, body) = of_host(&world, "/status.json", host);
        assert_eq!(first, "HTTP/1.1 200 OK", "{host}: {body}");
    }
}

#[test]
fn a_flood_of_connections_keeps_nobody_out() {
    let world = World::start();
    // There are more connections than permits. Some connections are silent, and others stay open
    // after their response.
    let flood: Vec<_> = (0..200)
        .map(|number| {
            let stream = TcpStream::connect(world.near.admin).expect("the kernel takes it");
            if number % 2 == 0 {
                let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
                (&stream).write_all(request.as_bytes()).expect("a request");
            }
            stream
        })
        .collect();
    for path in ["/healthz", "/status.json", "/metrics"] {
        let (first, _) = of_host(&world, path, "localhost");
        assert_eq!(first, "HTTP/1.1 200 OK", "{path}");
    }
    assert_eq!(
        world.near.ask("GET", "/status.json", "").0,
        200,
        "by the socket"
    );
    assert_eq!(world.near.ask("POST", "/reload", "").0, 200, "an order");
    drop(flood);
}

/// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
mod real_time {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_request_that_does_not_come_leaves_its_place() {
        let world = World::start();
        // Each connection holds a permit.
        let begun = Instant::now();
        let mut idle: Vec<_> = (0..60)
            .map(|_| TcpStream::connect(world.near.admin).expect("the kernel takes it"))
            .collect();
        // One byte a second is no progress.
        while begun.elapsed() < Duration::from_secs(9) {
            for stream in &mut idle {
                let _ = stream.write_all(b"G");
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        let mut first = idle.remove(0);
        first
            .set_read_timeout(Some(TIMEOUT))
            .expect("a socket option");
        let mut answer = Vec::new();
        let _ = first.read_to_end(&mut answer);
        let elapsed = begun.elapsed();
        assert!(
            Duration::from_secs(9) < elapsed && elapsed < Duration::from_secs(14),
            "{elapsed:?}"
        );
        let (first, _) = of_host(&world, "/status.json", "localhost");
        assert_eq!(first, "HTTP/1.1 200 OK", "there is a place again");
    }
}

#[test]
fn programs_that_watch_learn_whether_it_works_and_whether_clients_get_on() {
    let mut world = World::start();
    let code = |gateway: &common::Gateway, path: &str| gateway.ask("GET", path, "").0;
    world
        .near
        .wait_for("a link", |it| it.peers[0].state == "up");
    for gateway in [&world.near, &world.far] {
        assert_eq!(code(gateway, "/healthz"), 200);
        assert_eq!(code(gateway, "/readyz"), 200);
    }
    world.far.shut_down();
    world
        .near
        .wait_for("silence", |it| it.peers[0].state != "up");
    assert_eq!(code(&world.near, "/healthz"), 200);
    let (code, why) = world.near.ask("GET", "/readyz", "");
    assert_eq!((code, why.as_str()), (503, "no peer answers\n"));
}
